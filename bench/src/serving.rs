//! Servers of `metrics.k8s.io` under measure: the programs, the cluster that they read, who reads
//! them, and what is done with each from its start to its end.
//!
//! Every server is started with metrics-server's flags, so that whatever takes them can be put
//! beside it.

pub mod bed;
pub mod phases;
pub mod program;
pub mod reads;
pub mod real;
pub mod report;
pub mod told;

pub use bed::{Bed, free_address};
pub use phases::Phases;
pub use program::{ServerFlags, ServerProgram};
pub use real::RealFlags;

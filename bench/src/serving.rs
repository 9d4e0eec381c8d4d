//! Benchmarks of servers of `metrics.k8s.io`: the programs, the cluster that they read, the load of
//! their clients, and the phases of a measurement.
//!
//! Every server is started with metrics-server's flags, so that any program that accepts them can
//! be compared.

pub mod control_plane;
pub mod phases;
pub mod program;
pub mod reads;
pub mod report;
pub mod reported;
pub mod testbed;

pub use control_plane::ControlPlaneFlags;
pub use phases::Phases;
pub use program::{ServerFlags, ServerProgram};
pub use testbed::{Testbed, free_address};

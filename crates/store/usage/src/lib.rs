//! From samples to usage: what every node, pod and container uses now, or why it is not known.

mod absence;
mod config;
mod readiness;
mod store;
mod view;

pub use absence::{Absence, NodeFailure};
pub use config::{ExtraResources, UsageConfig};
pub use readiness::{Readiness, Reason};
pub use store::{Ingested, UsageStore};
pub use view::{ContainerUsage, NodeView, PodUsage, Publish};

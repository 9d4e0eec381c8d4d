//! From samples to usage: what every node, pod and container uses now, or why it is not known.

mod view;

pub use view::{ContainerUsage, NodeView, PodUsage, Publish};

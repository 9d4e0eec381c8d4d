//! From samples to usage: what every node, pod and container uses now, or why it is not known.
//!
//! ```text
//!  a kubelet's answer ──ingest──► node: the last sample ──► rate ──► last good usage ──┬─► UsagePublisher, node by node
//!  pods, nodes ─────────applied─► of each container                                    └─► explain: why there is none
//! ```
//!
//! **Usage.** A rate is made of the last two distinct samples with the times at which their CPU was
//! read. A repeated sample changes nothing. A container that started after the last sample is
//! counted from its start, once it is old enough for that to mean something
//! ([`UsageConfig::first_window`]). Until two samples are there, the kubelet's own average serves,
//! where it states one.
//!
//! **Faults stay where they are.** What has no rate leaves the last good usage as it is, with its
//! true time, until it is older than [`UsageConfig::staleness`]; then the container is left out and
//! its siblings stay. How old a value is goes by when it was received, so that a node whose clock
//! is wrong is served as well.
//!
//! **Whose word counts.** A kubelet speaks for pods that the API has bound to its node and for no
//! others. A pod that the API has not told of yet is held, a bounded number of them for a bounded
//! time, and never published before it is known. Only running pods are published, as metrics-server
//! does.
//!
//! **Locks.** Each node has its own. What is published of a node is published under it, so that a
//! later state is never overtaken by an earlier one; two nodes never wait for each other.
//!
//! # Limits
//!
//! - A clock that is set back by less than the time between two samples makes one window too short,
//!   and its rate too high.
//! - Pods are told apart by their UID in the API, but a kubelet names them only by namespace and
//!   name: for as long as a kubelet still reports the containers of a pod that was deleted and made
//!   again on the same node, they count as the new one's, until the start times of its own
//!   containers show.

mod absence;
mod config;
mod directory;
mod metrics;
mod node;
mod publisher;
mod readiness;
mod rules;
mod series;
mod store;

pub use absence::{Absence, NodeFailure};
pub use config::{ExtraResources, UsageConfig};
pub use metrics::UsageMetrics;
pub use publisher::{ContainerUsage, NodeUsage, PodUsage, UsagePublisher};
pub use readiness::{Readiness, Reason};
pub use store::{Ingested, UsageStore};

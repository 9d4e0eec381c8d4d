//! Computes the current usage of every node, pod and container from samples, or the reason for its
//! absence.
//!
//! ```text
//!  scrape ────── ingest ──► last sample ──► rate ──► last usage ──┬─► publishers, node by node
//!  pods, nodes ─ applied ─► of each container                     └─► explain: the reason for an absence
//! ```
//!
//! **Usage.** A rate is computed from the last two distinct samples and the times at which their
//! CPU was read. A repeated sample changes nothing. A container that started after the last sample
//! is measured from its start, once it is old enough ([`UsageConfig::first_window`]). Until there
//! are two samples, the kubelet's own average is served, if it reports one.
//!
//! **Faults stay local.** Without a new rate the last usage stays as it is, with its true
//! timestamp, until it is older than [`UsageConfig::staleness`]; then the container is omitted, and
//! its siblings stay. The age of a value is monotonic time since its receipt, so a node with a
//! wrong clock is served as well, and steps of our own wall clock change nothing.
//!
//! **Authority.** A kubelet can report pods that the API has bound to its node, and no others.
//! Samples of a pod that the API has not reported yet are held, in bounded number and for a bounded
//! time, and are not published before. Only running pods are published, as in metrics-server. A
//! scrape counts for the Node object with its UID alone: one of a machine that is gone never counts
//! for its successor of the same name.
//!
//! **Readiness.** A new store is ready once nearly all nodes have usage or have failed, and at the
//! latest after half a minute. Sums are kept for it, so that a check looks at no node.
//!
//! **Locks.** Each node has its own. A node is published under its lock, so that an earlier state
//! never overtakes a later one; two nodes never wait for each other.
//!
//! # Limits
//!
//! - A clock that is set back by less than the time between two samples makes one window too short,
//!   and its rate too high.
//! - The API identifies pods by UID, but a kubelet reports only namespace and name: as long as a
//!   kubelet still reports the containers of a pod that was deleted and recreated on the same node,
//!   they count as those of the new pod, until the start times of its own containers show.

mod absence;
mod config;
mod directory;
mod evaluation;
mod metrics;
mod node;
mod publisher;
mod readiness;
mod series;
mod store;

pub use absence::{Absence, NodeFailure};
pub use config::{ExtraResources, UsageConfig};
pub use metrics::UsageMetrics;
pub use publisher::{ContainerUsage, NodeUsage, PodUsage, UsagePublisher};
pub use readiness::{Counts, Phase, Readiness, Reason};
pub use store::{Ingested, UsageStore};

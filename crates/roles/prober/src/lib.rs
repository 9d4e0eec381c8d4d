//! The loop of `kubevitals prober`: what watches and probes observe, to every provider.
//!
//! ```text
//! watches: nodes, DaemonSets, Deployments ──┐                    ┌─► prometheus: /metrics
//!          or one node and its pods         ├─► tick ─► recorders┼─► points: gcm, otlp, jsonl
//! probes ──► ProbeBoard ────────────────────┘                    └─► a provider of your own
//! ```
//!
//! A [`Provider`] is a backend. It gives a recorder for each kind of observation, and any number of
//! them work at once ([`Providers`]). A tick records the present state at a fixed interval, the
//! first at once. Of several replicas of cluster mode the leader records.
//!
//! `examples/own_provider.rs` shows a provider that is none of ours.

mod cluster_mode;
mod fan_out;
mod leadership;
mod liveness;
mod mesh;
mod metrics;
mod node_mode;
mod points;
mod probe_board;
mod prometheus;
mod provider;
mod run;
mod ticker;

pub use cluster_mode::{ClusterSettings, ClusterWatches};
pub use fan_out::Providers;
pub use leadership::LeaseClient;
pub use liveness::Heartbeat;
pub use mesh::{MeshCoordinator, MeshPeer, MeshPinger, MeshRing, MeshSettings};
pub use node_mode::{NodeSettings, NodeWatches};
pub use points::{Naming, PointQueue, PointsProvider};
pub use probe_board::ProbeBoard;
pub use prometheus::PrometheusProvider;
pub use provider::{ClusterRecorder, NodeRecorder, ProbeRecorder, ProbeTarget, Provider};
pub use run::{Deps, Mode, Registered, run};

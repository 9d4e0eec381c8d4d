//! A provider of the kubelet's endpoints that reads this Linux node directly, beside or without a
//! kubelet.
//!
//! ```text
//! Reflector<NodePod> ──► HostPods ──┬──► /pods, /containerLogs
//!                                   └──► PodTable ──► HostReader ──► Sampler ──► HostStats ──► /stats, /metrics
//! ```
//!
//! With an API server names come from a watch of the pods of this node ([`HostPods`]). Without one
//! they come from `/var/log` alone, and `/pods` is not served.

mod logs;
mod pods;
mod provider;

pub use logs::HostLogs;
pub use pods::{HostPods, NodePod, pod_watch};
pub use provider::{RunningPods, SampledStats, host_provider};

//! A pod runtime that runs containers as plain processes of this host.
//!
//! **It is no isolation boundary.** A container sees the files, the processes and the network of
//! the host. Cgroups limit what it uses, and a user can be set. It is for edge boxes, for tests,
//! and for programs that are trusted like any other service of the host.
//!
//! [`ProcessRuntime`] is the [`PodRuntime`](kubevitals_virtual_node::PodRuntime) of a virtual node,
//! and the provider of its logs, exec, attach, port-forward and statistics. Each container has a
//! small parent process, the [`shim`], which outlives the node: a restart of the node ends no
//! container.

mod admission;
mod backoff;
pub mod cgroup;
mod command;
mod config;
mod context;
mod downward;
mod environment;
mod error;
mod expand;
mod hooks;
mod http_client;
mod instance;
mod launch;
mod link;
mod messages;
mod metrics;
mod probe;
mod provider;
mod resources;
mod runtime;
pub mod shim;
mod state;
mod status;
mod volumes;
mod worker;

pub use crate::config::{CrashBackoffConfig, ProcessConfig};
pub use crate::error::ProcessError;
pub use crate::metrics::ProcessMetrics;
pub use crate::resources::{Limits, QosClass};
pub use crate::runtime::ProcessRuntime;

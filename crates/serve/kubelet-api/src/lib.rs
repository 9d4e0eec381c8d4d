//! The kubelet's endpoints over a provider: `/pods`, `/metrics/resource`, `/stats/summary`, logs,
//! exec, attach and port-forward. A virtual kubelet is this and a [`Provider`].
//!
//! ```text
//! kubevitals-http ─► TLS, HTTP/1.1 and 2 ─► authentication ─► authorization ─► Route ─► Provider
//!                                              the API kit's, on nodes/SUBRESOURCE
//! ```
//!
//! * A [`Provider`] is a set of capabilities, each optional. The endpoint of a missing one responds
//!   with 501, as those of Virtual Kubelet do. A [`ProviderError`] becomes a status code.
//! * [`KubeletConfig`] is the whole configuration; [`KubeletServer::bind`] validates it and
//!   listens; [`KubeletServer::serve`] serves, refreshes certificates, and drains.
//! * [`AccessControl`] denies by default. Permissions are those of the kubelet, on subresources of
//!   the Node; a session needs `create` whatever its method.
//! * [`resource_metrics`], [`summary`] and [`cadvisor`] encode statistics in the bytes of the
//!   kubelet, without a server too.
//!
//! # Differences from the kubelet
//!
//! * Sessions over `GET` need `create` on `nodes/proxy`; `get` is enough in the kubelet.
//! * Totals of pressure in `/stats/summary` are nanoseconds, as documented
//!   ([`KubeletConfig::pressure_in_micros`]).
//! * Names in paths that no object can have are not found, before any provider sees them.
//! * Metrics are text; a client that asks for protobuf gets text too.
//! * `/logs/`, `/checkpoint/`, `/debug/`, `/statusz`, `/flagz` are not served.

mod access;
pub mod cadvisor;
mod compress;
mod config;
mod error;
mod handler;
mod metrics;
pub mod options;
pub mod provider;
pub mod resource_metrics;
mod response;
pub mod route;
mod server;
pub mod streaming;
pub mod summary;

pub use access::AccessControl;
pub use config::{KubeletConfig, KubeletTelemetry, Limits, TransportConfig};
pub use error::{KubeletError, ProviderError};
pub use metrics::KubeletMetrics;
pub use provider::Provider;
pub use server::KubeletServer;

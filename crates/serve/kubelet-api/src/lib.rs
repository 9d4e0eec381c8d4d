//! The kubelet's endpoints over a provider: `/pods`, `/metrics/resource`, `/stats/summary`, logs,
//! exec, attach and port-forward.
//!
//! A [`Provider`] is a set of capabilities, each optional. The endpoint of a missing one responds
//! with 501, as those of Virtual Kubelet do.

mod error;
pub mod provider;
pub mod streaming;

pub use error::ProviderError;
pub use provider::Provider;

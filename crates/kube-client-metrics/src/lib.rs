//! What client-go tells about its requests, for every program that is built on kube.
//!
//! - [`hooks`]: small traits that are told what happens; [`Hooks`] is one of each.
//! - [`Call`]: what they are told about a request: nothing in it names an object, a namespace or a raw path.
//! - [`queue`]: work queues of kube-runtime's controllers (feature `runtime`).
//! - [`reflector`]: lists and watches.
//! - [`lease`]: leader election.
//! - [`credentials`]: exec plugins and client certificates.
//! - `connect`: names and connections (feature `connect`).

mod body;
mod call;
mod classifier;
mod client;
#[cfg(feature = "connect")]
pub mod connect;
pub mod credentials;
mod endpoint;
mod error;
pub mod hooks;
mod layer;
pub mod lease;
#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(feature = "runtime")]
pub mod queue;
mod recording;
pub mod reflector;
mod request_info;

pub use body::MeasuredBody;
pub use call::{Call, Code, HttpMethod, Verb};
pub use classifier::Classifier;
pub use client::{builder, client};
pub use endpoint::Endpoint;
pub use error::Error;
pub use hooks::{Hooks, global, register};
pub use layer::{
    Measured, MeasuredFuture, MeasuredRetry, MetricsLayer, RetryFuture, RetryMetricsLayer,
};
#[cfg(feature = "prometheus")]
pub use prometheus::Registry;

//! What client-go tells about its requests, for every program that is built on kube.
//!
//! ```no_run
//! # #[cfg(feature = "prometheus")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = kube_client_metrics::Registry::new();
//! let client = kube_client_metrics::client(kube::Config::infer().await?, &registry)?;
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!  Client ──► MetricsLayer ── Recording: call ─► attempt ─► attempt ─► head ─► body … end ──► kube's stack ──► server
//!                  │              │
//!             Classifier      Hooks ──► Registry (Prometheus), OpenTelemetry, closures
//! ```
//!
//! - [`client()`] and [`builder`] make a client that is measured; [`MetricsLayer`] is for who
//!   builds the stack by hand.
//! - [`hooks`]: small traits that are told what happens; [`Hooks`] is one of each,
//!   [registered](register) once for the process or given to a client.
//! - [`Call`]: what they are told about a request. Nothing in it names an object, a namespace or a
//!   raw path; [`Classifier`] makes it, by the API server's rules.
//! - `prometheus`, `opentelemetry`: the adapters (features of the same name).
//! - `queue`: work queues of kube-runtime's controllers (feature `runtime`).
//! - [`reflector`]: lists and watches. [`lease`]: leader election. [`credentials`]: exec plugins
//!   and client certificates.
//! - `connect`: names and connections (feature `connect`).
//!
//! # client-go's hooks and ours
//!
//! | client-go | here | who calls it |
//! |---|---|---|
//! | `metrics.RequestLatency` | [`RequestLatency`](hooks::RequestLatency) | the layer, once per request that is no stream |
//! | `metrics.RequestResult` | [`RequestResult`](hooks::RequestResult) | the layer, per attempt |
//! | `metrics.RequestRetry` | [`RequestRetry`](hooks::RequestRetry) | the layer, per attempt but the first |
//! | `metrics.RequestSize` | [`RequestSize`](hooks::RequestSize) | the layer, per attempt whose size is known |
//! | `metrics.ResponseSize` | [`ResponseSize`](hooks::ResponseSize) | the layer, per body that was read to its end |
//! | `metrics.RateLimiterLatency` | [`RateLimiterLatency`](hooks::RateLimiterLatency) | a limiter of yours: kube has none |
//! | `metrics.ResolverLatency` | [`ResolverLatency`](hooks::ResolverLatency) | `connect::Resolver` |
//! | `metrics.ExecPluginCalls` | [`ExecPluginCalls`](hooks::ExecPluginCalls) | [`client()`], and who asks [`credentials::call_of`] |
//! | `metrics.ExecPluginPolicyCalls` | [`ExecPluginPolicyCalls`](hooks::ExecPluginPolicyCalls) | a policy of yours: kube has none |
//! | `metrics.ClientCertExpiry` | [`ClientCertExpiry`](hooks::ClientCertExpiry) | [`client()`], [`credentials::Certificates`] |
//! | `metrics.ClientCertRotationAge` | [`ClientCertRotationAge`](hooks::ClientCertRotationAge) | [`credentials::Certificate`] |
//! | `metrics.TransportCacheEntries` | [`TransportCacheEntries`](hooks::TransportCacheEntries) | who keeps clients for reuse |
//! | `metrics.TransportCreateCalls` | [`TransportCreateCalls`](hooks::TransportCreateCalls) | who keeps clients for reuse |
//! | `metrics.TransportCAReloads` | [`TransportCaReloads`](hooks::TransportCaReloads) | who reloads bundles |
//! | `metrics.TransportCertRotationGCCalls` | [`TransportCertRotationGcCalls`](hooks::TransportCertRotationGcCalls) | who keeps clients for reuse |
//! | `metrics.TransportCacheGCCalls` | [`TransportCacheGcCalls`](hooks::TransportCacheGcCalls) | who keeps clients for reuse |
//! | `cache.MetricsProvider` | [`ReflectorProvider`](hooks::ReflectorProvider) | [`reflector::Reflector`] |
//! | `cache.InformerMetricsProvider` | – | nobody: kube-runtime has no queue of deltas between a watch and its store |
//! | `workqueue.MetricsProvider` | [`WorkqueueProvider`](hooks::WorkqueueProvider) | `queue::Controller`, `queue::Workqueue` |
//! | `leaderelection.LeaderMetric` | [`LeaderElection`](hooks::LeaderElection) | [`lease::Standing`], `lease::Elector` |
//! | – | [`RequestEnd`](hooks::RequestEnd) | the layer, once per request, with its outcome |
//! | – | [`Streams`](hooks::Streams) | the layer, for watches, followed logs and upgrades |
//! | – | [`ConnectLatency`](hooks::ConnectLatency) | `connect::Connector` |
//!
//! # Limits
//!
//! - A client that [`client()`] makes times neither names nor connections: kube makes its connector
//!   inside.
//! - Events are counted by lines, so a watch in another form than JSON has bytes but no true number
//!   of events.
//! - An upgraded connection leaves the client's sight; that it was opened is counted, that it ended
//!   is not.
//! - Versions are read as `v1`, `v1beta1`: custom resources with other versions are `other`.
//! - A layer inside of kube's `base_uri_layer` sees the path of the server's own URL too and takes
//!   it for no resource.

#![warn(missing_docs)]

mod body;
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
mod bounds;
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
mod leader;
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod recording;
pub mod reflector;
mod request_info;

#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::OpenTelemetry;
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
pub use leader::LeaderStatus;
#[cfg(feature = "prometheus")]
pub use prometheus::Registry;

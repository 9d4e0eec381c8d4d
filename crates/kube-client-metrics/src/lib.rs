//! client-go's metrics for programs built on kube.
//!
//! ```no_run
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
//! - [`client()`] and [`builder`] create an instrumented client; [`instrument`] takes the stack of
//!   the program; [`MetricsLayer`] is for stacks that are built by hand.
//! - [`hooks`]: small traits that receive measurements; [`Hooks`] holds one of each,
//!   [registered](register) once for the process or passed to a client.
//! - [`Call`]: the description of a request that hooks receive, without the names of objects or
//!   namespaces and without raw paths. [`Classifier`] creates it by the API server's rules.
//! - `prometheus`, `opentelemetry`: the adapters (features of the same name).
//! - [`reflector`]: lists and watches. [`LeaderStatus`]: leader election. [`credentials`]: exec
//!   plugins and client certificates.
//! - `connect`: name resolution and connections (feature `connect`).
//!
//! The crates `kube-workqueue` and `kube-lease` report the work queues of controllers and leader
//! election through the hooks of this one.
//!
//! # client-go's hooks
//!
//! | client-go | here | called by |
//! |---|---|---|
//! | `metrics.RequestLatency` | [`RequestLatency`](hooks::RequestLatency) | the layer, once per request that is not a stream |
//! | `metrics.RequestResult` | [`RequestResult`](hooks::RequestResult) | the layer, per attempt |
//! | `metrics.RequestRetry` | [`RequestRetry`](hooks::RequestRetry) | the layer, per attempt but the first |
//! | `metrics.RequestSize` | [`RequestSize`](hooks::RequestSize) | the layer, per attempt with a known size |
//! | `metrics.ResponseSize` | [`ResponseSize`](hooks::ResponseSize) | the layer, per body that was read to its end |
//! | `metrics.RateLimiterLatency` | [`RateLimiterLatency`](hooks::RateLimiterLatency) | the program: kube has no rate limiter |
//! | `metrics.ResolverLatency` | [`ResolverLatency`](hooks::ResolverLatency) | `connect::Resolver` |
//! | `metrics.ExecPluginCalls` | [`ExecPluginCalls`](hooks::ExecPluginCalls) | [`client()`], and programs that use [`credentials::call_of`] |
//! | `metrics.ExecPluginPolicyCalls` | [`ExecPluginPolicyCalls`](hooks::ExecPluginPolicyCalls) | the program: kube has no plugin policy |
//! | `metrics.ClientCertExpiry` | [`ClientCertExpiry`](hooks::ClientCertExpiry) | [`client()`], [`credentials::Certificates`] |
//! | `metrics.ClientCertRotationAge` | [`ClientCertRotationAge`](hooks::ClientCertRotationAge) | [`credentials::Certificate`] |
//! | `metrics.TransportCacheEntries` | [`TransportCacheEntries`](hooks::TransportCacheEntries) | programs that cache clients |
//! | `metrics.TransportCreateCalls` | [`TransportCreateCalls`](hooks::TransportCreateCalls) | programs that cache clients |
//! | `metrics.TransportCAReloads` | [`TransportCaReloads`](hooks::TransportCaReloads) | programs that reload CA bundles |
//! | `metrics.TransportCertRotationGCCalls` | [`TransportCertRotationGcCalls`](hooks::TransportCertRotationGcCalls) | programs that cache clients |
//! | `metrics.TransportCacheGCCalls` | [`TransportCacheGcCalls`](hooks::TransportCacheGcCalls) | programs that cache clients |
//! | `cache.MetricsProvider` | [`ReflectorProvider`](hooks::ReflectorProvider) | [`reflector::Reflector`] |
//! | `cache.InformerMetricsProvider` | – | kube-runtime has no delta queue between a watch and its store |
//! | `workqueue.MetricsProvider` | [`WorkqueueProvider`](hooks::WorkqueueProvider) | the crate `kube-workqueue` |
//! | `leaderelection.LeaderMetric` | [`LeaderElection`](hooks::LeaderElection) | [`LeaderStatus`], the crate `kube-lease` |
//! | – | [`RequestEnd`](hooks::RequestEnd) | the layer, once per request, with its outcome |
//! | – | [`Streams`](hooks::Streams) | the layer, for watches, followed logs and upgrades |
//! | – | [`ConnectLatency`](hooks::ConnectLatency) | `connect::Connector` |
//!
//! # Limits
//!
//! - A client of [`client()`] does not time name resolution and connections: kube creates its
//!   connector internally.
//! - Events are counted by lines, so a watch in another encoding than JSON has bytes but no
//!   accurate number of events.
//! - The opening of an upgraded connection is counted, its end is not: it leaves the client.
//! - Versions have the form `v1` or `v1beta1`: custom resources with other versions are `other`.
//! - A layer inside kube's `base_uri_layer` also sees the path of the server's URL, which does not
//!   parse as a resource.

#![warn(missing_docs)]

mod body;
mod bounds;
mod call;
mod classifier;
mod client;
#[cfg(feature = "connect")]
pub mod connect;
pub mod controller;
pub mod credentials;
mod endpoint;
mod error;
#[cfg(feature = "metrics")]
pub mod facade;
pub mod hooks;
mod layer;
mod leader;
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
mod rate_limit;
mod recording;
pub mod reflector;
pub mod registry;
mod request_info;

#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::OpenTelemetry;
pub use body::MeasuredBody;
pub use call::{Call, Code, HttpMethod, Verb};
pub use classifier::Classifier;
pub use client::{ClientOptions, client};
pub use endpoint::Endpoint;
pub use error::Error;
#[cfg(feature = "metrics")]
pub use facade::Facade;
pub use hooks::{Hooks, global, register};
pub use layer::{
    Measured, MeasuredFuture, MeasuredRetry, MetricsLayer, RetryFuture, RetryMetricsLayer,
};
pub use leader::LeaderStatus;
pub use rate_limit::{RateLimitLayer, RateLimited, RateLimitedFuture, RateLimiter};
pub use registry::{Format, Registry};

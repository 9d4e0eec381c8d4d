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
//!             Classifier      Hooks ──► Registry (Prometheus), Facade, OpenTelemetry, closures
//! ```
//!
//! - [`client()`] and [`ClientOptions`] create an instrumented client; [`MetricsLayer`] is for
//!   stacks that are built by hand.
//! - [`hooks`]: small traits that receive measurements; [`Hooks`] holds them,
//!   [registered](register) once for the process or passed to a client.
//! - [`Call`]: the description of a request that hooks receive, without the names of objects or
//!   namespaces and without raw paths. [`Classifier`] creates it by the API server's rules.
//! - [`registry`]: the Prometheus adapter. `facade`, `opentelemetry`: other adapters (features
//!   `metrics` and `opentelemetry`).
//! - [`RateLimiter`]: client-go's token bucket.
//! - [`controller`]: reconciliations. [`reflector`]: lists, watches and stores. [`LeaderStatus`]:
//!   leader election. [`credentials`]: exec plugins and client certificates.
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
//! | `metrics.RateLimiterLatency` | [`RateLimiterLatency`](hooks::RateLimiterLatency) | [`RateLimitLayer`], per attempt that is not a watch |
//! | `metrics.ResolverLatency` | [`ResolverLatency`](hooks::ResolverLatency) | `connect::Resolver` |
//! | `metrics.ExecPluginCalls` | [`ExecPluginCalls`](hooks::ExecPluginCalls) | [`client()`], and programs that use [`credentials::call_of`] |
//! | `metrics.ClientCertExpiry` | [`ClientCertExpiry`](hooks::ClientCertExpiry) | [`client()`], [`credentials::Certificates`] |
//! | `metrics.ClientCertRotationAge` | [`ClientCertRotationAge`](hooks::ClientCertRotationAge) | [`credentials::Certificate`] |
//! | `metrics.TransportCAReloads` | [`TransportCaReloads`](hooks::TransportCaReloads) | programs that reload CA bundles |
//! | `cache.MetricsProvider` | [`ReflectorProvider`](hooks::ReflectorProvider) | [`reflector::Reflector`] |
//! | `cache.InformerMetricsProvider` | [`InformerProvider`](hooks::InformerProvider) | `reflector::Informer` |
//! | `workqueue.MetricsProvider` | [`WorkqueueProvider`](hooks::WorkqueueProvider) | the crate `kube-workqueue` |
//! | `leaderelection.LeaderMetric` | [`LeaderElection`](hooks::LeaderElection) | [`LeaderStatus`], the crate `kube-lease` |
//! | the context of a call | [`RequestContext`](hooks::RequestContext) | the layer, when a request starts |
//! | controller-runtime | [`ControllerProvider`](hooks::ControllerProvider) | [`controller::ControllerObserver`] |
//! | – | [`AttemptEnd`](hooks::AttemptEnd) | the layer, per attempt |
//! | – | [`RequestEnd`](hooks::RequestEnd) | the layer, once per request, with its outcome |
//! | – | [`Streams`](hooks::Streams) | the layer, for watches, followed logs and upgrades |
//! | – | [`ConnectLatency`](hooks::ConnectLatency) | `connect::Connector` |
//!
//! kube has no transport cache and no policy of exec plugins, so there are no hooks for them.
//!
//! # Limits
//!
//! - A client of [`client()`] does not time name resolution and connections: kube creates its
//!   connector internally. `ClientOptions::with_timed_connections` (feature `rustls-tls`) does.
//! - Events are counted by lines, so a watch in another encoding than JSON has bytes but no
//!   accurate number of events.
//! - The opening of an upgraded connection is counted, its end is not: it leaves the client.
//! - Versions have the form `v1` or `v1beta1`: custom resources with other versions are `other`.
//! - A layer inside kube's `base_uri_layer` also sees the path of the server's URL, which does not
//!   parse as a resource.

#![cfg_attr(docsrs, feature(doc_cfg))]
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

/// The README's programs are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

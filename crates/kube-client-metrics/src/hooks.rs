//! The hooks: small traits that receive measurements, and the bundle that a client takes.
//!
//! Each hook of [`Hooks::default`] does nothing. A bundle is passed to a client, or
//! [registered](register) once for the process. A closure implements any hook with one method:
//!
//! ```
//! use std::time::Duration;
//! use kube_client_metrics::{Call, Hooks};
//!
//! let hooks = Hooks::default().with_request_latency(|call: &Call, latency: Duration| {
//!     println!("{} {} took {latency:?}", call.verb, call.endpoint.template());
//! });
//! ```
//!
//! Hooks are called while a request is processed: they must be fast and must not block.

mod bundle;
mod plugin;
mod request;
mod runtime;
mod transport;

pub use bundle::{Hooks, global, register};
pub use plugin::{
    ClientCertExpiry, ClientCertRotationAge, ExecCallStatus, ExecPluginCalls,
    ExecPluginPolicyCalls, PolicyVerdict,
};
pub use request::{
    Outcome, RateLimiterLatency, RequestEnd, RequestLatency, RequestReport, RequestResult,
    RequestRetry, RequestSize, ResponseSize, StreamEnd, StreamKind, StreamReport, Streams,
};
pub use runtime::{
    LeaderElection, ReflectorMetrics, ReflectorProvider, WorkqueueMetrics, WorkqueueProvider,
};
pub use transport::{
    CaReload, ConnectLatency, ConnectOutcome, ResolverLatency, TransportCaReloads,
    TransportCacheEntries, TransportCacheGc, TransportCacheGcCalls, TransportCertRotationGcCalls,
    TransportCreate, TransportCreateCalls,
};

/// Declares a hook with one method, and implements it for closures and [`bundle::Noop`].
macro_rules! hook {
    ($(#[$doc:meta])* $name:ident :: $method:ident ( $($argument:ident : $type:ty),* )) => {
        $(#[$doc])*
        pub trait $name: Send + Sync + 'static {
            /// Called for each of them.
            fn $method(&self, $($argument: $type),*);
        }

        impl<F: Fn($($type),*) + Send + Sync + 'static> $name for F {
            fn $method(&self, $($argument: $type),*) {
                self($($argument),*);
            }
        }

        impl $name for $crate::hooks::bundle::Noop {
            fn $method(&self, $(_: $type),*) {}
        }
    };
}
pub(crate) use hook;

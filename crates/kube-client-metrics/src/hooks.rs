//! The hooks: small traits that are told what happens, and the bundle in which they reach a client.
//!
//! Nothing is measured for nobody: each hook of [`Hooks::default`] does nothing. A bundle is given
//! to a client, or [registered](register) once for the process. A closure is a hook wherever a hook
//! has one method:
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
//! Hooks are called on the path of a request: they must be quick and must not block.

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

/// Lets a closure stand for a hook that has one method, and makes a hook that does nothing.
macro_rules! hook {
    ($(#[$doc:meta])* $name:ident :: $method:ident ( $($argument:ident : $type:ty),* )) => {
        $(#[$doc])*
        pub trait $name: Send + Sync + 'static {
            /// Told each time.
            fn $method(&self, $($argument: $type),*);
        }

        impl<F: Fn($($type),*) + Send + Sync + 'static> $name for F {
            fn $method(&self, $($argument: $type),*) {
                self($($argument),*);
            }
        }

        impl $name for $crate::hooks::bundle::Nobody {
            fn $method(&self, $(_: $type),*) {}
        }
    };
}
pub(crate) use hook;

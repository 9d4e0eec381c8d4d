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
//! Hooks add up: `with_…` keeps those that are already there, and [`Hooks::and`] combines bundles.
//! What a hook needs to know of the request beyond its [`Call`](crate::Call) is captured when the
//! request starts, see [`RequestContext`].
//!
//! Hooks are called while a request is processed: they must be fast and must not block.

mod bundle;
mod context;
mod global;
mod plugin;
mod request;
mod runtime;
mod several;
mod transport;

pub use bundle::Hooks;
pub use context::{Context, RequestContext, RequestHead};
pub use global::{global, register};
pub use plugin::{ClientCertExpiry, ClientCertRotationAge, ExecCallStatus, ExecPluginCalls};
pub use request::{
    AttemptEnd, AttemptReport, Outcome, RateLimiterLatency, RequestEnd, RequestLatency,
    RequestReport, RequestResult, RequestRetry, RequestSize, ResponseSize, StreamEnd, StreamKind,
    StreamReport, Streams,
};
pub use runtime::{
    ControllerMetrics, ControllerProvider, InformerId, InformerMetrics, InformerProvider,
    LeaderElection, ReconcileResult, ReflectorMetrics, ReflectorProvider, WorkqueueMetrics,
    WorkqueueProvider,
};
pub use transport::{
    CaReload, ConnectLatency, ConnectOutcome, ResolverLatency, TransportCaReloads,
};

/// Declares a hook with one method, the field of [`Hooks`] that holds it, and its implementations:
/// for closures, for nobody, for two at once, and for the hook that the process has registered.
macro_rules! hook {
    ($(#[$doc:meta])* $field:ident: $name:ident :: $method:ident ( $($argument:ident : $type:ty),* )) => {
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

        impl $name for $crate::hooks::several::Both<dyn $name> {
            fn $method(&self, $($argument: $type),*) {
                self.first.$method($($argument),*);
                self.second.$method($($argument),*);
            }
        }

        impl $name for $crate::hooks::global::Registered {
            fn $method(&self, $($argument: $type),*) {
                if let Some(hooks) = $crate::hooks::global::registered() {
                    hooks.$field.$method($($argument),*);
                }
            }
        }
    };
}
pub(crate) use hook;

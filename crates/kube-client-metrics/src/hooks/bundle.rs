//! A set of hooks, and the set of the process.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::{
    ClientCertExpiry, ClientCertRotationAge, ConnectLatency, ExecPluginCalls,
    ExecPluginPolicyCalls, LeaderElection, RateLimiterLatency, ReflectorProvider, RequestEnd,
    RequestLatency, RequestResult, RequestRetry, RequestSize, ResolverLatency, ResponseSize,
    Streams, TransportCaReloads, TransportCacheEntries, TransportCacheGcCalls,
    TransportCertRotationGcCalls, TransportCreateCalls, WorkqueueProvider,
};
use crate::Error;

/// Implements every hook and does nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noop;

/// Declares the bundle: a field, a default that does nothing and a setter for each hook.
macro_rules! bundle {
    ($($field:ident, $with:ident: $hook:ident;)*) => {
        /// One hook of each kind. Clones share them.
        #[derive(Clone)]
        #[non_exhaustive]
        pub struct Hooks {
            $(
                #[doc = concat!("See [`", stringify!($hook), "`].")]
                pub $field: Arc<dyn $hook>,
            )*
        }

        impl Default for Hooks {
            /// Hooks that do nothing.
            fn default() -> Self {
                Self { $($field: Arc::new(Noop),)* }
            }
        }

        impl Hooks {
            /// One adapter as every hook. Clones of it must share their state.
            pub fn all<A>(adapter: &A) -> Self
            where
                A: Clone $(+ $hook)*,
            {
                Self { $($field: Arc::new(adapter.clone()),)* }
            }

            $(
                #[doc = concat!("Replaces the [`", stringify!($hook), "`].")]
                #[must_use]
                pub fn $with(mut self, hook: impl $hook) -> Self {
                    self.$field = Arc::new(hook);
                    self
                }
            )*
        }
    };
}

bundle! {
    request_latency, with_request_latency: RequestLatency;
    rate_limiter_latency, with_rate_limiter_latency: RateLimiterLatency;
    request_size, with_request_size: RequestSize;
    response_size, with_response_size: ResponseSize;
    request_result, with_request_result: RequestResult;
    request_retry, with_request_retry: RequestRetry;
    request_end, with_request_end: RequestEnd;
    streams, with_streams: Streams;
    resolver_latency, with_resolver_latency: ResolverLatency;
    connect_latency, with_connect_latency: ConnectLatency;
    transport_cache_entries, with_transport_cache_entries: TransportCacheEntries;
    transport_create_calls, with_transport_create_calls: TransportCreateCalls;
    transport_ca_reloads, with_transport_ca_reloads: TransportCaReloads;
    transport_cert_rotation_gc_calls, with_transport_cert_rotation_gc_calls: TransportCertRotationGcCalls;
    transport_cache_gc_calls, with_transport_cache_gc_calls: TransportCacheGcCalls;
    exec_plugin_calls, with_exec_plugin_calls: ExecPluginCalls;
    exec_plugin_policy_calls, with_exec_plugin_policy_calls: ExecPluginPolicyCalls;
    client_cert_expiry, with_client_cert_expiry: ClientCertExpiry;
    client_cert_rotation_age, with_client_cert_rotation_age: ClientCertRotationAge;
    reflectors, with_reflectors: ReflectorProvider;
    workqueues, with_workqueues: WorkqueueProvider;
    leader_election, with_leader_election: LeaderElection;
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

static REGISTERED: OnceLock<Hooks> = OnceLock::new();

/// Sets the hooks of the process, which [`global`] returns.
///
/// A second call fails. client-go ignores it, and the second set of hooks is silently never called.
pub fn register(hooks: Hooks) -> Result<(), Error> {
    REGISTERED.set(hooks).map_err(|_| Error::AlreadyRegistered)
}

/// Returns the hooks of the process: those that were [registered](register), or hooks that do
/// nothing until then.
pub fn global() -> Hooks {
    REGISTERED.get().cloned().unwrap_or_default()
}

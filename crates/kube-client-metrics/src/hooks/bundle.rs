//! A set of hooks.

use std::fmt;
use std::sync::Arc;

use super::global::{Registered, registered};
use super::several::Both;
use super::{
    AttemptEnd, ClientCertExpiry, ClientCertRotationAge, ConnectLatency, ControllerProvider,
    ExecPluginCalls, InformerProvider, LeaderElection, RateLimiterLatency, ReflectorProvider,
    RequestContext, RequestEnd, RequestLatency, RequestResult, RequestRetry, RequestSize,
    ResolverLatency, ResponseSize, Streams, TransportCaReloads, WorkqueueProvider,
};

/// Implements every hook and does nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noop;

/// Whether anybody listens, so that a request which nobody measures costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listeners {
    None,
    /// The hooks of the process, once they are registered.
    Registered,
    Some,
}

/// Declares the bundle: a field, a default that does nothing and an adder for each hook.
macro_rules! bundle {
    ($($field:ident, $with:ident: $hook:ident;)*) => {
        /// The hooks that a client, a queue or an elector reports to. Clones share them.
        #[derive(Clone)]
        #[non_exhaustive]
        pub struct Hooks {
            $(
                #[doc = concat!("See [`", stringify!($hook), "`].")]
                pub $field: Arc<dyn $hook>,
            )*
            /// See [`RequestContext`].
            pub request_context: Arc<dyn RequestContext>,
            listeners: Listeners,
            /// Whether the hooks of the process are among them.
            calls_process: bool,
        }

        impl Hooks {
            /// One adapter as every hook. Clones of it must share their state.
            pub fn all<A>(adapter: &A) -> Self
            where
                A: Clone $(+ $hook)*,
            {
                Self {
                    $($field: Arc::new(adapter.clone()),)*
                    request_context: Arc::new(Noop),
                    listeners: Listeners::Some,
                    calls_process: false,
                }
            }

            /// Returns hooks that call these and then `others`, for several adapters at once.
            ///
            /// ```
            /// use kube_client_metrics::{Hooks, Registry};
            ///
            /// let (mine, theirs) = (Registry::new(), Registry::new());
            /// let hooks = mine.hooks().and(&theirs).and(kube_client_metrics::global());
            /// ```
            #[must_use]
            pub fn and(self, others: impl Into<Self>) -> Self {
                let others = others.into();
                match (self.listeners, others.listeners) {
                    (Listeners::None, _) => return others,
                    (_, Listeners::None) => return self,
                    _ => {}
                }
                Self {
                    $($field: Arc::new(Both { first: self.$field, second: others.$field }),)*
                    request_context: Arc::new(Both {
                        first: self.request_context,
                        second: others.request_context,
                    }),
                    listeners: Listeners::Some,
                    calls_process: self.calls_process || others.calls_process,
                }
            }

            $(
                #[doc = concat!("Adds a [`", stringify!($hook), "`], which is called after those that are there.")]
                #[must_use]
                pub fn $with(mut self, hook: impl $hook) -> Self {
                    self.$field = match self.listeners {
                        Listeners::None => Arc::new(hook),
                        _ => Arc::new(Both { first: self.$field, second: Arc::new(hook) }),
                    };
                    self.listeners = Listeners::Some;
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
    attempt_end, with_attempt_end: AttemptEnd;
    request_end, with_request_end: RequestEnd;
    streams, with_streams: Streams;
    resolver_latency, with_resolver_latency: ResolverLatency;
    connect_latency, with_connect_latency: ConnectLatency;
    transport_ca_reloads, with_transport_ca_reloads: TransportCaReloads;
    exec_plugin_calls, with_exec_plugin_calls: ExecPluginCalls;
    client_cert_expiry, with_client_cert_expiry: ClientCertExpiry;
    client_cert_rotation_age, with_client_cert_rotation_age: ClientCertRotationAge;
    reflectors, with_reflectors: ReflectorProvider;
    informers, with_informers: InformerProvider;
    workqueues, with_workqueues: WorkqueueProvider;
    controllers, with_controllers: ControllerProvider;
    leader_election, with_leader_election: LeaderElection;
}

impl Hooks {
    /// Adds a [`RequestContext`], which is called after those that are there.
    ///
    /// ```
    /// use kube_client_metrics::hooks::{Context, RequestHead};
    /// use kube_client_metrics::{Call, Hooks};
    ///
    /// #[derive(Clone)]
    /// struct Tenant(String);
    ///
    /// let hooks = Hooks::default()
    ///     .with_request_context(|request: &RequestHead<'_>, context: &mut Context| {
    ///         if let Some(tenant) = request.extensions.get::<Tenant>() {
    ///             context.insert(tenant.clone());
    ///         }
    ///     })
    ///     .with_request_latency(|call: &Call, latency| {
    ///         if let Some(Tenant(name)) = call.context.get() {
    ///             println!("{latency:?} for {name}");
    ///         }
    ///     });
    /// ```
    #[must_use]
    pub fn with_request_context(mut self, hook: impl RequestContext) -> Self {
        self.request_context = Arc::new(Both {
            first: self.request_context,
            second: Arc::new(hook),
        });
        self.listeners = Listeners::Some;
        self
    }

    /// Returns whether all hooks do nothing at the moment.
    pub(crate) fn is_idle(&self) -> bool {
        match self.listeners {
            Listeners::None => true,
            Listeners::Registered => registered().is_none(),
            Listeners::Some => false,
        }
    }

    /// Returns whether these call the hooks of the process, which would then call themselves.
    pub(super) fn calls_process(&self) -> bool {
        self.calls_process
    }

    /// The hooks that are registered when they are called.
    pub(super) fn of_process() -> Self {
        Self {
            request_context: Arc::new(Registered),
            listeners: Listeners::Registered,
            calls_process: true,
            ..Self::all(&Registered)
        }
    }
}

impl Default for Hooks {
    /// Hooks that do nothing.
    fn default() -> Self {
        Self {
            listeners: Listeners::None,
            ..Self::all(&Noop)
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("listeners", &self.listeners)
            .finish_non_exhaustive()
    }
}

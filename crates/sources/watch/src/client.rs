//! The client of an API server, and what all its watches share.

use std::sync::Arc;
use std::time::Duration;

use kube_client_metrics::Hooks;
use kube_client_metrics::reflector::Reflector as ReflectorHooks;
use kubevitals_model::Interner;
use kubevitals_telemetry::OutageLog;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::event_watcher::EventWatcher;
use crate::kind::{Decoder, Kind};
use crate::reflector::Reflector;
use crate::spec::WatchSpec;
use crate::transport::Transport;

/// After this, streaming lists are tried again with a server that did not support them: it may have
/// been upgraded.
const STREAMING_LIST_RETRY_INTERVAL: Duration = Duration::from_mins(30);

/// Starts watches of one API server. Clones share the connection and the interner.
#[derive(Debug, Clone)]
pub struct WatchClient {
    inner: Arc<ClientInner>,
}

#[derive(Debug)]
pub(crate) struct ClientInner {
    transport: Box<dyn Transport>,
    interner: Interner,
    hooks: Hooks,
    streaming_lists_rejected: Mutex<Option<Instant>>,
    pub(crate) outage: OutageLog,
}

impl WatchClient {
    pub fn new(transport: impl Transport) -> Self {
        Self::measured(transport, Hooks::default(), OutageLog::default())
    }

    /// A client that reports its lists and watches to `hooks`, by the names of the watches, and
    /// outages to a log that other clients of the server share.
    pub fn measured(transport: impl Transport, hooks: Hooks, outage: OutageLog) -> Self {
        Self {
            inner: Arc::new(ClientInner {
                transport: Box::new(transport),
                interner: Interner::new(),
                hooks,
                streaming_lists_rejected: Mutex::new(None),
                outage,
            }),
        }
    }

    /// Starts a reflector on the current runtime. It runs until its last handle and subscription
    /// are dropped.
    pub fn reflector<K: Kind>(&self, spec: WatchSpec<K>) -> Reflector<K> {
        let decoder = self.decoder(&spec);
        Reflector::start(Arc::clone(&self.inner), spec, decoder)
    }

    /// Starts a watch without a cache, for objects that are too many to keep, such as events. It
    /// runs until it is dropped.
    pub fn event_watcher<K: Kind>(&self, spec: WatchSpec<K>) -> EventWatcher<K> {
        let decoder = self.decoder(&spec);
        EventWatcher::start(Arc::clone(&self.inner), spec, decoder)
    }

    fn decoder<K: Kind>(&self, spec: &WatchSpec<K>) -> Decoder {
        let annotations = spec.annotations.iter().map(String::as_str);
        Decoder::new(self.inner.interner.clone()).keep_annotations(annotations)
    }

    /// The interner that all watches of this client share.
    pub fn interner(&self) -> &Interner {
        &self.inner.interner
    }
}

impl ClientInner {
    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(crate) fn reflector_hooks(&self, name: &str) -> ReflectorHooks {
        ReflectorHooks::new(name, &self.hooks)
    }

    pub(crate) fn supports_streaming_lists(&self) -> bool {
        let rejected = self.streaming_lists_rejected.lock();
        rejected.is_none_or(|at| at.elapsed() >= STREAMING_LIST_RETRY_INTERVAL)
    }

    pub(crate) fn reject_streaming_lists(&self) {
        *self.streaming_lists_rejected.lock() = Some(Instant::now());
    }
}

//! A server, and what all streams from it share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube_client_metrics::Hooks;
use kube_client_metrics::reflector::Reflector;
use tokio::time::Instant;

use crate::kind::{Decoder, Kind};
use crate::spec::StreamSpec;
use crate::stream::Stream;
use crate::tail::Tail;
use crate::transport::Transport;
use kubevitals_model::Interner;

/// After this a server that did not do streaming lists is asked again: it may have been upgraded.
const ASK_AGAIN: Duration = Duration::from_mins(30);

/// An API server. Clones share what is known of it, and the strings of all its streams.
#[derive(Debug, Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    transport: Box<dyn Transport>,
    interner: Interner,
    hooks: Hooks,
    refused_streaming_lists: Mutex<Option<Instant>>,
}

impl Server {
    /// The server that a transport reaches.
    pub fn new(transport: impl Transport) -> Self {
        Self::measured(transport, Hooks::default())
    }

    /// The same, with the lists and watches of its streams told to `hooks`, by the names of the
    /// streams.
    pub fn measured(transport: impl Transport, hooks: Hooks) -> Self {
        Self {
            shared: Arc::new(Shared {
                transport: Box::new(transport),
                interner: Interner::new(),
                hooks,
                refused_streaming_lists: Mutex::new(None),
            }),
        }
    }

    /// Begins a stream on the current runtime. It runs until its last handle and subscription are
    /// dropped.
    pub fn watch<K: Kind>(&self, spec: StreamSpec<K>) -> Stream<K> {
        let decoder = self.decoder(&spec);
        Stream::start(Arc::clone(&self.shared), spec, decoder)
    }

    /// Begins a stream of which no view is kept: each object is handed over once, and forgotten.
    /// For what is too much to keep, such as events. It runs until the tail is dropped.
    pub fn tail<K: Kind>(&self, spec: StreamSpec<K>) -> Tail<K> {
        let decoder = self.decoder(&spec);
        Tail::start(Arc::clone(&self.shared), spec, decoder)
    }

    fn decoder<K: Kind>(&self, spec: &StreamSpec<K>) -> Decoder {
        let annotations = spec.annotations.iter().map(String::as_str);
        Decoder::new(self.shared.interner.clone()).keep_annotations(annotations)
    }

    /// The strings that all streams of this server share.
    pub fn interner(&self) -> &Interner {
        &self.shared.interner
    }
}

impl Shared {
    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(crate) fn reflector(&self, name: &str) -> Reflector {
        Reflector::new(name, &self.hooks)
    }

    pub(crate) fn streams_lists(&self) -> bool {
        let refused = self
            .refused_streaming_lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        refused.is_none_or(|at| at.elapsed() >= ASK_AGAIN)
    }

    pub(crate) fn refuse_streaming_lists(&self) {
        let now = Some(Instant::now());
        *self
            .refused_streaming_lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = now;
    }
}

//! A handle on a stream.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubevitals_telemetry::{Health, Probe, Status, TelemetryError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::hub::Hub;
use crate::hub::subscription::Subscription;
use crate::kind::{Decoder, Kind};
use crate::metrics::Observed;
use crate::server::Shared;
use crate::sink::Sink;
use crate::spec::StreamSpec;
use crate::state::{Record, StreamState};

/// One list+watch, and the view it keeps current. Clones share it.
///
/// Any number of subscribers are served from the one connection. The stream ends when its last
/// handle and its last subscription are dropped, or with [`Stream::shutdown`].
pub struct Stream<K: Kind> {
    name: &'static str,
    queue: usize,
    hub: Arc<Hub<K>>,
    running: Arc<Running>,
}

/// Ends the stream's task when dropped: the task waits for the sender to go.
#[derive(Debug)]
pub(crate) struct Running {
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl<K: Kind> Stream<K> {
    pub(crate) fn start(server: Arc<Shared>, spec: StreamSpec<K>, decoder: Decoder) -> Self {
        let (name, queue) = (spec.name, spec.options.queue);
        let hub = Arc::new(Hub::new(Record::new(
            Instant::now(),
            spec.options.healthy_after,
        )));
        let engine = Engine::new(Arc::clone(&hub), server, spec, decoder);
        let told = Arc::clone(&hub);
        let running = Running::begin(engine, move || told.close());
        Self {
            name,
            queue,
            hub,
            running: Arc::new(running),
        }
    }

    /// Its name in logs and metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Begins a subscription: it is told all objects first, as soon as they are known.
    pub fn subscribe(&self) -> Subscription<K> {
        self.subscribe_with(self.queue)
    }

    /// Begins a subscription that so many changes are kept for before it must resync.
    pub fn subscribe_with(&self, queue: usize) -> Subscription<K> {
        Subscription::new(Arc::clone(&self.hub), queue, Arc::clone(&self.running))
    }

    /// The object of a name, as last seen.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.hub.lock().view.get(namespace, name).map(Arc::clone)
    }

    /// All objects as last seen, in no order. Empty until the first list is complete.
    pub fn objects(&self) -> Vec<Arc<K>> {
        self.hub.lock().view.objects()
    }

    /// Waits until the first list is complete; false if the stream was shut down before that.
    pub async fn synced(&self) -> bool {
        self.running.synced(self.hub.watch_synced()).await
    }

    /// How it is.
    pub fn state(&self) -> StreamState {
        self.hub.state()
    }

    /// Adds a readiness check of the stream's name: not ready until the first list is complete, nor
    /// while a connection that was lost is not back within `patience`. The check does not keep the
    /// stream running; one that has ended fails it.
    pub fn add_readyz(&self, health: &Health, patience: Duration) -> Result<(), TelemetryError> {
        health.check(self.name, Probe::READINESS, self.checked(patience))
    }

    /// The check of [`Stream::add_readyz`], to register under another name.
    pub fn checked(&self, patience: Duration) -> impl Fn() -> Status + Send + Sync + use<K> {
        let state = self.observer();
        move || match state() {
            Some(state) => state.health(patience),
            None => Status::failing("stream has ended"),
        }
    }

    /// Looks at [`Stream::state`] from elsewhere, without keeping the stream running; `None` once
    /// it has ended.
    pub fn observer(&self) -> impl Fn() -> Option<StreamState> + Send + Sync + use<K> {
        let stream = Arc::downgrade(&self.hub);
        move || stream.upgrade().map(|stream| stream.state())
    }

    /// Ends the stream and waits until its task is gone. Subscriptions get what is queued for them,
    /// then the end.
    pub async fn shutdown(&self) {
        self.running.end().await;
    }

    pub(crate) fn observed(&self) -> Arc<dyn Observed> {
        Arc::clone(&self.hub) as Arc<dyn Observed>
    }
}

impl Running {
    /// Runs an engine until the last handle is gone or the end is asked for.
    pub(crate) fn begin<K: Kind, S: Sink<K>>(
        engine: Engine<K, S>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                // An error means that the last handle is gone.
                _ = stopped.wait_for(|stop| *stop) => {}
                never = engine.run() => match never {},
            }
            ended();
        });
        Self {
            stop,
            task: Mutex::new(Some(task)),
        }
    }

    /// Waits for the first list; false if the end comes first.
    pub(crate) async fn synced(&self, mut synced: watch::Receiver<bool>) -> bool {
        let mut stopped = self.stop.subscribe();
        tokio::select! {
            result = synced.wait_for(|synced| *synced) => result.is_ok(),
            _ = stopped.wait_for(|stop| *stop) => false,
        }
    }

    /// Ends the task and waits until it is gone.
    pub(crate) async fn end(&self) {
        self.stop.send_replace(true);
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(task) = task {
            // The task cannot panic and nobody aborts it; if the runtime ends first, that is as
            // good.
            let _ = task.await;
        }
    }
}

impl<K: Kind> Clone for Stream<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            queue: self.queue,
            hub: Arc::clone(&self.hub),
            running: Arc::clone(&self.running),
        }
    }
}

impl<K: Kind> fmt::Debug for Stream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Stream")
            .field("name", &self.name)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

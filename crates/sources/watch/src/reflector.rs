//! Handles of a reflector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_telemetry::Status;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::broadcaster::Broadcaster;
use crate::broadcaster::subscription::Subscription;
use crate::client::ClientInner;
use crate::engine::Engine;
use crate::kind::{Decoder, Kind};
use crate::metrics::Observed;
use crate::sink::Sink;
use crate::spec::WatchSpec;
use crate::state::{WatchState, WatchStats};

/// A list and watch that keeps a cache in sync. Clones share it.
///
/// Any number of subscribers are served from one connection. The reflector ends when its last
/// handle and its last subscription are dropped, or with [`Reflector::shutdown`].
pub struct Reflector<K: Kind> {
    name: &'static str,
    queue: usize,
    broadcaster: Arc<Broadcaster<K>>,
    task: Arc<WatchTask>,
}

/// The task of a watch. Dropping it ends the task, which waits for the sender to be dropped.
#[derive(Debug)]
pub(crate) struct WatchTask {
    stop: watch::Sender<bool>,
    handle: Mutex<Option<JoinHandle<()>>>,
    /// Closed when the task ends, however it ends.
    closed: watch::Receiver<()>,
}

/// Calls a function when it is dropped: at the end of a task, also by a panic.
struct OnDrop<F: FnMut()>(F);

impl<K: Kind> Reflector<K> {
    pub(crate) fn start(client: Arc<ClientInner>, spec: WatchSpec<K>, decoder: Decoder) -> Self {
        let (name, queue) = (spec.name, spec.options.queue);
        let stats = WatchStats::new(Instant::now(), spec.options.healthy_after);
        let broadcaster = Arc::new(Broadcaster::new(stats));
        let engine = Engine::new(Arc::clone(&broadcaster), client, spec, decoder);
        let closed = Arc::clone(&broadcaster);
        let task = WatchTask::spawn(engine, move || closed.close());
        Self {
            name,
            queue,
            broadcaster,
            task: Arc::new(task),
        }
    }

    /// The name in logs and metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Subscribes: the first update has all objects and comes once the first list is complete.
    pub fn subscribe(&self) -> Subscription<K> {
        self.subscribe_with(self.queue)
    }

    /// Subscribes with a queue of another capacity. A subscriber whose queue is full must resync.
    pub fn subscribe_with(&self, queue: usize) -> Subscription<K> {
        Subscription::new(Arc::clone(&self.broadcaster), queue, Arc::clone(&self.task))
    }

    /// Returns an object of the cache.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let inner = self.broadcaster.lock();
        inner.cache.get(namespace, name).map(Arc::clone)
    }

    /// Returns all objects of the cache, unordered. Empty until the first list is complete.
    pub fn objects(&self) -> Vec<Arc<K>> {
        self.broadcaster.lock().cache.objects()
    }

    /// Waits until the first list is complete; false once the reflector has ended.
    pub async fn synced(&self) -> bool {
        self.task.synced(self.broadcaster.watch_synced()).await
    }

    pub fn state(&self) -> WatchState {
        self.broadcaster.state()
    }

    /// A readiness check: warming up until the first list is complete, failing once a lost
    /// connection is not back within `timeout` or the reflector has ended. It does not keep the
    /// reflector running.
    pub fn health_check(&self, timeout: Duration) -> impl Fn() -> Status + Send + Sync + use<K> {
        health_check(self.observer(), timeout)
    }

    /// Returns a function that reads [`Reflector::state`] without keeping the reflector running;
    /// `None` once it has ended.
    pub fn observer(&self) -> impl Fn() -> Option<WatchState> + Send + Sync + use<K> {
        let broadcaster = Arc::downgrade(&self.broadcaster);
        let is_running = self.task.is_running();
        move || {
            let broadcaster = broadcaster.upgrade().filter(|_| is_running())?;
            Some(broadcaster.state())
        }
    }

    /// Returns a future that completes when the reflector has ended, by a shutdown or a panic. It
    /// does not keep the reflector running.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<K> {
        self.task.closed()
    }

    /// Ends the reflector and waits for its task. Subscribers get what is queued for them, then the
    /// end.
    pub async fn shutdown(&self) {
        self.task.stop().await;
    }

    pub(crate) fn observed(&self) -> Arc<dyn Observed> {
        Arc::clone(&self.broadcaster) as Arc<dyn Observed>
    }
}

pub(crate) fn health_check<F: Fn() -> Option<WatchState>>(
    observer: F,
    timeout: Duration,
) -> impl Fn() -> Status + use<F> {
    move || match observer() {
        Some(state) => state.health(timeout),
        None => Status::failing("watch has ended"),
    }
}

impl WatchTask {
    /// Runs an engine until the last handle is dropped or [`WatchTask::stop`] is called. Calls
    /// `on_end` however the task ends.
    pub(crate) fn spawn<K: Kind, S: Sink<K>>(
        engine: Engine<K, S>,
        on_end: impl FnMut() + Send + 'static,
    ) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let (running, closed) = watch::channel(());
        let handle = tokio::spawn(async move {
            // Dropped in reverse order: supervision sees the end before subscribers do.
            let _on_end = OnDrop(on_end);
            let _running = running;
            tokio::select! {
                biased;
                // An error means that the last handle is gone.
                _ = stopped.wait_for(|stop| *stop) => {}
                never = engine.run() => match never {},
            }
        });
        Self {
            stop,
            handle: Mutex::new(Some(handle)),
            closed,
        }
    }

    /// Returns a future that completes when the task has ended, for supervision.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut closed = self.closed.clone();
        // Nothing is sent: an error means that the sender is gone with the task.
        async move { while closed.changed().await.is_ok() {} }
    }

    /// Returns a function that reports whether the task is running.
    pub(crate) fn is_running(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let closed = self.closed.clone();
        move || closed.has_changed().is_ok()
    }

    /// Waits for the first list; false once the task has ended.
    pub(crate) async fn synced(&self, mut synced: watch::Receiver<bool>) -> bool {
        tokio::select! {
            biased;
            () = self.closed() => false,
            result = synced.wait_for(|synced| *synced) => result.is_ok(),
        }
    }

    /// Ends the task and waits until it is gone.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            // A panic is seen through `closed`; cancellation by the runtime is fine.
            let _ = handle.await;
        }
    }
}

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl<K: Kind> Clone for Reflector<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            queue: self.queue,
            broadcaster: Arc::clone(&self.broadcaster),
            task: Arc::clone(&self.task),
        }
    }
}

impl<K: Kind> fmt::Debug for Reflector<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Reflector")
            .field("name", &self.name)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

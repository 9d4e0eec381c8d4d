//! The hooks of the process.
//!
//! As in client-go, they are looked up when they are called: a client that was made before the
//! registration reports from then on. Gauges are correct from then on too: what is open, queued or
//! held at that moment is reported first.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    ControllerMetrics, ControllerProvider, Hooks, InformerId, InformerMetrics, InformerProvider,
    LeaderElection, ReconcileResult, ReflectorMetrics, ReflectorProvider, StreamKind, StreamReport,
    Streams, WorkqueueMetrics, WorkqueueProvider,
};
use crate::{Call, Error};

/// Implements every hook by those that the process has registered. The macro `hook!` implements
/// the hooks with one method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered;

struct Process {
    hooks: Hooks,
    since: Instant,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// The leases whose status was reported before the registration.
static LEASES: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());

/// Sets the hooks of the process, for everything that was given [`global`] hooks: before and after
/// this call.
///
/// A second call fails. client-go ignores it, and the second set of hooks is silently never called.
/// To register several adapters, combine them with [`Hooks::and`].
pub fn register(hooks: impl Into<Hooks>) -> Result<(), Error> {
    let hooks = hooks.into();
    if hooks.calls_process() {
        return Err(Error::RegistersItself);
    }
    let process = Process {
        hooks,
        since: Instant::now(),
    };
    // Locked, so that no status is reported in between.
    let mut leases = LEASES.lock();
    PROCESS.set(process).map_err(|_| Error::AlreadyRegistered)?;
    let Some(hooks) = registered() else {
        return Ok(());
    };
    for (name, is_held) in std::mem::take(&mut *leases) {
        if is_held {
            hooks.leader_election.on(&name);
        } else {
            hooks.leader_election.off(&name);
        }
    }
    Ok(())
}

/// Returns hooks that call those of the process, which may be [registered](register) later. Until
/// then a request costs nothing.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use kube_client_metrics::{Registry, global, register};
///
/// // In a library:
/// let client = kube_client_metrics::client(kube::Config::infer().await?, global())?;
/// // In the program, at any time:
/// let registry = Registry::new();
/// register(&registry)?;
/// # Ok(())
/// # }
/// ```
pub fn global() -> Hooks {
    Hooks::of_process()
}

pub(crate) fn registered() -> Option<&'static Hooks> {
    PROCESS.get().map(|process| &process.hooks)
}

impl Streams for Registered {
    fn opened(&self, call: &Call, kind: StreamKind) {
        if let Some(hooks) = registered() {
            hooks.streams.opened(call, kind);
        }
    }

    fn received(&self, call: &Call, kind: StreamKind, events: u64, bytes: u64) {
        if let Some(hooks) = registered() {
            hooks.streams.received(call, kind, events, bytes);
        }
    }

    fn ended(&self, call: &Call, report: &StreamReport) {
        let Some(Process { hooks, since }) = PROCESS.get() else {
            return;
        };
        if report.duration > since.elapsed() {
            // Nobody was told that it opened, and a number of open streams must not fall below
            // zero.
            hooks.streams.opened(call, report.kind);
        }
        hooks.streams.ended(call, report);
    }
}

type Make<M> = Box<dyn Fn(&Hooks) -> Arc<M> + Send + Sync>;

/// Metrics of something with a name, made when the process has registered hooks.
struct Late<M: ?Sized> {
    make: Make<M>,
    made: OnceLock<Arc<M>>,
}

impl<M: ?Sized> Late<M> {
    fn new(make: impl Fn(&Hooks) -> Arc<M> + Send + Sync + 'static) -> Self {
        let late = Self {
            make: Box::new(make),
            made: OnceLock::new(),
        };
        // Providers may expose a series before its first value.
        late.get();
        late
    }

    fn get(&self) -> Option<&Arc<M>> {
        let hooks = registered()?;
        Some(self.made.get_or_init(|| (self.make)(hooks)))
    }
}

impl ReflectorProvider for Registered {
    fn reflector(&self, name: &str) -> Arc<dyn ReflectorMetrics> {
        let name = name.to_owned();
        Arc::new(Late::new(move |hooks| hooks.reflectors.reflector(&name)))
    }
}

impl ReflectorMetrics for Late<dyn ReflectorMetrics> {
    fn list_started(&self) {
        if let Some(metrics) = self.get() {
            metrics.list_started();
        }
    }

    fn list_finished(&self, duration: Duration, items: u64) {
        if let Some(metrics) = self.get() {
            metrics.list_finished(duration, items);
        }
    }

    fn watch_started(&self) {
        if let Some(metrics) = self.get() {
            metrics.watch_started();
        }
    }

    fn watch_finished(&self, duration: Duration, items: u64, short: bool) {
        if let Some(metrics) = self.get() {
            metrics.watch_finished(duration, items, short);
        }
    }

    fn last_resource_version(&self, version: u64) {
        if let Some(metrics) = self.get() {
            metrics.last_resource_version(version);
        }
    }
}

impl InformerProvider for Registered {
    fn informer(&self, id: &InformerId) -> Arc<dyn InformerMetrics> {
        let id = id.clone();
        Arc::new(Late::new(move |hooks| hooks.informers.informer(&id)))
    }
}

impl InformerMetrics for Late<dyn InformerMetrics> {
    fn processed(&self, latency: Duration) {
        if let Some(metrics) = self.get() {
            metrics.processed(latency);
        }
    }

    fn store_resource_version(&self, version: u64) {
        if let Some(metrics) = self.get() {
            metrics.store_resource_version(version);
        }
    }
}

/// A queue or a controller with items that the registered metrics have not been told of.
struct Counted<M: ?Sized> {
    late: Late<M>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Queued items, or running workers.
    items: u64,
    limit: Option<u64>,
}

impl<M: ?Sized> Counted<M> {
    fn new(make: impl Fn(&Hooks) -> Arc<M> + Send + Sync + 'static) -> Self {
        Self {
            late: Late::new(make),
            state: Mutex::default(),
        }
    }

    /// Calls `report` with the registered metrics, after `replay` with what happened before; counts
    /// with `count` while there are none.
    fn report(
        &self,
        replay: impl Fn(&M, &State),
        report: impl Fn(&M),
        count: impl FnOnce(&mut State),
    ) {
        let mut state = self.state.lock();
        match self.late.get() {
            Some(metrics) => {
                replay(metrics, &std::mem::take(&mut *state));
                report(metrics);
            }
            None => count(&mut state),
        }
    }
}

impl WorkqueueProvider for Registered {
    fn queue(&self, name: &str) -> Arc<dyn WorkqueueMetrics> {
        let name = name.to_owned();
        Arc::new(Counted::new(move |hooks| hooks.workqueues.queue(&name)))
    }
}

fn replay_queue(metrics: &dyn WorkqueueMetrics, state: &State) {
    (0..state.items).for_each(|_| metrics.added());
}

impl WorkqueueMetrics for Counted<dyn WorkqueueMetrics> {
    fn added(&self) {
        let count = |state: &mut State| state.items = state.items.saturating_add(1);
        self.report(replay_queue, WorkqueueMetrics::added, count);
    }

    fn taken(&self, waited: Duration) {
        let count = |state: &mut State| state.items = state.items.saturating_sub(1);
        self.report(replay_queue, |metrics| metrics.taken(waited), count);
    }

    fn done(&self, worked: Duration) {
        self.report(replay_queue, |metrics| metrics.done(worked), |_| {});
    }

    fn retried(&self) {
        self.report(replay_queue, WorkqueueMetrics::retried, |_| {});
    }

    fn abandoned(&self, items: u64) {
        let count = |state: &mut State| state.items = state.items.saturating_sub(items);
        self.report(replay_queue, |metrics| metrics.abandoned(items), count);
    }

    fn in_progress(&self, unfinished: Duration, longest: Duration) {
        let report = |metrics: &dyn WorkqueueMetrics| metrics.in_progress(unfinished, longest);
        self.report(replay_queue, report, |_| {});
    }
}

impl ControllerProvider for Registered {
    fn controller(&self, name: &str) -> Arc<dyn ControllerMetrics> {
        let name = name.to_owned();
        Arc::new(Counted::new(move |hooks| {
            hooks.controllers.controller(&name)
        }))
    }
}

fn replay_controller(metrics: &dyn ControllerMetrics, state: &State) {
    if let Some(limit) = state.limit {
        metrics.max_concurrent(limit);
    }
    (0..state.items).for_each(|_| metrics.started());
}

impl ControllerMetrics for Counted<dyn ControllerMetrics> {
    fn started(&self) {
        let count = |state: &mut State| state.items = state.items.saturating_add(1);
        self.report(replay_controller, ControllerMetrics::started, count);
    }

    fn finished(&self, result: ReconcileResult, duration: Duration) {
        let report = |metrics: &dyn ControllerMetrics| metrics.finished(result, duration);
        let count = |state: &mut State| state.items = state.items.saturating_sub(1);
        self.report(replay_controller, report, count);
    }

    fn max_concurrent(&self, limit: u64) {
        let report = |metrics: &dyn ControllerMetrics| metrics.max_concurrent(limit);
        let count = |state: &mut State| state.limit = Some(limit);
        self.report(replay_controller, report, count);
    }
}

impl LeaderElection for Registered {
    fn on(&self, name: &str) {
        report_lease(name, true);
    }

    fn off(&self, name: &str) {
        report_lease(name, false);
    }

    fn slowpath_exercised(&self, name: &str) {
        if let Some(hooks) = registered() {
            hooks.leader_election.slowpath_exercised(name);
        }
    }
}

fn report_lease(name: &str, is_held: bool) {
    let mut leases = LEASES.lock();
    match registered() {
        Some(hooks) if is_held => hooks.leader_election.on(name),
        Some(hooks) => hooks.leader_election.off(name),
        // Names of leases come from the program: there are few.
        None => {
            leases.insert(name.to_owned(), is_held);
        }
    }
}

//! The pods of the node: what the API server wants is synced to the runtime, and what the runtime
//! reports is written back.
//!
//! ```text
//!  watch of pods ──┐                       ┌─► runtime: sync, terminate, remove
//!                  ├─► entries ──► queue ──┤
//!  runtime ────────┘    by UID     by UID  └─► API server: status, DELETE
//! ```
//!
//! One task owns what becomes known, workers do what follows from it. A pod has one worker at a
//! time, which always reads the newest state: several changes are one.

mod entry;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kubevitals_model::Uid;
use kubevitals_watch::{ObjectEvent, Subscription, Update};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use self::entry::{Entry, Step, StepContext};
use crate::FIELD_MANAGER;
use crate::api_error::status_code;
use crate::events::{EventObject, NewEvent, Recorder};
use crate::metrics::{NodeMetrics, Operation, Updated};
use crate::queue::WorkQueue;
use crate::runtime::{PodId, PodRuntime, RuntimeChange, RuntimeError, RuntimeFuture, RuntimePod};
use crate::settings::Settings;
use crate::time::api_time;
use crate::watched::WatchedPod;

/// Steps of a worker with one pod before it takes its turn again.
const MAX_STEPS: usize = 8;

/// The wait for the watch to show what a response said.
const WATCH_LAG: Duration = Duration::from_secs(5);

/// The wait before the pods of the runtime are listed again after a failure.
const LIST_RETRY: Duration = Duration::from_secs(1);

/// The pods. Clones share them.
#[derive(Clone)]
pub(crate) struct PodSync {
    inner: Arc<Inner>,
}

struct Inner {
    client: kube::Client,
    runtime: Arc<dyn PodRuntime>,
    recorder: Recorder,
    metrics: NodeMetrics,
    settings: Settings,
    host_ip: Option<String>,
    queue: WorkQueue<Uid>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<Uid, Entry>,
    /// The number of the last change.
    changes: u64,
}

/// Why a step was not completed.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("the runtime did not respond within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl PodSync {
    pub(crate) fn new(
        client: kube::Client,
        runtime: Arc<dyn PodRuntime>,
        recorder: Recorder,
        metrics: NodeMetrics,
        settings: Settings,
        queue: WorkQueue<Uid>,
    ) -> Self {
        let addresses = settings.node.addresses.iter();
        let address = addresses.clone().find(|one| one.type_ == "InternalIP");
        Self {
            inner: Arc::new(Inner {
                host_ip: address.map(|one| one.address.clone()),
                client,
                runtime,
                recorder,
                metrics,
                settings,
                queue,
                state: Mutex::default(),
            }),
        }
    }

    /// Follows the API server and the runtime until the watch or the runtime ends.
    ///
    /// Nothing is done to any pod before both lists are complete: a pod that is missing from half a
    /// list must not be ended.
    pub(crate) async fn run(
        &self,
        mut pods: Subscription<WatchedPod>,
        mut changes: mpsc::Receiver<RuntimeChange>,
    ) {
        let inner = &self.inner;
        let listed = {
            let listing = inner.list_runtime_until_ok();
            tokio::pin!(listing);
            loop {
                tokio::select! {
                    listed = &mut listing => break listed,
                    // The runtime may wait for room in the channel before it responds.
                    Some(change) = changes.recv() => inner.on_change(change),
                }
            }
        };
        inner.on_relist(listed, 0);
        let mut workers = tokio::task::JoinSet::new();
        let relist = inner.settings.timing.relist;
        let mut ticks = interval_at(Instant::now() + relist, relist);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut listing: Option<(u64, RuntimeFuture<'_, Vec<RuntimePod>>)> = None;
        loop {
            let is_listing = listing.is_some();
            let relisted = async {
                match &mut listing {
                    Some((since, future)) => (*since, future.await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                update = pods.next() => {
                    let Some(update) = update else { return };
                    inner.on_update(update);
                    // The first update has all pods.
                    if workers.is_empty() {
                        for _ in 0..inner.settings.workers.max(1) {
                            let sync = self.clone();
                            workers.spawn(async move { sync.work().await });
                        }
                    }
                }
                change = changes.recv() => {
                    let Some(change) = change else { return };
                    inner.on_change(change);
                }
                (since, listed) = relisted => {
                    listing = None;
                    match listed {
                        Ok(listed) => inner.on_relist(listed, since),
                        Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "cannot list the pods of the runtime"),
                    }
                }
                _ = ticks.tick(), if !is_listing => {
                    let since = inner.state.lock().changes;
                    listing = Some((since, Box::pin(inner.list_runtime())));
                }
                // A worker ends with the queue only.
                Some(ended) = workers.join_next(), if !workers.is_empty() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "worker failed");
                        return;
                    }
                }
            }
        }
    }

    /// Processes pods until the queue is closed.
    async fn work(&self) {
        while let Some(work) = self.inner.queue.next().await {
            self.inner.process(&work.item).await;
        }
    }
}

impl Inner {
    async fn list_runtime_until_ok(&self) -> Vec<RuntimePod> {
        loop {
            match self.list_runtime().await {
                Ok(listed) => return listed,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "cannot list the pods of the runtime");
                }
            }
            sleep(LIST_RETRY).await;
        }
    }

    async fn list_runtime(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        let limit = self.settings.timing.runtime_timeout;
        let start = Instant::now();
        let listed = match timeout(limit, self.runtime.pods()).await {
            Ok(listed) => listed,
            Err(_) => Err(RuntimeError::Failed {
                context: "list of pods".to_owned(),
                source: format!("no response within {limit:?}").into(),
            }),
        };
        self.metrics
            .count_operation(Operation::list, listed.is_ok(), start.elapsed());
        listed
    }

    fn on_update(&self, update: Update<WatchedPod>) {
        let mut state = self.state.lock();
        match update {
            Update::Resync(all) => {
                let listed: HashMap<Uid, Arc<WatchedPod>> = all
                    .objects
                    .into_iter()
                    .map(|pod| (pod.uid().clone(), pod))
                    .collect();
                for (uid, entry) in &mut state.entries {
                    if !listed.contains_key(uid) {
                        if entry.api.take().is_none() && entry.last.is_none() {
                            self.metrics.count_swept();
                            tracing::info!(pod = %entry.id.key, %uid, "pod of the runtime is unknown to the API server: it is ended");
                        }
                        self.queue.add(uid.clone());
                    }
                }
                for pod in listed.into_values() {
                    self.queue.add(pod.uid().clone());
                    state.set_api(pod);
                }
            }
            Update::Change(change) => match change.event {
                ObjectEvent::Added(pod) => {
                    self.queue.add(pod.uid().clone());
                    state.set_api(pod);
                }
                ObjectEvent::Modified { before, now } => {
                    // Deleted and created again under the same name.
                    if before.uid() != now.uid() {
                        state.remove_api(before.uid());
                        self.queue.add(before.uid().clone());
                    }
                    self.queue.add(now.uid().clone());
                    state.set_api(now);
                }
                ObjectEvent::Deleted(pod) => {
                    state.remove_api(pod.uid());
                    self.queue.add(pod.uid().clone());
                }
            },
        }
        self.report(&state);
    }

    fn on_change(&self, change: RuntimeChange) {
        match change {
            RuntimeChange::Event(event) => self.recorder.record_pod(event),
            RuntimeChange::Status(pod) => {
                let uid = pod.id.uid.clone();
                let mut state = self.state.lock();
                state.set_runtime(pod);
                self.report(&state);
                drop(state);
                self.queue.add(uid);
            }
        }
    }

    /// Takes over a list of the runtime. What changed after the number `since` is newer than it.
    fn on_relist(&self, listed: Vec<RuntimePod>, since: u64) {
        let mut state = self.state.lock();
        let mut listed: HashMap<Uid, RuntimePod> = listed
            .into_iter()
            .map(|pod| (pod.id.uid.clone(), pod))
            .collect();
        for (uid, entry) in &mut state.entries {
            if entry.changed > since {
                listed.remove(uid);
                continue;
            }
            let now = listed.remove(uid);
            let is_lost = now.is_none() && entry.runtime.is_some();
            let is_changed = match (&now, &entry.runtime) {
                (Some(now), Some(before)) => {
                    now.is_terminated != before.is_terminated || now.status != before.status
                }
                (now, before) => now.is_some() != before.is_some(),
            };
            if is_lost {
                tracing::warn!(pod = %entry.id.key, %uid, "the runtime has lost a pod");
                entry.synced = None;
            }
            if is_changed {
                entry.runtime = now;
                self.queue.add(uid.clone());
            }
        }
        for (uid, pod) in listed {
            state.set_runtime(pod);
            self.queue.add(uid);
        }
        self.report(&state);
    }

    fn report(&self, state: &State) {
        let entries = state.entries.values();
        let api = entries.clone().filter(|entry| entry.api.is_some()).count();
        let runtime = entries.filter(|entry| entry.runtime.is_some()).count();
        self.metrics.set_pods(api, runtime);
    }

    /// Takes a pod as far as it gets.
    async fn process(&self, uid: &Uid) {
        for _ in 0..MAX_STEPS {
            let Some((id, step)) = self.next_step(uid) else {
                return;
            };
            match self.perform(&id, step).await {
                Ok(Outcome::Continue) => self.queue.forget(uid),
                Ok(Outcome::Wait) => {
                    self.queue.forget(uid);
                    return;
                }
                Ok(Outcome::WaitFor(wait)) => {
                    self.queue.add_after(uid.clone(), wait);
                    return;
                }
                Err(error) => {
                    self.on_error(&id, &error);
                    self.queue.retry(uid.clone());
                    return;
                }
            }
        }
        self.queue.add(uid.clone());
    }

    fn next_step(&self, uid: &Uid) -> Option<(PodId, Step)> {
        let moment = self.settings.clock.moment();
        let context = StepContext {
            host_ip: self.host_ip.as_deref(),
            now: api_time(moment.wall),
            monotonic: moment.monotonic,
            overwrite_interval: self.settings.timing.overwrite_interval,
        };
        let mut state = self.state.lock();
        let places = state
            .entries
            .values()
            .filter(|one| one.takes_place())
            .count();
        let entry = state.entries.get_mut(uid)?;
        let mut step = entry.next_step(&context);
        if let Step::Sync(_) = step
            && entry.synced.is_none()
            && entry.runtime.is_none()
            && places >= self.settings.max_pods
        {
            let limit = self.settings.max_pods;
            let message = format!(
                "Node didn't have enough resource: pods, requested: 1, used: {places}, capacity: {limit}"
            );
            entry.rejection = Some(("OutOfpods".to_owned(), message.clone()));
            self.record(&entry.id, true, "OutOfpods", message);
            step = entry.next_step(&context);
        }
        if let Step::Sync(pod) = &step {
            // Counted at once, so that workers together do not exceed the limit.
            entry.synced = Some(Arc::clone(pod));
            entry.started.get_or_insert(context.now);
        }
        let id = entry.id.clone();
        if step == Step::Forget {
            state.entries.remove(uid);
            self.report(&state);
            drop(state);
            self.queue.forget(uid);
            return None;
        }
        Some((id, step))
    }

    async fn perform(&self, id: &PodId, step: Step) -> Result<Outcome, StepError> {
        match step {
            Step::Wait | Step::Forget => Ok(Outcome::Wait),
            Step::WaitFor(wait) => Ok(Outcome::WaitFor(wait)),
            Step::Sync(pod) => self.sync(id, pod).await,
            Step::Terminate(grace) => {
                let call = self.runtime.terminate_pod(id, grace);
                match self.call(Operation::terminate, call).await {
                    Err(StepError::Runtime(RuntimeError::NotFound(_))) => {
                        self.update(&id.uid, |entry| entry.runtime = None);
                    }
                    result => {
                        result?;
                        self.update(&id.uid, |entry| entry.grace = Some(grace));
                    }
                }
                Ok(Outcome::Continue)
            }
            Step::Remove => {
                match self
                    .call(Operation::remove, self.runtime.remove_pod(id))
                    .await
                {
                    Ok(()) | Err(StepError::Runtime(RuntimeError::NotFound(_))) => {}
                    Err(error) => return Err(error),
                }
                self.update(&id.uid, |entry| entry.runtime = None);
                Ok(Outcome::Continue)
            }
            Step::WriteStatus(status) => self.write_status(id, *status).await,
            Step::Delete => self.delete(id).await,
        }
    }

    async fn sync(&self, id: &PodId, pod: Arc<Pod>) -> Result<Outcome, StepError> {
        match self.call(Operation::sync, self.runtime.sync_pod(pod)).await {
            Ok(()) => Ok(Outcome::Continue),
            Err(StepError::Runtime(RuntimeError::Rejected { reason, message })) => {
                tracing::info!(pod = %id.key, reason, message, "pod is rejected");
                self.record(id, true, reason, message.clone());
                self.update(&id.uid, |entry| {
                    entry.rejection = Some((reason.to_owned(), message));
                });
                Ok(Outcome::Continue)
            }
            Err(error) => {
                self.update(&id.uid, |entry| entry.synced = None);
                self.record(
                    id,
                    true,
                    "FailedSync",
                    format!("error syncing pod, skipping: {error}"),
                );
                Err(error)
            }
        }
    }

    async fn write_status(&self, id: &PodId, status: PodStatus) -> Result<Outcome, StepError> {
        let Some(version) = self.resource_version(&id.uid) else {
            return Ok(Outcome::Continue);
        };
        let name = id.key.name();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), id.key.namespace());
        // With the version, a write never replaces what was not seen, such as a terminal phase.
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": &**name,
                "namespace": &**id.key.namespace(),
                "uid": id.uid.to_string(),
                "resourceVersion": version,
            },
            "status": status,
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let result = pods
            .patch_status(name, &parameters, &Patch::Apply(object))
            .await;
        self.metrics.count_update(Updated::pod, result.is_ok());
        match result {
            Ok(pod) => {
                let now = self.settings.clock.moment().monotonic;
                let written = WatchedPod::new(pod).map(Arc::new);
                self.update(&id.uid, |entry| {
                    entry.applied = Some((status, now));
                    if let Some(written) = written {
                        entry.set_api_if_newer(written);
                    }
                });
                Ok(Outcome::Continue)
            }
            // The watch will say what happened.
            Err(error) if status_code(&error) == Some(404) => Ok(Outcome::WaitFor(WATCH_LAG)),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete(&self, id: &PodId) -> Result<Outcome, StepError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), id.key.namespace());
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(id.uid.to_string()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match pods.delete(id.key.name(), &parameters).await {
            Ok(_) => {}
            // It is gone, or another pod has its name.
            Err(error) if matches!(status_code(&error), Some(404 | 409)) => {}
            Err(error) => return Err(error.into()),
        }
        let now = self.settings.clock.moment().monotonic;
        self.update(&id.uid, |entry| entry.deleted = Some(now));
        Ok(Outcome::Continue)
    }

    /// Calls the runtime with a timeout.
    async fn call<T>(
        &self,
        operation: Operation,
        call: RuntimeFuture<'_, T>,
    ) -> Result<T, StepError> {
        let limit = self.settings.timing.runtime_timeout;
        let start = Instant::now();
        let result = timeout(limit, call).await;
        let is_ok = matches!(result, Ok(Ok(_)));
        self.metrics
            .count_operation(operation, is_ok, start.elapsed());
        match result {
            Ok(result) => Ok(result?),
            Err(_) => Err(StepError::Timeout(limit)),
        }
    }

    fn on_error(&self, id: &PodId, error: &StepError) {
        let is_conflict = matches!(error, StepError::Api(error) if status_code(error) == Some(409));
        // A conflict is normal: the watch is a little behind.
        if is_conflict || self.queue.failures(&id.uid) > 0 {
            tracing::debug!(pod = %id.key, error = error as &dyn std::error::Error, "cannot sync a pod");
        } else {
            tracing::warn!(pod = %id.key, error = error as &dyn std::error::Error, "cannot sync a pod");
        }
    }

    fn resource_version(&self, uid: &Uid) -> Option<String> {
        let state = self.state.lock();
        let api = state.entries.get(uid)?.api.as_ref()?;
        api.pod.metadata.resource_version.clone()
    }

    fn update(&self, uid: &Uid, update: impl FnOnce(&mut Entry)) {
        let mut state = self.state.lock();
        state.changes += 1;
        let changes = state.changes;
        if let Some(entry) = state.entries.get_mut(uid) {
            entry.changed = changes;
            update(entry);
        }
    }

    fn record(&self, id: &PodId, is_warning: bool, reason: &str, message: String) {
        self.recorder.record(NewEvent {
            object: EventObject {
                kind: "Pod",
                namespace: id.key.namespace().to_string(),
                name: id.key.name().to_string(),
                uid: id.uid.to_string(),
                field_path: String::new(),
            },
            is_warning,
            reason: reason.to_owned(),
            message,
        });
    }
}

/// What follows a step.
enum Outcome {
    Continue,
    Wait,
    WaitFor(Duration),
}

impl State {
    fn set_api(&mut self, pod: Arc<WatchedPod>) {
        let entry = self.entries.entry(pod.uid().clone());
        let entry = entry.or_insert_with(|| Entry::new(pod.id()));
        entry.set_api_if_newer(pod);
    }

    fn remove_api(&mut self, uid: &Uid) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.api = None;
        }
    }

    fn set_runtime(&mut self, pod: RuntimePod) {
        self.changes += 1;
        let entry = self.entries.entry(pod.id.uid.clone());
        let entry = entry.or_insert_with(|| Entry::new(pod.id.clone()));
        entry.changed = self.changes;
        entry.runtime = Some(pod);
    }
}

impl Entry {
    /// Takes over a state of the object unless a newer one is known.
    fn set_api_if_newer(&mut self, pod: Arc<WatchedPod>) {
        if self.last.as_ref().is_none_or(|last| pod.is_at_least(last)) {
            self.last = Some(Arc::clone(&pod));
            self.api = Some(pod);
        }
    }
}

//! The task of one pod: it holds what is desired, starts and stops containers, and reports the
//! status.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubevitals_virtual_node::runtime::{PodEvent, RuntimeChange, RuntimeChanges, RuntimePod};
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::context::PodContext;
use crate::error::ProcessError;
use crate::instance::{self, Instance, Report, Stop};
use crate::shim::record::{now_ms, write_record};
use crate::state::{Phase, PodState};
use crate::status::pod_status;
use crate::volumes;

mod reconcile;

/// Events that wait for the virtual node; the oldest are dropped.
const MAX_PENDING_EVENTS: usize = 100;
pub(crate) const POD_FILE: &str = "pod.json";
pub(crate) const STATE_FILE: &str = "state.json";

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Command {
    Sync(Arc<Pod>),
    Terminate(Duration),
    Remove(oneshot::Sender<Result<(), ProcessError>>),
}

/// What others may know of a pod.
#[derive(Debug)]
pub(crate) struct Shared {
    pub pod: Arc<Pod>,
    pub status: PodStatus,
    pub is_terminated: bool,
    /// The running instances by the name of the container.
    pub instances: HashMap<String, Arc<Instance>>,
}

/// The worker of a pod.
pub(crate) struct Worker {
    context: Arc<PodContext>,
    pod: Arc<Pod>,
    state: PodState,
    shared: Arc<RwLock<Shared>>,
    commands: mpsc::Receiver<Command>,
    reports: mpsc::Receiver<Report>,
    report_to: mpsc::Sender<Report>,
    changes: RuntimeChanges,
    is_heard: bool,
    pending_events: VecDeque<PodEvent>,
    is_dirty: bool,
    /// The running or starting containers.
    live: HashMap<usize, Live>,
    volumes: VolumeState,
    refresh_at: Option<Instant>,
    /// Containers that could not be created are tried again then.
    retries: HashMap<usize, Instant>,
    /// The ends for which `BackOff` was reported.
    told: HashMap<usize, String>,
    /// When everything is killed, once the pod is to end.
    end_by: Option<Instant>,
    is_cleaning: bool,
    /// Folders of instances to remove once the state is on disk.
    garbage: Vec<PathBuf>,
    tasks: JoinSet<()>,
}

/// A running or starting container.
struct Live {
    stop: watch::Sender<Option<Stop>>,
    attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VolumeState {
    Absent,
    InProgress,
    Ready,
    RetryAt(Instant),
}

impl Worker {
    /// A worker for a new pod, or for one of an earlier process with its state.
    pub(crate) fn new(
        context: PodContext,
        pod: Arc<Pod>,
        state: Option<PodState>,
        commands: mpsc::Receiver<Command>,
        changes: RuntimeChanges,
    ) -> (Self, Arc<RwLock<Shared>>) {
        let is_adopted = state.is_some();
        let mut state = state.unwrap_or_else(|| PodState::new(&pod, now_ms()));
        let status = pod_status(
            &pod,
            &mut state,
            is_adopted,
            &context.config.node_ips,
            now_ms(),
        );
        let shared = Arc::new(RwLock::new(Shared {
            pod: Arc::clone(&pod),
            status,
            is_terminated: state.is_terminated,
            instances: HashMap::new(),
        }));
        let (report_to, reports) = mpsc::channel(64);
        let worker = Self {
            context: Arc::new(context),
            pod,
            state,
            shared: Arc::clone(&shared),
            commands,
            reports,
            report_to,
            changes,
            is_heard: true,
            pending_events: VecDeque::new(),
            is_dirty: true,
            live: HashMap::new(),
            volumes: if is_adopted {
                VolumeState::Ready
            } else {
                VolumeState::Absent
            },
            refresh_at: is_adopted.then(Instant::now),
            retries: HashMap::new(),
            told: HashMap::new(),
            end_by: None,
            is_cleaning: false,
            garbage: Vec::new(),
            tasks: JoinSet::new(),
        };
        (worker, shared)
    }

    /// Works until the pod is removed or the runtime is gone. In the latter case the containers
    /// stay, for the next process to adopt.
    pub(crate) async fn run(mut self) {
        self.adopt();
        loop {
            let wake = self.reconcile();
            self.publish();
            let has_pending = self.is_dirty || !self.pending_events.is_empty();
            let changes = self.changes.clone();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Sync(pod)) => self.on_sync(pod),
                    Some(Command::Terminate(grace)) => self.on_terminate(grace),
                    Some(Command::Remove(done)) => {
                        if self.state.is_terminated {
                            let _ = done.send(self.remove().await);
                            return;
                        }
                        let error = ProcessError::Config("the pod has processes: terminate it first".to_owned());
                        let _ = done.send(Err(error));
                    }
                    None => return,
                },
                Some(report) = self.reports.recv() => self.on_report(report),
                permit = changes.reserve_owned(), if has_pending && self.is_heard => match permit {
                    Ok(permit) => drop(permit.send(self.next_change())),
                    Err(_) => self.is_heard = false,
                },
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                () = sleep_until(wake), if wake.is_some() => {}
            }
        }
    }

    /// The next thing to report. Events first: they tell what led to the status.
    fn next_change(&mut self) -> RuntimeChange {
        if let Some(event) = self.pending_events.pop_front() {
            return RuntimeChange::Event(event);
        }
        self.is_dirty = false;
        let shared = self.shared.read();
        RuntimeChange::Status(RuntimePod {
            id: self.context.id.clone(),
            status: shared.status.clone(),
            is_terminated: shared.is_terminated,
        })
    }

    /// Takes up the containers of an earlier process.
    fn adopt(&mut self) {
        for index in 0..self.state.containers.len() {
            let Some(one) = self.state.containers.get(index) else {
                continue;
            };
            let attempt = match &one.phase {
                Phase::Starting { .. } if one.ended.is_some() => one.restart_count + 1,
                _ => one.restart_count,
            };
            if let Some(id) = one.current().map(ToOwned::to_owned) {
                let running = one.running().cloned();
                self.spawn(index, id, attempt, true, running);
            }
        }
        if let Some(termination) = self.state.termination {
            let left = u64::try_from(termination.deadline_ms - now_ms()).unwrap_or(0);
            self.end_by = Some(Instant::now() + Duration::from_millis(left));
        }
    }

    fn on_sync(&mut self, pod: Arc<Pod>) {
        let before = std::mem::replace(&mut self.pod, pod);
        self.shared.write().pod = Arc::clone(&self.pod);
        let path = self.folder().join(POD_FILE);
        if let Err(error) = write_record(&path, self.pod.as_ref(), false) {
            tracing::warn!(pod = %self.context.display(), %error, "cannot write the record of a pod");
        }
        self.apply_changes(&before);
        if before.metadata.labels != self.pod.metadata.labels
            || before.metadata.annotations != self.pod.metadata.annotations
        {
            self.refresh_at = Some(Instant::now());
        }
    }

    fn on_terminate(&mut self, grace: Duration) {
        if self.state.is_terminated {
            // The status may be what the caller waits for.
            self.is_dirty = true;
            return;
        }
        let millis = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        let deadline_ms = now_ms().saturating_add(millis);
        let is_shorter = self
            .state
            .termination
            .is_none_or(|one| deadline_ms < one.deadline_ms);
        if is_shorter {
            self.state.termination = Some(crate::state::Termination {
                deadline_ms,
                grace_seconds: grace.as_secs(),
            });
            let end_by = Instant::now() + grace;
            self.end_by = Some(self.end_by.map_or(end_by, |one| one.min(end_by)));
            self.persist();
            self.tell_deadline();
        }
    }

    fn on_report(&mut self, report: Report) {
        match report {
            Report::Event(event) => self.push_event(event),
            Report::Created(instance) => {
                let mut shared = self.shared.write();
                shared
                    .instances
                    .insert(instance.container.clone(), instance);
            }
            Report::Health(index, running) => {
                let attempt = self.live.get(&index).map(|one| one.attempt);
                if let (Some(one), Some(attempt)) = (self.state.containers.get_mut(index), attempt)
                {
                    one.restart_count = attempt;
                    one.phase = Phase::Running(running);
                }
            }
            Report::Ended(index, ended) => {
                let live = self.live.remove(&index);
                self.garbage.push(self.context.instance_folder(&ended.id));
                if let Some(one) = self.state.containers.get_mut(index) {
                    if let Some(live) = live {
                        one.restart_count = live.attempt;
                    }
                    self.shared.write().instances.remove(&one.name);
                    one.end(ended);
                }
                self.show_start_error(index);
            }
            Report::NotCreated {
                index,
                reason,
                message,
            } => {
                self.live.remove(&index);
                if let Some(one) = self.state.containers.get_mut(index) {
                    if let Some(id) = one.current() {
                        self.garbage.push(self.context.instance_folder(id));
                    }
                    one.phase = Phase::Waiting(Some(crate::state::Waiting {
                        reason: reason.to_owned(),
                        message,
                    }));
                }
                self.retries
                    .insert(index, Instant::now() + self.context.config.retry);
            }
            Report::Volumes(Ok(renew)) => {
                self.volumes = VolumeState::Ready;
                let period = self.context.config.volume_refresh;
                let after = renew.map_or(period, |one| one.min(period));
                self.refresh_at = Some(Instant::now() + after.max(Duration::from_secs(1)));
            }
            Report::Volumes(Err(error)) => {
                let retry = Instant::now() + self.context.config.retry;
                let event = self
                    .context
                    .pod_event(true, "FailedMount", error.to_string());
                self.push_event(event);
                if self.volumes == VolumeState::InProgress {
                    self.volumes = VolumeState::RetryAt(retry);
                } else {
                    self.refresh_at = Some(retry);
                }
            }
            Report::Cleaned => self.state.is_terminated = true,
        }
    }

    fn push_event(&mut self, event: PodEvent) {
        if self.pending_events.len() >= MAX_PENDING_EVENTS {
            self.pending_events.pop_front();
            self.context.metrics.dropped_event();
        }
        self.pending_events.push_back(event);
    }

    /// Starts the task of an instance.
    fn spawn(
        &mut self,
        index: usize,
        id: String,
        attempt: u32,
        is_adopted: bool,
        running: Option<crate::state::Running>,
    ) {
        let Some(one) = self.state.containers.get(index) else {
            return;
        };
        let Some((role, container)) = crate::state::container(&self.pod, &one.name) else {
            return;
        };
        let (stop, stopped) = watch::channel(None);
        let start = instance::Start {
            index,
            role,
            pod: Arc::clone(&self.pod),
            container: Arc::new(container.clone()),
            id,
            attempt,
            is_adopted,
            running,
            stop: stopped,
        };
        self.live.insert(index, Live { stop, attempt });
        let task = instance::run(Arc::clone(&self.context), start, self.report_to.clone());
        self.tasks.spawn(task);
    }

    fn set_up_volumes(&mut self) {
        let context = Arc::clone(&self.context);
        let pod = Arc::clone(&self.pod);
        let reports = self.report_to.clone();
        self.tasks.spawn(async move {
            let inputs = context.inputs.as_ref();
            let result = volumes::set_up(&context.id, &pod, inputs, &context.config).await;
            let _ = reports.send(Report::Volumes(result)).await;
        });
    }

    /// Shares the status, if it changed, and keeps the state on disk.
    fn publish(&mut self) {
        let is_prepared = matches!(self.volumes, VolumeState::Ready);
        let ips = &self.context.config.node_ips;
        let status = pod_status(&self.pod, &mut self.state, is_prepared, ips, now_ms());
        let has_changed = {
            let mut shared = self.shared.write();
            let has_changed =
                shared.status != status || shared.is_terminated != self.state.is_terminated;
            shared.status = status;
            shared.is_terminated = self.state.is_terminated;
            has_changed
        };
        if has_changed {
            self.is_dirty = true;
            self.persist();
        }
        for folder in self.garbage.drain(..) {
            let _ = fs::remove_dir_all(folder);
        }
    }

    fn persist(&self) {
        let path = self.folder().join(STATE_FILE);
        if let Err(error) = write_record(&path, &self.state, false) {
            tracing::warn!(pod = %self.context.display(), %error, "cannot write the state of a pod");
        }
    }

    fn folder(&self) -> PathBuf {
        self.context
            .config
            .pod_folder(&self.context.id.uid.to_string())
    }

    /// Removes all files of the pod.
    async fn remove(&mut self) -> Result<(), ProcessError> {
        self.tasks.shutdown().await;
        let folders = [self.folder(), self.context.log_folder()];
        let work = move || {
            for folder in folders {
                match fs::remove_dir_all(&folder) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(ProcessError::file("remove", &folder)(error));
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(_) => Err(ProcessError::Config("the removal was cancelled".to_owned())),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

//! One run of a container, from its start to its end.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use kubevitals_virtual_node::runtime::PodEvent;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::context::PodContext;
use crate::error::ProcessError;
use crate::hooks;
use crate::launch::{self, TERMINATION_LOG};
use crate::link::Link;
use crate::messages::termination_message;
use crate::probe::{self, Outcome, ProbeKind, ProbeReport};
use crate::shim::SHIM;
use crate::shim::protocol::Kind;
use crate::shim::record::{
    EXIT_FILE, ExitRecord, LAUNCH_FILE, Launch, PROCESS_FILE, ProcessRecord, now_ms, read_record,
};
use crate::state::{Ended, Role, Running};

/// The shortest time between the stop signal and the kill.
const MIN_GRACE: Duration = Duration::from_secs(2);
/// How long a shim may take to open its socket.
const SHIM_START: Duration = Duration::from_secs(30);
/// How long a shim may take to report the end of a killed process.
const KILL_REPORT: Duration = Duration::from_secs(15);

/// A run of a container, as exec, attach and statistics see it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub id: String,
    pub container: String,
    pub folder: PathBuf,
    pub launch: Launch,
    pub shim: Vec<String>,
    process: OnceLock<ProcessRecord>,
    /// Set once the run has ended and its log is complete.
    ended: watch::Sender<bool>,
}

/// What to run.
pub(crate) struct Start {
    /// The place of the container in the state of the pod.
    pub index: usize,
    pub role: Role,
    pub pod: Arc<Pod>,
    pub container: Arc<Container>,
    pub id: String,
    pub attempt: u32,
    /// Whether it is a run of an earlier process of the node, which goes on.
    pub is_adopted: bool,
    /// Its health, if it was running.
    pub running: Option<Running>,
    pub stop: watch::Receiver<Option<Stop>>,
}

/// A request to end a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub deadline: Instant,
    /// For the event `Killing`.
    pub message: String,
}

/// What a run reports to the worker of its pod.
#[derive(Debug)]
pub(crate) enum Report {
    Event(PodEvent),
    /// There is an instance.
    Created(usize, Arc<Instance>),
    /// It runs, and what is known of its health.
    Health(usize, Running),
    Ended(usize, Ended),
    /// There is no instance; it is tried again later.
    NotCreated {
        index: usize,
        reason: &'static str,
        message: String,
    },
    /// The volumes are set up, and when their tokens must be renewed.
    Volumes(Result<Option<Duration>, ProcessError>),
    /// Nothing is left of the processes of the pod.
    Cleaned,
}

impl Instance {
    /// The pid of the main process, once it runs.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.process.get().map(|one| one.main.pid)
    }

    /// When the program started.
    pub(crate) fn started_ms(&self) -> Option<i64> {
        self.process.get().map(|one| one.started_ms)
    }

    /// Tells when the run has ended.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }
}

/// Runs a container until it ends.
pub(crate) async fn run(context: Arc<PodContext>, start: Start, reports: mpsc::Sender<Report>) {
    let index = start.index;
    let mut stopped = start.stop.clone();
    let result = if start.is_adopted {
        adopt(&context, &start)
    } else {
        tokio::select! {
            biased;
            result = create(&context, &start, &reports) => result,
            // What the container needs may never come. Nothing runs before `create` returns.
            _ = stopped.wait_for(Option::is_some) => {
                Err(ProcessError::Config("the pod was terminated".to_owned()))
            }
        }
    };
    let (instance, child) = match result {
        Ok(created) => created,
        Err(error) => {
            let reason = match &error {
                ProcessError::Config(_) | ProcessError::Inputs(_) => "CreateContainerConfigError",
                _ => "CreateContainerError",
            };
            let message = error.to_string();
            let text = format!("Error: {message}");
            let event = context.event(start.role, &start.container, true, "Failed", text);
            let _ = reports.send(Report::Event(event)).await;
            let report = Report::NotCreated {
                index,
                reason,
                message,
            };
            let _ = reports.send(report).await;
            return;
        }
    };
    let instance = Arc::new(instance);
    let _ = reports.send(Report::Created(index, Arc::clone(&instance))).await;
    let (probe_reports, probes_of) = mpsc::channel(8);
    let (hook_results, hooks_of) = mpsc::channel(2);
    let mut driver = Driver {
        health: start.running.clone(),
        context,
        start,
        reports,
        instance,
        tasks: JoinSet::new(),
        checks: Vec::new(),
        probe_reports,
        hook_results,
        stopping: None,
    };
    let ended = driver.drive(child, probes_of, hooks_of).await;
    driver.tasks.shutdown().await;
    driver.clean(ended).await;
}

/// Creates an instance and starts its shim.
async fn create(
    context: &PodContext,
    start: &Start,
    reports: &mpsc::Sender<Report>,
) -> Result<(Instance, Option<Child>), ProcessError> {
    let container = &start.container;
    let launch = launch::launch(context, &start.pod, container, &start.id, start.attempt).await?;
    let image = container.image.as_deref().unwrap_or_default();
    let pulled = format!("Container image {image:?} already present on machine");
    let event = context.event(start.role, container, false, "Pulled", pulled);
    let _ = reports.send(Report::Event(event)).await;
    let folder = launch::create(context, &start.pod, container, &launch)?;
    let failed = |error: io::Error| ProcessError::Shim {
        container: container.name.clone(),
        message: error.to_string(),
    };
    let shim = context.config.shim.clone();
    let (program, arguments) = shim
        .split_first()
        .ok_or_else(|| failed(io::Error::other("its program is not configured")))?;
    let errors = std::fs::File::create(folder.join("shim.log")).map_err(failed)?;
    let event = context.event(start.role, container, false, "Created", "Container created".to_owned());
    let _ = reports.send(Report::Event(event)).await;
    // The last step, without a point at which this could be cancelled after it.
    let child = Command::new(program)
        .args(arguments)
        .arg(SHIM)
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    context.metrics.started();
    Ok((Instance::new(start, folder, launch, shim.clone()), Some(child)))
}

/// Finds an instance of an earlier process of the node.
fn adopt(context: &PodContext, start: &Start) -> Result<(Instance, Option<Child>), ProcessError> {
    let folder = context.instance_folder(&start.id);
    let path = folder.join(LAUNCH_FILE);
    let launch = read_record(&path).map_err(ProcessError::file("read", &path))?;
    let instance = Instance::new(start, folder, launch.unwrap_or_default(), context.config.shim.clone());
    Ok((instance, None))
}

impl Instance {
    fn new(start: &Start, folder: PathBuf, launch: Launch, shim: Vec<String>) -> Self {
        Self {
            id: start.id.clone(),
            container: start.container.name.clone(),
            folder,
            launch,
            shim,
            process: OnceLock::new(),
            ended: watch::Sender::new(false),
        }
    }
}

/// Supervises a run over the link to its shim.
struct Driver {
    context: Arc<PodContext>,
    start: Start,
    reports: mpsc::Sender<Report>,
    instance: Arc<Instance>,
    health: Option<Running>,
    tasks: JoinSet<()>,
    /// The startup and liveness probes, which end when the container is to stop.
    checks: Vec<(ProbeKind, AbortHandle)>,
    probe_reports: mpsc::Sender<ProbeReport>,
    hook_results: mpsc::Sender<HookResult>,
    stopping: Option<Stopping>,
}

/// How far the stop of a run is.
#[derive(Debug)]
struct Stopping {
    deadline: Instant,
    is_signalled: bool,
    is_killed: bool,
}

#[derive(Debug)]
enum HookResult {
    PostStart(Result<(), String>),
    PreStop(Result<(), String>),
}

impl Driver {
    async fn drive(
        &mut self,
        mut child: Option<Child>,
        mut probes: mpsc::Receiver<ProbeReport>,
        mut hooks: mpsc::Receiver<HookResult>,
    ) -> Option<ExitRecord> {
        let Some(mut link) = self.connect(child.as_mut()).await else {
            return self.lost(child).await;
        };
        if link.writer.send(Kind::Watch, &[]).await.is_err() {
            return self.lost(child).await;
        }
        if self.start.stop.borrow().is_some() {
            self.start.stop.mark_changed();
        }
        let mut can_stop = true;
        loop {
            let wake = self.stopping.as_ref().map(|one| {
                if one.is_killed { one.deadline + KILL_REPORT } else { one.deadline }
            });
            tokio::select! {
                frame = link.reader.next() => match frame {
                    Ok(Some((Kind::Started, payload))) => self.on_started(&payload).await,
                    Ok(Some((Kind::Exited, payload))) => {
                        let record = serde_json::from_slice(&payload).ok();
                        reap(child).await;
                        return record;
                    }
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return self.lost(child).await,
                },
                Some(report) = probes.recv() => self.on_probe(report).await,
                Some(result) = hooks.recv() => match result {
                    HookResult::PostStart(result) => self.on_post_start(result).await,
                    HookResult::PreStop(result) => {
                        if let Err(message) = result {
                            self.event(true, "FailedPreStopHook", message).await;
                        }
                        self.signal(&mut link).await;
                    }
                },
                changed = self.start.stop.changed(), if can_stop => {
                    let stop = self.start.stop.borrow_and_update().clone();
                    match (changed, stop) {
                        (Ok(()), Some(stop)) => self.on_stop(stop, &mut link).await,
                        (Ok(()), None) => {}
                        // The worker is gone: the container stays, for the next process to adopt.
                        (Err(_), _) => can_stop = false,
                    }
                }
                () = sleep_until(wake), if wake.is_some() => {
                    let is_killed = self.stopping.as_ref().is_some_and(|one| one.is_killed);
                    if is_killed {
                        // The shim itself does not respond.
                        return self.lost(child).await;
                    }
                    self.kill(&mut link).await;
                }
            }
        }
    }

    /// Connects to the shim, which may be about to start.
    async fn connect(&mut self, mut child: Option<&mut Child>) -> Option<Link> {
        let deadline = Instant::now() + SHIM_START;
        let mut wait = Duration::from_millis(1);
        loop {
            if let Ok(link) = Link::connect(&self.instance.folder).await {
                return Some(link);
            }
            let is_gone = match &mut child {
                Some(child) => !matches!(child.try_wait(), Ok(None)),
                None => true,
            };
            if is_gone || Instant::now() > deadline {
                return None;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(50));
        }
    }

    /// The shim is gone or does not respond: what it recorded is the end, or it is unknown.
    async fn lost(&mut self, child: Option<Child>) -> Option<ExitRecord> {
        let exit_path = self.instance.folder.join(EXIT_FILE);
        if let Ok(Some(record)) = read_record(&exit_path) {
            reap(child).await;
            return Some(record);
        }
        let process: Option<ProcessRecord> =
            read_record(&self.instance.folder.join(PROCESS_FILE)).ok().flatten();
        if let Some(process) = process {
            for identity in [process.shim, process.main] {
                if identity.is_alive()
                    && let Some(pid) = rustix::process::Pid::from_raw(identity.pid)
                {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
        if let Some(mut child) = child {
            let _ = child.start_kill();
            let _ = child.wait().await;
        }
        tracing::warn!(
            pod = %self.context.display(),
            container = self.instance.container,
            "the shim of a container is gone, its exit code is not known"
        );
        read_record(&exit_path).ok().flatten()
    }

    async fn on_started(&mut self, payload: &[u8]) {
        let Ok(process) = serde_json::from_slice::<ProcessRecord>(payload) else {
            return;
        };
        let started_ms = process.started_ms;
        if self.instance.process.set(process).is_err() {
            return;
        }
        let container = Arc::clone(&self.start.container);
        let has_hook = container.lifecycle.as_ref().is_some_and(|one| one.post_start.is_some());
        if self.health.is_none() {
            self.event(false, "Started", "Container started".to_owned()).await;
            let is_started = container.startup_probe.is_none();
            self.health = Some(Running {
                id: self.instance.id.clone(),
                started_ms,
                is_started,
                is_ready: container.readiness_probe.is_none(),
                is_up: !has_hook,
            });
            if let Some(hook) = container.lifecycle.as_ref().and_then(|one| one.post_start.clone()) {
                self.spawn_hook(hook, None);
            }
        } else if let Some(health) = &mut self.health {
            // A hook of an adopted container is not run again.
            health.is_up = true;
        }
        self.tell_health().await;
        let is_started = self.health.as_ref().is_some_and(|one| one.is_started);
        if is_started {
            self.start_probes();
        } else {
            self.start_probe(ProbeKind::Startup);
        }
    }

    fn start_probes(&mut self) {
        self.start_probe(ProbeKind::Readiness);
        if self.stopping.is_none() {
            self.start_probe(ProbeKind::Liveness);
        }
    }

    fn start_probe(&mut self, kind: ProbeKind) {
        let Some(probe) = kind.of(&self.start.container).cloned() else {
            return;
        };
        let started_ms = self.health.as_ref().map_or(0, |one| one.started_ms);
        let elapsed = u64::try_from(now_ms() - started_ms).unwrap_or(0);
        let address = self.context.config.node_ips.first().copied();
        let handle = self.tasks.spawn(probe::run(
            kind,
            Arc::clone(&self.instance),
            Arc::clone(&self.start.container),
            probe,
            address.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into()),
            Duration::from_millis(elapsed),
            self.probe_reports.clone(),
        ));
        self.checks.push((kind, handle));
    }

    fn end_probes(&mut self, kinds: &[ProbeKind]) {
        self.checks.retain(|(kind, handle)| {
            let ends = kinds.contains(kind);
            if ends {
                handle.abort();
            }
            !ends
        });
    }

    async fn on_probe(&mut self, report: ProbeReport) {
        let name = report.kind.as_str();
        self.context.metrics.probe(report.kind, &report.outcome);
        match report.outcome {
            Outcome::Success => {}
            Outcome::Failure(text) => {
                let message = format!("{name} probe failed: {text}");
                self.event(true, "Unhealthy", message).await;
            }
            Outcome::Error(text) => {
                let message = format!("{name} probe errored and resulted in unknown state: {text}");
                self.event(true, "Unhealthy", message).await;
            }
        }
        let Some(is_success) = report.changed else {
            return;
        };
        let Some(health) = &mut self.health else {
            return;
        };
        let before = health.clone();
        match (report.kind, is_success) {
            (ProbeKind::Readiness, is_ready) => health.is_ready = is_ready,
            (ProbeKind::Startup, true) => {
                health.is_started = true;
                self.end_probes(&[ProbeKind::Startup]);
                self.start_probes();
            }
            (ProbeKind::Liveness, true) => {}
            (kind @ (ProbeKind::Startup | ProbeKind::Liveness), false) => {
                self.end_probes(&[ProbeKind::Startup, ProbeKind::Liveness]);
                let own = kind.of(&self.start.container).and_then(|one| one.termination_grace_period_seconds);
                let what = name.to_lowercase();
                let text = format!(
                    "Container {} failed {what} probe, will be restarted",
                    self.start.container.name
                );
                self.stop_self(own, text);
            }
        }
        if self.health.as_ref() != Some(&before) {
            self.tell_health().await;
        }
    }

    async fn on_post_start(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => {
                if let Some(health) = &mut self.health {
                    health.is_up = true;
                }
                self.tell_health().await;
            }
            Err(error) => {
                tracing::info!(pod = %self.context.display(), container = self.instance.container, error, "postStart hook failed");
                self.event(true, "FailedPostStartHook", "PostStartHook failed".to_owned()).await;
                self.stop_self(None, "FailedPostStartHook".to_owned());
            }
        }
    }

    /// Stops this run for a reason of its own; the worker decides whether another follows.
    fn stop_self(&mut self, own_grace: Option<i64>, message: String) {
        let pod_grace = self.start.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = own_grace.or(pod_grace).and_then(|one| u64::try_from(one).ok()).unwrap_or(30);
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let (sender, receiver) = watch::channel(Some(Stop { deadline, message }));
        // The request of the worker goes on to be heard through the same loop.
        let worker = std::mem::replace(&mut self.start.stop, receiver);
        self.start.stop.mark_changed();
        self.tasks.spawn(forward_stop(worker, sender));
    }

    async fn on_stop(&mut self, stop: Stop, link: &mut Link) {
        self.end_probes(&[ProbeKind::Startup, ProbeKind::Liveness]);
        let deadline = stop.deadline.max(Instant::now() + MIN_GRACE);
        if let Some(stopping) = &mut self.stopping {
            // A second request can only shorten the grace.
            stopping.deadline = stopping.deadline.min(deadline);
            return;
        }
        self.stopping = Some(Stopping {
            deadline,
            is_signalled: false,
            is_killed: false,
        });
        self.event(false, "Killing", stop.message).await;
        let hook = self.start.container.lifecycle.as_ref().and_then(|one| one.pre_stop.clone());
        match hook {
            Some(hook) if self.instance.pid().is_some() => self.spawn_hook(hook, Some(deadline)),
            _ => self.signal(link).await,
        }
    }

    fn spawn_hook(&mut self, hook: LifecycleHandler, deadline: Option<Instant>) {
        let instance = Arc::clone(&self.instance);
        let container = Arc::clone(&self.start.container);
        let results = self.hook_results.clone();
        let address = self.context.config.node_ips.first().copied();
        let address = address.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
        self.tasks.spawn(async move {
            let work = hooks::run(&instance, &container, &hook, address);
            let result = match deadline {
                None => HookResult::PostStart(work.await),
                Some(deadline) => HookResult::PreStop(
                    tokio::time::timeout_at(deadline, work)
                        .await
                        .unwrap_or_else(|_| Err("PreStopHook did not end within the grace period".to_owned())),
                ),
            };
            let _ = results.send(result).await;
        });
    }

    /// Sends the stop signal.
    async fn signal(&mut self, link: &mut Link) {
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        stopping.is_signalled = true;
        stopping.deadline = stopping.deadline.max(Instant::now() + MIN_GRACE);
        let number = stop_signal(&self.start.container);
        let _ = link.writer.send(Kind::Signal, &[number]).await;
    }

    async fn kill(&mut self, link: &mut Link) {
        if let Some(stopping) = &mut self.stopping {
            stopping.is_killed = true;
            stopping.deadline = Instant::now();
        }
        let kill = u8::try_from(rustix::process::Signal::KILL.as_raw()).unwrap_or(9);
        let _ = link.writer.send(Kind::Signal, &[kill]).await;
        if let Some(cgroup) = self.instance.launch.cgroup.clone() {
            let _ = tokio::task::spawn_blocking(move || cgroup.kill_once()).await;
        }
    }

    async fn tell_health(&self) {
        if let Some(health) = &self.health {
            let report = Report::Health(self.start.index, health.clone());
            let _ = self.reports.send(report).await;
        }
    }

    async fn event(&self, is_warning: bool, reason: &'static str, message: String) {
        let event = self.context.event(self.start.role, &self.start.container, is_warning, reason, message);
        let _ = self.reports.send(Report::Event(event)).await;
    }

    /// Removes the cgroup and reports the end.
    async fn clean(self, record: Option<ExitRecord>) {
        if let Some(cgroup) = self.instance.launch.cgroup.clone() {
            let result = tokio::task::spawn_blocking(move || cgroup.remove()).await;
            if let Ok(Err(error)) = result {
                tracing::warn!(pod = %self.context.display(), container = self.instance.container, %error, "cannot remove the cgroup of a container");
            }
        }
        self.instance.ended.send_replace(true);
        let id = &self.instance.id;
        let ended = match record {
            Some(record) => {
                if let Some(message) = &record.start_error {
                    self.event(true, "Failed", format!("Error: {message}")).await;
                }
                let message = self.message(&record).await;
                Ended::from_record(id, &record, message)
            }
            None => {
                let started_ms = self.health.as_ref().map(|one| one.started_ms);
                Ended::unknown(id, started_ms, now_ms())
            }
        };
        self.context.metrics.ended(&ended.reason);
        let _ = self.reports.send(Report::Ended(self.start.index, ended)).await;
    }

    async fn message(&self, record: &ExitRecord) -> Option<String> {
        let folder: &Path = &self.instance.folder;
        let file = folder.join(TERMINATION_LOG);
        let policy = self.start.container.termination_message_policy.as_deref();
        let falls_back = policy == Some("FallbackToLogsOnError") && record.code != 0;
        let log = falls_back.then(|| self.context.log_path(&self.instance.container, self.start.attempt));
        let work = move || termination_message(&file, log.as_deref());
        tokio::task::spawn_blocking(work).await.ok().flatten()
    }
}

/// Passes requests of the worker on, after a run has begun to stop by itself.
async fn forward_stop(mut worker: watch::Receiver<Option<Stop>>, sender: watch::Sender<Option<Stop>>) {
    while worker.changed().await.is_ok() {
        let stop = worker.borrow_and_update().clone();
        if stop.is_some() && sender.send(stop).is_err() {
            return;
        }
    }
    // Keeps the channel open: its end means that the worker is gone.
    std::future::pending::<()>().await;
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of a shim that has reported its last.
async fn reap(child: Option<Child>) {
    if let Some(mut child) = child {
        let _ = child.wait().await;
    }
}

fn stop_signal(container: &Container) -> u8 {
    let name = container.lifecycle.as_ref().and_then(|one| one.stop_signal.as_deref());
    match name {
        Some("SIGHUP") => 1,
        Some("SIGINT") => 2,
        Some("SIGQUIT") => 3,
        Some("SIGKILL") => 9,
        Some("SIGUSR1") => 10,
        Some("SIGUSR2") => 12,
        _ => 15,
    }
}

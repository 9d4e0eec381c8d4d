//! The supervision of one run, over the link to its shim.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::{Instance, Report, Start, Stop};
use crate::context::PodContext;
use crate::hooks;
use crate::launch::TERMINATION_LOG;
use crate::link::Link;
use crate::messages::termination_message;
use crate::probe::{self, Outcome, ProbeKind, ProbeReport};
use crate::shim::protocol::Kind;
use crate::shim::record::{
    EXIT_FILE, ExitRecord, PROCESS_FILE, ProcessRecord, now_ms, read_record,
};
use crate::state::{Ended, Running};

/// The shortest time between the stop signal and the kill.
const MIN_GRACE: Duration = Duration::from_secs(2);
/// How long a shim may take to open its socket.
const SHIM_START: Duration = Duration::from_secs(30);
/// How long a shim may take to report the end of a killed process.
const KILL_REPORT: Duration = Duration::from_secs(15);

/// Supervises a run over the link to its shim.
pub(super) struct Driver {
    pub(super) context: Arc<PodContext>,
    pub(super) start: Start,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) instance: Arc<Instance>,
    pub(super) health: Option<Running>,
    pub(super) tasks: JoinSet<()>,
    /// The startup and liveness probes, which end when the container is to stop.
    pub(super) checks: Vec<(ProbeKind, AbortHandle)>,
    pub(super) probe_reports: mpsc::Sender<ProbeReport>,
    pub(super) hook_results: mpsc::Sender<HookResult>,
    pub(super) stopping: Option<Stopping>,
}

/// How far the stop of a run is.
#[derive(Debug)]
pub(super) struct Stopping {
    deadline: Instant,
    is_signalled: bool,
    is_killed: bool,
}

/// The end of a hook.
#[derive(Debug)]
pub(super) enum HookResult {
    PostStart(Result<(), String>),
    PreStop(Result<(), String>),
}

impl Driver {
    pub(super) async fn drive(
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
                if one.is_killed {
                    one.deadline + KILL_REPORT
                } else {
                    one.deadline
                }
            });
            tokio::select! {
                frame = link.reader.next() => match frame {
                    Ok(Some((Kind::Started, payload))) => {
                        if let Ok(process) = serde_json::from_slice(&payload) {
                            self.on_started(process).await;
                        }
                    }
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
        let process: Option<ProcessRecord> = read_record(&self.instance.folder.join(PROCESS_FILE))
            .ok()
            .flatten();
        if let Ok(Some(record)) = read_record(&exit_path) {
            // A program can end before anybody has connected to its shim.
            if let Some(process) = process {
                self.mark_started(process).await;
            }
            reap(child).await;
            return Some(record);
        }
        if let Some(process) = process {
            process.shim.kill();
            process.main.kill();
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

    async fn on_started(&mut self, process: ProcessRecord) {
        if !self.mark_started(process).await {
            return;
        }
        let is_new = !self.start.is_adopted;
        let lifecycle = self.start.container.lifecycle.as_ref();
        // A hook of an adopted container is not run again.
        if let Some(hook) = lifecycle
            .and_then(|one| one.post_start.clone())
            .filter(|_| is_new)
        {
            self.spawn_hook(hook, None);
        }
        if self.health.as_ref().is_some_and(|one| one.is_started) {
            self.start_probes();
        } else {
            self.start_probe(ProbeKind::Startup);
        }
    }

    /// Reports that the program runs or has run; returns whether that is new.
    async fn mark_started(&mut self, process: ProcessRecord) -> bool {
        let started_ms = process.started_ms;
        if self.instance.process.set(process).is_err() {
            return false;
        }
        let container = Arc::clone(&self.start.container);
        let lifecycle = container.lifecycle.as_ref();
        let has_hook = lifecycle.is_some_and(|one| one.post_start.is_some());
        if let Some(health) = &mut self.health {
            health.is_up = true;
        } else {
            self.event(false, "Started", "Container started".to_owned())
                .await;
            self.health = Some(Running {
                id: self.instance.id.clone(),
                started_ms,
                is_started: container.startup_probe.is_none(),
                is_ready: container.readiness_probe.is_none(),
                is_up: !has_hook || self.start.is_adopted,
            });
        }
        self.tell_health().await;
        true
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
                let own = kind
                    .of(&self.start.container)
                    .and_then(|one| one.termination_grace_period_seconds);
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
                self.event(
                    true,
                    "FailedPostStartHook",
                    "PostStartHook failed".to_owned(),
                )
                .await;
                self.stop_self(None, "FailedPostStartHook".to_owned());
            }
        }
    }

    /// Stops this run for a reason of its own; the worker decides whether another follows.
    fn stop_self(&mut self, own_grace: Option<i64>, message: String) {
        let pod_grace = self
            .start
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = own_grace
            .or(pod_grace)
            .and_then(|one| u64::try_from(one).ok())
            .unwrap_or(30);
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
        let hook = self
            .start
            .container
            .lifecycle
            .as_ref()
            .and_then(|one| one.pre_stop.clone());
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
                        .unwrap_or_else(|_| {
                            Err("PreStopHook did not end within the grace period".to_owned())
                        }),
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
        let event = self.context.event(
            self.start.role,
            &self.start.container,
            is_warning,
            reason,
            message,
        );
        let _ = self.reports.send(Report::Event(event)).await;
    }

    /// Removes the cgroup and reports the end.
    pub(super) async fn clean(self, record: Option<ExitRecord>) {
        if let Some(cgroup) = self.instance.launch.cgroup.clone() {
            let result = tokio::task::spawn_blocking(move || cgroup.remove()).await;
            if let Ok(Err(error)) = result {
                tracing::warn!(pod = %self.context.display(), container = self.instance.container, %error, "cannot remove the cgroup of a container");
            }
        }
        self.instance.ended.send_replace(true);
        let id = &self.instance.id;
        let ended = if let Some(record) = record {
            if let Some(message) = &record.start_error {
                self.event(true, "Failed", format!("Error: {message}"))
                    .await;
            }
            let message = self.message(&record).await;
            Ended::from_record(id, &record, message)
        } else {
            let started_ms = self.health.as_ref().map(|one| one.started_ms);
            Ended::unknown(id, started_ms, now_ms())
        };
        self.context.metrics.ended(&ended.reason);
        let _ = self
            .reports
            .send(Report::Ended(self.start.index, ended))
            .await;
    }

    async fn message(&self, record: &ExitRecord) -> Option<String> {
        let folder: &Path = &self.instance.folder;
        let file = folder.join(TERMINATION_LOG);
        let policy = self.start.container.termination_message_policy.as_deref();
        let falls_back = policy == Some("FallbackToLogsOnError") && record.code != 0;
        let log = falls_back.then(|| {
            self.context
                .log_path(&self.instance.container, self.start.attempt)
        });
        let work = move || termination_message(&file, log.as_deref());
        tokio::task::spawn_blocking(work).await.ok().flatten()
    }
}

/// Passes requests of the worker on, after a run has begun to stop by itself.
async fn forward_stop(
    mut worker: watch::Receiver<Option<Stop>>,
    sender: watch::Sender<Option<Stop>>,
) {
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
    let name = container
        .lifecycle
        .as_ref()
        .and_then(|one| one.stop_signal.as_deref());
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

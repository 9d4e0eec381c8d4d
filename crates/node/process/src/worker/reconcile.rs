//! What to do next with a pod.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_model::GoDuration;
use tokio::time::Instant;

use super::{VolumeState, Worker};
use crate::backoff::CrashBackoff;
use crate::command::random_id;
use crate::instance::{Report, Stop};
use crate::resources::Limits;
use crate::shim::record::now_ms;
use crate::state::{Failure, Phase, RestartPolicy, Role, Waiting, container};
use crate::status::START_ERROR;

/// The grace of a pod that does not say.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// What a container needs before the next one may start.
enum Turn {
    /// The next may start.
    Done,
    /// The next must wait, until then at the latest.
    Wait(Option<Instant>),
}

impl Worker {
    /// Starts and stops what is due. Returns when to look again if nothing happens.
    pub(super) fn reconcile(&mut self) -> Option<Instant> {
        if self.state.is_terminated {
            return None;
        }
        let deadline = self.check_deadline();
        if self.state.termination.is_some() || self.state.failure.is_some() || self.is_finished() {
            return self.wind_down();
        }
        let volumes = match self.prepare_volumes() {
            Ok(wake) => wake,
            Err(wake) => return earliest([deadline, wake]),
        };
        let containers = self.start_containers();
        earliest([deadline, volumes, containers])
    }

    /// Fails the pod once `activeDeadlineSeconds` have passed.
    fn check_deadline(&mut self) -> Option<Instant> {
        if self.state.failure.is_some() || self.state.termination.is_some() || self.is_finished() {
            return None;
        }
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        let end_ms = self
            .state
            .started_ms
            .saturating_add(seconds.saturating_mul(1000));
        let left = u64::try_from(end_ms.saturating_sub(now_ms())).unwrap_or(0);
        if left > 0 {
            return Some(Instant::now() + Duration::from_millis(left));
        }
        let message = "Pod was active on the node longer than the specified deadline";
        self.state.failure = Some(Failure {
            reason: "DeadlineExceeded".to_owned(),
            message: message.to_owned(),
        });
        let event = self
            .context
            .pod_event(false, "DeadlineExceeded", message.to_owned());
        self.push_event(event);
        None
    }

    /// Whether no container will run again.
    fn is_finished(&self) -> bool {
        let policy = RestartPolicy::of(&self.pod);
        let is_done = |one: &crate::state::ContainerState| {
            let Phase::Ended = one.phase else {
                return None;
            };
            let ended = one.ended.as_ref()?;
            let (role, spec) = container(&self.pod, &one.name)?;
            (!policy.restarts(spec, role, ended.code)).then_some(ended.code)
        };
        let has_failed_init = self
            .state
            .containers
            .iter()
            .any(|one| one.role == Role::Init && is_done(one).is_some_and(|code| code != 0));
        let mut mains = self
            .state
            .containers
            .iter()
            .filter(|one| one.role == Role::Main);
        has_failed_init || mains.all(|one| is_done(one).is_some())
    }

    /// Sets up volumes, and refreshes them. `Err` means that containers must wait.
    fn prepare_volumes(&mut self) -> Result<Option<Instant>, Option<Instant>> {
        let now = Instant::now();
        match self.volumes {
            VolumeState::InProgress => Err(None),
            VolumeState::RetryAt(at) if at > now => Err(Some(at)),
            VolumeState::Absent | VolumeState::RetryAt(_) => {
                self.volumes = VolumeState::InProgress;
                self.set_up_volumes();
                Err(None)
            }
            VolumeState::Ready => {
                if self.refresh_at.is_some_and(|at| at <= now) {
                    self.refresh_at = None;
                    self.set_up_volumes();
                }
                Ok(self.refresh_at)
            }
        }
    }

    fn start_containers(&mut self) -> Option<Instant> {
        let mut wakes = Vec::new();
        for index in 0..self.state.containers.len() {
            let Some(role) = self.state.containers.get(index).map(|one| one.role) else {
                break;
            };
            match (role, self.turn(index)) {
                (_, Turn::Done) => {}
                // Main containers do not wait for one that is in back-off.
                (Role::Main, Turn::Wait(Some(at))) => wakes.push(at),
                (_, Turn::Wait(at)) => {
                    wakes.extend(at);
                    break;
                }
            }
        }
        wakes.into_iter().min()
    }

    /// Starts a container if it is due.
    fn turn(&mut self, index: usize) -> Turn {
        let Some(one) = self.state.containers.get(index) else {
            return Turn::Done;
        };
        match &one.phase {
            Phase::Starting { .. } => return Turn::Wait(None),
            Phase::Running(running) => {
                let is_done = match one.role {
                    Role::Init => false,
                    Role::Sidecar => running.is_up && running.is_started,
                    Role::Main => running.is_up,
                };
                return if is_done {
                    Turn::Done
                } else {
                    Turn::Wait(None)
                };
            }
            Phase::Waiting(_) | Phase::Ended => {}
        }
        let Some((role, spec)) = container(&self.pod, &one.name) else {
            return Turn::Done;
        };
        if let Some(ended) = &one.ended
            && !RestartPolicy::of(&self.pod).restarts(spec, role, ended.code)
        {
            return Turn::Done;
        }
        let now = Instant::now();
        if let Some(at) = self.retries.get(&index).copied() {
            if at > now {
                return Turn::Wait(Some(at));
            }
            self.retries.remove(&index);
        }
        if let Some(left) = self.back_off(index) {
            return Turn::Wait(Some(now + left));
        }
        self.start(index);
        Turn::Wait(None)
    }

    /// How long a container must wait for its next run.
    fn back_off(&mut self, index: usize) -> Option<Duration> {
        let config = self.context.config.crash_backoff;
        let pod = self.context.display();
        let one = self.state.containers.get_mut(index)?;
        let ended = one.ended.as_ref()?;
        let left = CrashBackoff::remaining(one.backoff, ended.finished_ms, now_ms(), config)?;
        let delay = one.backoff.map(|one| one.delay()).unwrap_or_default();
        let delay = GoDuration::from_nanos(i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX));
        let id = ended.id.clone();
        one.phase = Phase::Waiting(Some(Waiting {
            reason: "CrashLoopBackOff".to_owned(),
            message: format!(
                "back-off {delay} restarting failed container={} pod={pod}",
                one.name
            ),
        }));
        if self.told.get(&index) != Some(&id) {
            self.told.insert(index, id);
            let name = one.name.clone();
            if let Some((role, spec)) = container(&self.pod, &name) {
                let message = format!("Back-off restarting failed container {name} in pod {pod}");
                let event = self.context.event(role, spec, true, "BackOff", message);
                self.push_event(event);
            }
        }
        Some(left)
    }

    fn start(&mut self, index: usize) {
        let config = self.context.config.crash_backoff;
        let Some(one) = self.state.containers.get_mut(index) else {
            return;
        };
        let Ok(id) = random_id() else {
            self.retries
                .insert(index, Instant::now() + self.context.config.retry);
            return;
        };
        let mut attempt = one.restart_count;
        if let Some(ended) = &one.ended {
            one.backoff = Some(CrashBackoff::next(one.backoff, ended.finished_ms, config));
            attempt = attempt.saturating_add(1);
        }
        // What is shown until it runs stays: the last end, or the reason to wait.
        one.phase = Phase::Starting { id: id.clone() };
        // On disk before the process: what is not known cannot be adopted.
        self.persist();
        self.spawn(index, id, attempt, false, None);
    }

    /// A program that could not be started is shown as waiting, as it will be tried again.
    pub(super) fn show_start_error(&mut self, index: usize) {
        let Some(one) = self.state.containers.get_mut(index) else {
            return;
        };
        let Some((role, spec)) = container(&self.pod, &one.name) else {
            return;
        };
        let is_ending = self.state.termination.is_some() || self.state.failure.is_some();
        if let Some(ended) = &one.ended
            && ended.reason == START_ERROR
            && !is_ending
            && RestartPolicy::of(&self.pod).restarts(spec, role, ended.code)
        {
            one.phase = Phase::Waiting(Some(Waiting {
                reason: "RunContainerError".to_owned(),
                message: ended.message.clone().unwrap_or_default(),
            }));
        }
    }

    /// Stops what runs: main and init containers together, then sidecars in reverse order.
    fn wind_down(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let end_by = *self.end_by.get_or_insert_with(|| now + grace(&self.pod));
        let mut indices: Vec<usize> = self.live.keys().copied().collect();
        indices.sort_unstable();
        let is_sidecar = |index: &usize| {
            self.state
                .containers
                .get(*index)
                .is_some_and(|one| one.role == Role::Sidecar)
        };
        let others: Vec<usize> = indices
            .iter()
            .copied()
            .filter(|one| !is_sidecar(one))
            .collect();
        let due = if !others.is_empty() {
            others
        } else if now >= end_by {
            indices.clone()
        } else {
            indices.last().copied().into_iter().collect()
        };
        for index in &due {
            self.stop(*index, end_by);
        }
        if indices.is_empty() && !self.is_cleaning {
            self.is_cleaning = true;
            self.clean_up();
        }
        (!indices.is_empty() && now < end_by).then_some(end_by)
    }

    fn stop(&mut self, index: usize, deadline: Instant) {
        let name = self.state.containers.get(index).map(|one| one.name.clone());
        if let Some(live) = self.live.get(&index) {
            let message = format!("Stopping container {}", name.unwrap_or_default());
            let stop = Some(Stop { deadline, message });
            live.stop.send_if_modified(|old| {
                let has_changed = *old != stop;
                *old = stop;
                has_changed
            });
        }
    }

    /// Passes a shorter deadline on to containers that are stopping.
    pub(super) fn tell_deadline(&mut self) {
        if let Some(deadline) = self.end_by {
            let stopping: Vec<usize> = self
                .live
                .iter()
                .filter(|(_, live)| live.stop.borrow().is_some())
                .map(|(index, _)| *index)
                .collect();
            for index in stopping {
                self.stop(index, deadline);
            }
        }
    }

    fn clean_up(&mut self) {
        let context = Arc::clone(&self.context);
        let reports = self.report_to.clone();
        self.tasks.spawn(async move {
            if let Some(cgroups) = context.cgroups.clone() {
                let cgroup = cgroups.pod(&context.id.uid.to_string());
                let result = tokio::task::spawn_blocking(move || cgroup.remove()).await;
                if let Ok(Err(error)) = result {
                    tracing::warn!(pod = %context.display(), %error, "cannot remove the cgroup of a pod");
                }
            }
            let _ = reports.send(Report::Cleaned).await;
        });
    }

    /// Applies what may change in a running pod: resources, and images by a new run.
    pub(super) fn apply_changes(&mut self, before: &Pod) {
        let mut has_new_resources = false;
        let names: Vec<(usize, String)> = self
            .state
            .containers
            .iter()
            .enumerate()
            .map(|(index, one)| (index, one.name.clone()))
            .collect();
        for (index, name) in names {
            let (Some((_, old)), Some((_, new))) =
                (container(before, &name), container(&self.pod, &name))
            else {
                continue;
            };
            if old.resources != new.resources {
                has_new_resources = true;
                let instance = self.shared.read().instances.get(&name).cloned();
                if let Some(cgroup) = instance.and_then(|one| one.launch.cgroup.clone()) {
                    self.report_limits(
                        cgroup.apply(&Limits::of_container(new, self.context.config.max_pids)),
                    );
                }
            }
            let is_stopping = self.state.termination.is_some() || self.state.is_terminated;
            if old.image != new.image
                && !is_stopping
                && let Some(live) = self.live.get(&index)
            {
                let message = format!("Container {name} definition changed, will be restarted");
                let deadline = Instant::now() + grace(&self.pod);
                live.stop.send_replace(Some(Stop { deadline, message }));
            }
        }
        if has_new_resources
            && let (Some(cgroups), Some(spec)) = (&self.context.cgroups, &self.pod.spec)
        {
            let cgroup = cgroups.pod(&self.context.id.uid.to_string());
            if cgroup.exists() {
                self.report_limits(
                    cgroup.apply(&Limits::of_pod(spec, self.context.config.max_pids)),
                );
            }
        }
    }

    fn report_limits(&self, result: std::io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(pod = %self.context.display(), %error, "cannot change the limits of a pod");
        }
    }
}

/// The grace of a pod that ends by itself.
fn grace(pod: &Pod) -> Duration {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds)
        .and_then(|one| u64::try_from(one).ok())
        .map_or(DEFAULT_GRACE, Duration::from_secs)
}

fn earliest<const N: usize>(times: [Option<Instant>; N]) -> Option<Instant> {
    times.into_iter().flatten().min()
}

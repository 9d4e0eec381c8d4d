//! Applies the statuses of containers.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{
    Condition, ContainerSpec, ContainerState, ContainerStatus, Pod, Termination, Timestamp,
};

use crate::moment::{Moment, note};
use crate::record::{
    ContainerRecord, ContainerRole, Exit, ExitKind, PodRecord, RestartsBeforeReady,
};

/// Downtimes that are kept individually.
const MAX_FIRST_DOWNS: usize = 32;

/// The runs of a container, as far as one status shows them.
struct Runs<'s> {
    /// The start of the first, if the status still has it.
    first_start: Option<Timestamp>,
    /// The last one that ended.
    last_end: Option<&'s Termination>,
    /// The one before the current, or the last if the next has not started.
    before: Option<&'s Termination>,
    /// The time between the last two.
    down: Option<Duration>,
}

impl PodRecord {
    pub(super) fn apply_containers(&mut self, pod: &Pod, observed: Option<Timestamp>) {
        // The kubelet computes it together with the statuses.
        let all_ready = Condition::find(&pod.conditions, "ContainersReady")
            .filter(|condition| condition.is_true())
            .and_then(|condition| condition.last_transition);
        let init = pod
            .init_containers
            .iter()
            .map(|spec| (spec, &pod.init_container_statuses));
        let main = pod
            .containers
            .iter()
            .map(|spec| (spec, &pod.container_statuses));
        let was_ready_before = self.was_ready_before;
        for (record, (spec, statuses)) in self.containers.iter_mut().zip(init.chain(main)) {
            if let Some(status) = statuses.iter().find(|status| status.name == spec.name) {
                record.apply_status(spec, status, observed);
                if record.role == ContainerRole::Init || !was_ready_before {
                    record.apply_ready(spec, status, all_ready, observed);
                }
            }
        }
    }
}

impl ContainerRecord {
    pub(super) fn new(spec: &ContainerSpec, role: ContainerRole) -> Self {
        Self {
            name: Arc::clone(&spec.name),
            role,
            image: spec.image.clone(),
            running: None,
            started: None,
            ready: None,
            finished: None,
            last_exit: None,
            restarts: 0,
            down: Duration::ZERO,
            downs: 0,
            restart_log: None,
        }
    }

    fn apply_status(
        &mut self,
        spec: &ContainerSpec,
        status: &ContainerStatus,
        observed: Option<Timestamp>,
    ) {
        if let Some(runs) = Runs::of(status) {
            note(&mut self.running, runs.first_start, observed);
            self.apply_end(&runs, observed);
            if status.restart_count > self.restarts {
                self.apply_restarts(status, &runs);
            }
        }
        self.apply_start(spec, status, observed);
    }

    fn apply_restarts(&mut self, status: &ContainerStatus, runs: &Runs<'_>) {
        let more = status.restart_count.abs_diff(self.restarts);
        self.restarts = status.restart_count;
        let log = self.restart_log.get_or_insert_default();
        if let Some(down) = runs.down {
            self.down = self.down.saturating_add(down);
            self.downs = self.downs.saturating_add(1);
            if log.first_downs.len() < MAX_FIRST_DOWNS {
                log.first_downs.push(down);
            }
        }
        let reason = runs.before.and_then(|end| end.reason.as_deref());
        let kind = ExitKind::of(reason);
        let at = log.after.partition_point(|(known, _)| *known < kind);
        match log.after.get_mut(at) {
            Some((known, times)) if *known == kind => *times = times.saturating_add(more),
            _ => log.after.insert(at, (kind, more)),
        }
    }

    fn apply_start(
        &mut self,
        spec: &ContainerSpec,
        status: &ContainerStatus,
        observed: Option<Timestamp>,
    ) {
        // Init containers that are no sidecars have no probes.
        let starts_by_running = self.role == ContainerRole::Init || !spec.has_startup_probe;
        if starts_by_running {
            self.started = self.started.or(self.running);
        } else if status.started == Some(true) {
            note(&mut self.started, None, observed);
        }
    }

    fn apply_ready(
        &mut self,
        spec: &ContainerSpec,
        status: &ContainerStatus,
        all_ready: Option<Timestamp>,
        observed: Option<Timestamp>,
    ) {
        if self.role == ContainerRole::Init {
            if let ContainerState::Terminated(end) = &status.state
                && end.exit_code == 0
            {
                note(&mut self.ready, end.finished_at, observed);
            }
        } else if status.ready && self.ready.is_none() {
            let run = self.apply_restarts_before_ready(status, observed);
            // Where another container is still not ready, the API has no time for this one.
            let running = run.or(self.running).and_then(|running| running.api);
            let api = all_ready.filter(|&ready| running.is_none_or(|running| running <= ready));
            let by_condition = Some(Moment { api, observed });
            self.ready = if spec.has_readiness_probe {
                by_condition
            } else {
                let started = run.filter(|_| !spec.has_startup_probe).or(self.started);
                // A state that was read once has no time for a startup probe that has passed. That
                // of a sidecar passed before the next container started.
                let is_unknown = started.is_none_or(|started| started.best().is_none());
                if is_unknown && self.role == ContainerRole::Main {
                    by_condition
                } else {
                    started
                }
            };
        }
    }

    /// Records the run in which a container is first ready, if it was restarted before.
    fn apply_restarts_before_ready(
        &mut self,
        status: &ContainerStatus,
        observed: Option<Timestamp>,
    ) -> Option<Moment> {
        let ContainerState::Running { started_at } = status.state else {
            return None;
        };
        let log = self.restart_log.as_mut()?;
        let run = Moment {
            api: started_at,
            observed,
        };
        log.before_ready = Some(RestartsBeforeReady {
            restarts: self.restarts,
            run,
        });
        Some(run)
    }

    fn apply_end(&mut self, runs: &Runs<'_>, observed: Option<Timestamp>) {
        let Some(end) = runs.last_end else {
            return;
        };
        let is_known = self
            .finished
            .is_some_and(|known| known.api == end.finished_at);
        if !is_known {
            self.finished = Some(Moment {
                api: end.finished_at,
                observed,
            });
            self.last_exit = Some(Exit {
                code: end.exit_code,
                signal: end.signal,
                reason: end.reason.clone(),
            });
        }
    }
}

impl<'s> Runs<'s> {
    /// `None` if it never ran: a container that the kubelet lost has an end, but no start.
    fn of(status: &'s ContainerStatus) -> Option<Self> {
        let (this, is_ended) = match &status.state {
            ContainerState::Running { started_at } => (*started_at, None),
            ContainerState::Terminated(end) => (end.started_at, Some(&**end)),
            ContainerState::Waiting { .. } | ContainerState::Unset => (None, None),
        };
        let is_waiting = matches!(
            status.state,
            ContainerState::Waiting { .. } | ContainerState::Unset
        );
        let before = match &status.last_state {
            ContainerState::Terminated(end) if end.started_at.is_some() => Some(&**end),
            _ => None,
        };
        let has_run = this.is_some() || before.is_some();
        if !has_run {
            return None;
        }
        // The count goes up when the next run starts: while it waits, the last state is that of the
        // counted run.
        let first_start = match (status.restart_count, is_waiting) {
            (0, false) => this,
            (0, true) | (1, false) => before.and_then(|end| end.started_at),
            _ => None,
        };
        Some(Self {
            first_start,
            last_end: is_ended.filter(|end| end.started_at.is_some()).or(before),
            before,
            down: before
                .and_then(|end| end.finished_at)
                .zip(this)
                .and_then(|(end, start)| start.since(end)),
        })
    }
}

/// The newest time in a state.
pub(super) fn newest(state: &ContainerState) -> Option<Timestamp> {
    match state {
        ContainerState::Running { started_at } => *started_at,
        ContainerState::Terminated(end) => end.finished_at.or(end.started_at),
        ContainerState::Waiting { .. } | ContainerState::Unset => None,
    }
}

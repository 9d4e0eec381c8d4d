//! Reconstructs the start of a pod that was not watched, from its last state and its events.
//!
//! A condition has the time of its last change alone. A pod that was ready, lost readiness for a
//! while and regained it carries the time of the last return, and would seem to have taken days to
//! start. The rest of the state rules out some of these cases.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Event, Pod, Timestamp};

use crate::blocker::{Blocker, BlockerKind};
use crate::facts::Facts;
use crate::moment::Moment;
use crate::record::{ContainerRecord, ContainerRole, PodRecord};
use crate::tracker::{Arrival, Existing, Output, Tracker, TrackerConfig};

/// A kubelet reports a container without probes as ready in the second in which it sees it run.
/// Under load that takes longer, but not this long.
const MAX_REPORT_DELAY: Duration = Duration::from_mins(1);

/// The back-off of the kubelet between two runs of a container.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const MAX_BACK_OFF: Duration = Duration::from_mins(5);

/// A run of a container that crashes, at the longest: one that lasts longer may have been ready.
const MAX_CRASHING_RUN: Duration = Duration::from_secs(30);

/// Restarts beyond this number are not from the start.
const MAX_CRASHES: u32 = 16;

impl PodRecord {
    /// Reconstructs the record of a pod from one state and its events.
    ///
    /// Steps without a time in the API stay without one: the time of observation, which is now,
    /// says nothing about it.
    ///
    /// # Panics
    ///
    /// Never: a tracker emits every pod that it was given.
    pub fn reconstruct(pod: &Arc<Pod>, events: &[Event], now: Timestamp) -> Self {
        let mut tracker = Tracker::new(TrackerConfig {
            linger: None,
            existing: Existing::All,
            ..TrackerConfig::default()
        });
        let mut lifecycle = None;
        let mut take = |output: Output| {
            if let Output::Lifecycle(record) = output {
                lifecycle = Some(record);
            }
        };
        tracker.pod(pod, Arrival::Listed, None, &mut take);
        tracker.finish(&mut take);
        let record = lifecycle.expect("the tracker was given this pod and has finished");
        let mut record = Arc::unwrap_or_clone(record).as_of(now);
        // Of a pod that is ready, later events say nothing about its start.
        let ready = record.milestones.ready.and_then(Moment::best);
        for event in events.iter().filter(|event| Facts::is_relevant(event)) {
            let began = event.first.or(event.time).or(event.created);
            if ready.is_none_or(|ready| began.is_none_or(|began| began <= ready)) {
                record.facts.learn(event);
            }
        }
        record
    }

    /// Corrects doubtful times, and extends a start that is not settled to `now`.
    #[must_use]
    pub fn as_of(mut self, now: Timestamp) -> Self {
        self.correct_readiness();
        if !self.is_settled() {
            self.latest = self.latest.max(Some(now));
        }
        self
    }

    /// Corrects the readiness times of a pod that was not watched as it started.
    ///
    /// - An unreachable node makes the pod not ready, but not its containers: those became ready
    ///   before.
    /// - A pod whose containers have no readiness probe was ready as soon as they ran.
    /// - A pod with a restarted container may have been ready before, at an unknown time
    ///   ([`BlockerKind::Unseen`]).
    ///
    /// A readiness probe that failed for a while without a restart leaves no trace
    /// ([`is_upper_bound`](Self::is_upper_bound)).
    pub fn correct_readiness(&mut self) {
        let Some(ready) = self.milestones.ready else {
            self.complete_finished();
            return;
        };
        // An observed time is correct.
        if !self.reconstructed || ready.observed.is_some() {
            return;
        }
        if self.may_be_ready_again(ready) {
            self.forget_readiness();
            return;
        }
        let containers = self.milestones.containers_ready.and_then(Moment::best);
        if self.gates.is_empty() && containers.is_some_and(|at| Some(at) < ready.best()) {
            self.milestones.ready = self.milestones.containers_ready;
        }
        self.do_without_probes();
    }

    /// Whether the time at which it was ready is the latest possible one: it was not watched, and
    /// may have been ready long before, and again after a readiness probe that failed for a while.
    pub fn is_upper_bound(&self) -> bool {
        let Some(ready) = self.milestones.ready else {
            return false;
        };
        let since = self
            .last_certain_step()
            .and_then(|last| ready.best()?.since(last));
        self.reconstructed
            && ready.observed.is_none()
            && since.is_some_and(|since| since > MAX_REPORT_DELAY)
    }

    /// The time that the start took for certain: [`total`](Self::total), or up to the last step
    /// whose time is certain.
    pub fn certain_total(&self) -> Option<Duration> {
        if !self.is_upper_bound() {
            return self.total();
        }
        self.last_certain_step()?
            .since(self.milestones.created.best()?)
    }

    /// The last step before readiness.
    fn last_certain_step(&self) -> Option<Timestamp> {
        let reached = &self.milestones;
        let steps = [Some(reached.created), reached.scheduled, reached.sandbox];
        let starts = self.containers.iter();
        let starts = starts.flat_map(|one| [one.running, one.started]);
        let steps = steps.into_iter().chain(starts);
        let steps = steps.filter_map(|moment| moment?.best());
        // A startup probe runs until it passes, once.
        let ready = reached.ready.and_then(Moment::best);
        let failed = self.containers.iter().filter_map(|one| {
            let failed = self.facts_of(one)?.startup_probe.last()?;
            (one.restarts == 0 && Some(failed) <= ready).then_some(failed)
        });
        steps.chain(failed).max()
    }

    /// Completes the start of a pod that has finished: without probes it was ready when its
    /// containers ran, if they ran for longer than it takes to report that.
    fn complete_finished(&mut self) {
        let is_finished = self.reconstructed && self.was_ready_before && self.is_over();
        let mut mains = self.containers.iter();
        let is_known = mains.all(|one| one.running.is_some() && one.restarts == 0);
        if !is_finished || !is_known || self.has_probes_or_gates() {
            return;
        }
        let runs = self.containers.iter().map(|container| container.running);
        let Some(last) = runs.flatten().max_by_key(|running| running.best()) else {
            return;
        };
        for container in &mut self.containers {
            if container.role != ContainerRole::Init {
                container.ready = container.running;
            }
        }
        self.milestones.containers_ready = Some(last);
        self.milestones.ready = Some(last);
        self.was_ready_before = false;
        self.state_blocker = None;
    }

    fn has_probes_or_gates(&self) -> bool {
        let mut stay = self.pod.containers.iter().chain(&self.pod.init_containers);
        let has_probes = stay.any(|spec| spec.has_readiness_probe || spec.has_startup_probe);
        has_probes || !self.gates.is_empty()
    }

    fn may_be_ready_again(&self, ready: Moment) -> bool {
        let stay = self.containers.iter();
        let mut stay = stay.filter(|container| container.role != ContainerRole::Init);
        stay.any(|container| {
            let ended = container.finished.and_then(Moment::best);
            // Readiness before the exit is that of the first run.
            let is_first = container.restarts == 1 && ended > ready.best();
            container.restarts > 0 && !is_first && !self.crashed_from_start(container)
        })
    }

    /// Whether all restarts of a container follow its creation as closely as the back-off of the
    /// kubelet allows: it never stayed up before its last run.
    fn crashed_from_start(&self, container: &ContainerRecord) -> bool {
        let ended = container.finished.and_then(Moment::best);
        let accepted = self.milestones.accepted.and_then(Moment::best);
        let crashed_for = ended.zip(accepted).and_then(|(to, from)| to.since(from));
        let restarts = u32::try_from(container.restarts).unwrap_or(u32::MAX);
        let back_off = (0..restarts.min(MAX_CRASHES)).fold(Duration::ZERO, |sum, crash| {
            let next = FIRST_BACK_OFF.saturating_mul(1 << crash.min(5));
            sum + next.min(MAX_BACK_OFF) + MAX_CRASHING_RUN
        });
        crashed_for.is_some_and(|crashed_for| crashed_for <= back_off)
    }

    fn do_without_probes(&mut self) {
        if self.has_probes_or_gates() {
            return;
        }
        let ran = self.containers.iter().map(|container| container.running);
        let Some(last) = ran.flatten().max_by_key(|running| running.best()) else {
            return;
        };
        let said = self.milestones.ready.and_then(|ready| ready.since(last));
        if said.is_some_and(|later| later > MAX_REPORT_DELAY) {
            self.milestones.containers_ready = Some(last);
            self.milestones.ready = Some(last);
        }
    }

    fn forget_readiness(&mut self) {
        self.milestones.ready = None;
        self.milestones.containers_ready = None;
        for container in &mut self.containers {
            if container.role != ContainerRole::Init {
                container.ready = None;
            }
        }
        self.was_ready_before = true;
        self.state_blocker = Some(Blocker {
            kind: BlockerKind::Unseen,
            container: None,
            reason: None,
            message: None,
        });
    }
}

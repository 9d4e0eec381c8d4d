//! Reconstructs the start of a pod that was not watched, from its last state and its events.
//!
//! A condition has the time of its last change alone. A pod that was ready, lost readiness for a
//! while and regained it carries the time of the last return, and would seem to have taken days to
//! start. The rest of the state rules out some of these cases.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Event, Pod, Timestamp};

use crate::blocker::{Blocker, BlockerKind};
use crate::moment::Moment;
use crate::record::{ContainerRole, PodRecord};
use crate::tracker::{Arrival, Existing, Output, Tracker, TrackerConfig};

/// A kubelet reports a container without probes as ready in the second in which it sees it run.
/// Under load that takes longer, but not this long.
const MAX_REPORT_DELAY: Duration = Duration::from_mins(1);

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
        for event in events {
            tracker.event(event, &mut take);
        }
        tracker.finish(&mut take);
        let record = lifecycle.expect("the tracker was given this pod and has finished");
        Arc::unwrap_or_clone(record).as_of(now)
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
    /// A readiness probe that failed for a while without a restart leaves no trace, and the pod
    /// seems to have been starting until then.
    pub fn correct_readiness(&mut self) {
        let Some(ready) = self.milestones.ready else {
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

    fn may_be_ready_again(&self, ready: Moment) -> bool {
        let stay = self.containers.iter();
        let mut stay = stay.filter(|container| container.role != ContainerRole::Init);
        stay.any(|container| match container.restarts {
            0 => false,
            // Readiness before the exit is that of the first run.
            1 => container
                .finished
                .and_then(Moment::best)
                .is_none_or(|ended| ready.best().is_none_or(|ready| ready > ended)),
            _ => true,
        })
    }

    fn do_without_probes(&mut self) {
        let stay = || self.pod.containers.iter().chain(&self.pod.init_containers);
        let has_probes = stay().any(|spec| spec.has_readiness_probe || spec.has_startup_probe);
        if has_probes || !self.gates.is_empty() {
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
        self.blocker = Some(Blocker {
            kind: BlockerKind::Unseen,
            container: None,
            reason: None,
            message: None,
        });
    }
}

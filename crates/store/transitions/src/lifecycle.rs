//! The state machine of one pod: each state adds what it shows for the first time.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Condition, ContainerState, Pod, ResourceVersion, Timestamp};

use crate::blocker::{Blocker, BlockerKind};
use crate::facts::Facts;
use crate::moment::{Moment, note};
use crate::record::{
    ContainerRecord, ContainerRole, Disruption, End, Milestones, PodRecord, Resize, Unschedulable,
};
use crate::tracker::Arrival;

mod containers;

/// A pod of a list that is not older than this is seen from its creation: creation has whole
/// seconds, and a list takes a moment.
const MAX_NEW_AGE: Duration = Duration::from_secs(2);

/// A tracked pod.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    pub(crate) record: PodRecord,
    pub(crate) startup: StartupReport,
    /// The version of its first state; `None` if that is not a number.
    pub(crate) first_version: Option<NonZeroU64>,
    /// How its first state was received.
    pub(crate) first_arrival: Arrival,
    /// The number of the list of all pods that it was last in.
    pub(crate) generation: u32,
    /// Whether the next state is newer whatever its version.
    pub(crate) accepts_any_version: bool,
}

/// The progress of the record of a pod's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartupReport {
    Open,
    /// Ready, or never will be: emitted once late events have had time to arrive.
    Due,
    Emitted,
    /// It had started before the tracker: not emitted.
    Skipped,
}

impl Lifecycle {
    /// Starts the lifecycle of a pod with the first state seen.
    pub(crate) fn begin(
        pod: &Arc<Pod>,
        facts: Facts,
        startup: StartupReport,
        arrival: Arrival,
        observed: Option<Timestamp>,
    ) -> Self {
        let init = pod.init_containers.iter().map(|spec| {
            let role = if spec.restarts_always {
                ContainerRole::Sidecar
            } else {
                ContainerRole::Init
            };
            ContainerRecord::new(spec, role)
        });
        let main = pod
            .containers
            .iter()
            .map(|spec| ContainerRecord::new(spec, ContainerRole::Main));
        let version = pod.summary.identity.resource_version.as_number();
        let is_pristine = is_pristine(pod, arrival, observed);
        let was_ready_before = was_ready(pod);
        let mut lifecycle = Self {
            record: PodRecord {
                pod: Arc::clone(pod),
                reconstructed: !is_pristine,
                was_ready_before,
                milestones: Milestones {
                    created: Moment {
                        api: pod.meta.created,
                        observed: observed.filter(|_| is_pristine),
                    },
                    ..Milestones::default()
                },
                gates: vec![None; pod.readiness_gates.len()].into(),
                containers: init.chain(main).collect(),
                facts,
                unschedulable: None,
                node_created: None,
                disruption: None,
                resize: None,
                state_blocker: None,
                end: End::Open,
                latest: observed,
            },
            startup,
            first_version: version.and_then(NonZeroU64::new),
            first_arrival: arrival,
            generation: 0,
            accepts_any_version: false,
        };
        // What the first state shows of an older pod happened at unknown times before.
        lifecycle.apply_status(pod, observed.filter(|_| is_pristine));
        if was_ready_before {
            lifecycle.record.state_blocker = Some(Blocker {
                kind: BlockerKind::Unseen,
                container: None,
                reason: None,
                message: None,
            });
        }
        lifecycle
    }

    /// Applies a state and returns whether it was new.
    pub(crate) fn apply(
        &mut self,
        pod: &Arc<Pod>,
        arrival: Arrival,
        observed: Option<Timestamp>,
    ) -> bool {
        let known = &self.record.pod.summary.identity.resource_version;
        let is_newer =
            self.accepts_any_version || is_newer(&pod.summary.identity.resource_version, known);
        if self.record.end != End::Open || !is_newer {
            return false;
        }
        self.accepts_any_version = false;
        self.apply_status(pod, observed);
        if arrival != Arrival::Live {
            self.record.forget_receipt(observed);
        }
        true
    }

    /// Ends the lifecycle and returns whether that was new.
    pub(crate) fn end(&mut self, end: End, observed: Option<Timestamp>) -> bool {
        if self.record.end != End::Open {
            return false;
        }
        let details = &self.record.pod.meta;
        // Without a grace period the removal follows at once.
        let api = details
            .deleted
            .filter(|_| details.deletion_grace == Some(0));
        let milestones = &mut self.record.milestones;
        note(
            &mut milestones.gone,
            api.filter(|_| end == End::Deleted),
            observed,
        );
        self.record.end = end;
        true
    }

    fn apply_status(&mut self, pod: &Arc<Pod>, observed: Option<Timestamp>) {
        let record = &mut self.record;
        record.pod = Arc::clone(pod);
        record.apply_conditions(pod, observed);
        record.apply_gates(pod, observed);
        record.apply_resize(pod, observed);
        record.apply_containers(pod, observed);
        record.apply_end(pod, observed);
        // The observer's clock where it has a time: that of the node may be ahead.
        record.latest = record.latest.max(observed.or_else(|| newest(pod)));
        record.update_blocker(pod);
    }
}

impl PodRecord {
    /// Forgets when steps were observed that the API has times for: a list after a gap shows them
    /// late, and the difference would look like a clock that is wrong.
    fn forget_receipt(&mut self, observed: Option<Timestamp>) {
        let reached = &mut self.milestones;
        let pod = [
            &mut reached.scheduled,
            &mut reached.accepted,
            &mut reached.sandbox,
            &mut reached.initialized,
            &mut reached.containers_ready,
            &mut reached.ready,
        ];
        let runs = self.containers.iter_mut().map(|one| &mut one.running);
        for moment in pod.into_iter().chain(runs).flatten() {
            if moment.api.is_some() && moment.observed == observed {
                moment.observed = None;
            }
        }
    }

    fn apply_conditions(&mut self, pod: &Pod, observed: Option<Timestamp>) {
        let reached = &mut self.milestones;
        for condition in &pod.conditions {
            let slot = match &*condition.kind {
                "PodScheduled" if !condition.is_true() => {
                    let is_gated = condition.reason.as_deref() == Some("SchedulingGated");
                    if !is_gated && reached.scheduled.is_none() {
                        // The status of the condition stays the same when the last gate is
                        // removed, and so does its time.
                        let api = condition.last_transition;
                        let since = Moment {
                            api: api.filter(|_| reached.gated.is_none()),
                            observed,
                        };
                        self.unschedulable
                            .get_or_insert(Unschedulable {
                                since,
                                message: None,
                            })
                            .message
                            .clone_from(&condition.message);
                    }
                    continue;
                }
                "PodScheduled" => &mut reached.scheduled,
                // The condition's name while it was in alpha.
                "PodReadyToStartContainers" | "PodHasNetwork" => &mut reached.sandbox,
                "Initialized" => &mut reached.initialized,
                "ContainersReady" | "Ready" if self.was_ready_before => continue,
                "ContainersReady" => &mut reached.containers_ready,
                "Ready" => &mut reached.ready,
                "DisruptionTarget" => {
                    if condition.is_true() {
                        let since = Moment {
                            api: condition.last_transition,
                            observed,
                        };
                        self.disruption.get_or_insert(Disruption {
                            since,
                            reason: condition.reason.clone(),
                            message: condition.message.clone(),
                        });
                    }
                    continue;
                }
                _ => continue,
            };
            if condition.is_true() {
                note(slot, condition.last_transition, observed);
            }
        }
        if pod.started.is_some() {
            note(&mut reached.accepted, pod.started, observed);
        }
    }

    fn apply_gates(&mut self, pod: &Pod, observed: Option<Timestamp>) {
        let reached = &mut self.milestones;
        if !pod.scheduling_gates.is_empty() {
            // Gates cannot be added after creation.
            note(&mut reached.gated, pod.meta.created, observed);
        } else if reached.gated.is_some() {
            note(&mut reached.ungated, None, observed);
        }
        for (slot, gate) in self.gates.iter_mut().zip(&pod.readiness_gates) {
            if let Some(condition) =
                Condition::find(&pod.conditions, gate).filter(|found| found.is_true())
            {
                note(slot, condition.last_transition, observed);
            }
        }
    }

    fn apply_resize(&mut self, pod: &Pod, observed: Option<Timestamp>) {
        let condition = ["PodResizeInProgress", "PodResizePending"]
            .iter()
            .filter_map(|kind| Condition::find(&pod.conditions, kind))
            .find(|condition| condition.is_true());
        let is_under_way = condition.is_some() || pod.resize.is_some();
        let reason = condition.and_then(|condition| condition.reason.as_ref());
        let reason = reason.or(pod.resize.as_ref());
        match &mut self.resize {
            Some(resize) if resize.over.is_none() => {
                if is_under_way {
                    resize.reason = reason.or(resize.reason.as_ref()).cloned();
                } else {
                    note(&mut resize.over, None, observed);
                }
            }
            known if is_under_way => {
                let count = known.as_ref().map_or(0, |resize| resize.count);
                *known = Some(Resize {
                    count: count.saturating_add(1),
                    began: Moment {
                        api: condition.and_then(|condition| condition.last_transition),
                        observed,
                    },
                    over: None,
                    reason: reason.cloned(),
                });
            }
            _ => {}
        }
    }

    fn apply_end(&mut self, pod: &Pod, observed: Option<Timestamp>) {
        if let Some(deleted) = pod.meta.deleted {
            let grace = Duration::from_secs(pod.meta.deletion_grace.unwrap_or(0).into());
            note(
                &mut self.milestones.deletion,
                deleted.checked_sub(grace),
                observed,
            );
        }
        if pod.summary.phase.is_final() {
            let last = self
                .containers
                .iter()
                .filter_map(|container| container.finished?.api)
                .max();
            note(&mut self.milestones.stopped, last, observed);
        }
    }

    /// The blocker before the deletion counts: that containers are killed when a pod is deleted
    /// does not explain why it never became ready. Only the recovery of a failed container is still
    /// accepted.
    fn update_blocker(&mut self, pod: &Pod) {
        if self.is_complete() {
            self.state_blocker = None;
            return;
        }
        let is_settled = |found: &Blocker| pod.meta.deleted.is_some() && !may_stay_up(found, pod);
        if !self.was_ready_before && !self.state_blocker.as_ref().is_some_and(is_settled) {
            self.state_blocker = Some(Blocker::find(pod, self.latest));
        }
    }
}

/// Whether a pod is seen from its creation. One that a list shows without a start may have waited
/// for long.
fn is_pristine(pod: &Pod, arrival: Arrival, observed: Option<Timestamp>) -> bool {
    let age = || observed?.since(pod.meta.created?);
    let is_new = || age().is_none_or(|age| age <= MAX_NEW_AGE);
    pod.started.is_none() && (arrival == Arrival::Live || is_new())
}

/// Whether the failed container is running.
fn may_stay_up(found: &Blocker, pod: &Pod) -> bool {
    let mut statuses = pod
        .init_container_statuses
        .iter()
        .chain(&pod.container_statuses);
    found.kind.is_failure()
        && statuses.any(|status| {
            Some(&status.name) == found.container.as_ref()
                && matches!(status.state, ContainerState::Running { .. })
        })
}

/// Whether a pod that is not ready was ready before: a kubelet reports a pod as not ready when it
/// accepts it, and a later change has a later time. A difference of one second does not count: the
/// two may fall into adjacent seconds.
pub(crate) fn was_ready(pod: &Pod) -> bool {
    let not_ready =
        Condition::find(&pod.conditions, "Ready").filter(|condition| !condition.is_true());
    let since = not_ready.and_then(|condition| condition.last_transition);
    since
        .zip(pod.started)
        .and_then(|(since, started)| since.since(started))
        .is_some_and(|later| later > Duration::from_secs(1))
}

/// Versions of one object are compared as numbers. If they are not, another version is newer.
fn is_newer(version: &ResourceVersion, known: &ResourceVersion) -> bool {
    match (version.as_number(), known.as_number()) {
        (Some(version), Some(known)) => version > known,
        _ => version.is_empty() || version != known,
    }
}

/// The newest time in a state.
fn newest(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod
        .conditions
        .iter()
        .map(|condition| condition.last_transition);
    let containers = pod
        .init_container_statuses
        .iter()
        .chain(&pod.container_statuses)
        .map(|status| containers::newest(&status.state));
    conditions
        .chain(containers)
        .chain([pod.meta.created, pod.started])
        .flatten()
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifecycle_stays_small() {
        // 150,000 are kept, each with a record for each of its containers. The allocator gives 896
        // bytes to anything over 768.
        assert!(size_of::<Lifecycle>() <= 896, "{}", size_of::<Lifecycle>());
        assert!(
            size_of::<ContainerRecord>() <= 256,
            "{}",
            size_of::<ContainerRecord>()
        );
    }
}

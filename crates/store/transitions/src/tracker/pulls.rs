//! Records of image pulls: emitted by the leader when a pull ends, queued by standbys.
//!
//! A pull is known from an event and emitted with its pod. Two replicas may receive the event and
//! the first state of the pod in either order, so the leader has emitted it once it has processed
//! both: a [`Checkpoint`] has a version for each of the two watches.

use std::sync::Arc;

use kubevitals_model::{Timestamp, Uid};

use super::checkpoint::Checkpoint;
use super::config::Existing;
use super::{Arrival, Output, Tracker};
use crate::facts::PullTarget;
use crate::lifecycle::{Lifecycle, StartupReport};

/// A pull that is emitted if this replica becomes the leader.
#[derive(Debug)]
pub(super) struct DuePull {
    uid: Uid,
    target: PullTarget,
    input: PullInput,
}

/// What a replica has processed when it emits a pull.
#[derive(Debug, Clone, Copy)]
struct PullInput {
    /// The first state of the pod.
    pod_version: Option<u64>,
    /// The creation of a pod that was listed, whose first version is unknown.
    pod_created: Option<Timestamp>,
    event_version: Option<u64>,
    /// The end of the pull.
    ended: Timestamp,
}

impl Tracker {
    /// Emits or queues the pulls of a pod that have ended since. Without a
    /// [`linger`](super::TrackerConfig::linger) they wait for [`Tracker::finish`].
    pub(super) fn report_pulls(&mut self, uid: &Uid, out: &mut impl FnMut(Output)) {
        if self.config.linger.is_none() {
            return;
        }
        let Some(lifecycle) = self.lifecycles.get_mut(uid) else {
            return;
        };
        let Lifecycle {
            record,
            startup,
            first_version,
            first_arrival,
            ..
        } = &mut **lifecycle;
        let first_arrival = *first_arrival;
        let created = record.milestones.created.api;
        let containers = &record.containers;
        let mut ended = Vec::new();
        for (target, pull) in record.facts.pulls_mut() {
            let Some(done) = pull.done.as_ref().filter(|_| !pull.report.is_done) else {
                continue;
            };
            let input = PullInput {
                pod_version: first_version.map(Into::into),
                pod_created: created.filter(|_| first_arrival != Arrival::Live),
                event_version: pull.report.version,
                ended: done.at,
            };
            pull.report.is_done = true;
            // Facts may be of an ephemeral container, which is left out.
            let is_ours = match &target {
                PullTarget::Container(name) => containers.iter().any(|one| one.name == *name),
                PullTarget::Volume(_) => true,
            };
            if is_ours && *startup != StartupReport::Skipped {
                ended.push((target, input));
            }
        }
        for (target, input) in ended {
            self.report_pull(uid, target, input, first_arrival, out);
        }
    }

    /// Emits what is queued: this replica leads.
    pub(super) fn emit_pulls(&mut self, out: &mut impl FnMut(Output)) {
        for due in std::mem::take(&mut self.due_pulls) {
            self.emit_pull(&due.uid, due.target, out);
        }
    }

    pub(super) fn drop_covered_pulls(&mut self, checkpoint: Checkpoint) {
        let before = self.due_pulls.len();
        self.due_pulls
            .retain(|due| !due.input.is_covered_by(checkpoint));
        self.counts.leader_emitted += (before - self.due_pulls.len()) as u64;
    }

    fn report_pull(
        &mut self,
        uid: &Uid,
        target: PullTarget,
        input: PullInput,
        first_arrival: Arrival,
        out: &mut impl FnMut(Output),
    ) {
        let is_earlier = match self.config.existing {
            Existing::All => false,
            Existing::Unsettled { since: Some(since) } => input.is_covered_by(since),
            // Without a checkpoint, a pull that had ended belongs to the process before.
            Existing::Unsettled { since: None } => {
                first_arrival == Arrival::Listed && Some(input.ended) <= self.listed
            }
        };
        if is_earlier {
            return;
        }
        let checkpoint = self.leader_checkpoint;
        if checkpoint.is_some_and(|checkpoint| input.is_covered_by(checkpoint)) {
            self.counts.leader_emitted += 1;
        } else if self.is_standby {
            if self.due_pulls.len() >= self.config.max_ended.max(1) {
                self.due_pulls.pop_front();
                self.counts.standby_dropped += 1;
            }
            let uid = uid.clone();
            self.due_pulls.push_back(DuePull { uid, target, input });
        } else {
            self.emit_pull(uid, target, out);
        }
    }

    fn emit_pull(&self, uid: &Uid, target: PullTarget, out: &mut impl FnMut(Output)) {
        if let Some(lifecycle) = self.lifecycles.get(uid) {
            let record = Arc::new(lifecycle.record.clone());
            out(Output::ImagePull(record, target));
        }
    }
}

impl PullInput {
    fn is_covered_by(self, checkpoint: Checkpoint) -> bool {
        checkpoint.covers(self.pod_version, self.pod_created)
            && checkpoint.covers_event(self.event_version, self.ended)
    }
}

//! Due records: emitted by the leader, queued by standbys.

use std::sync::Arc;

use kubevitals_model::{Timestamp, Uid};

use super::checkpoint::Checkpoint;
use super::{Output, Tracker};
use crate::lifecycle::StartupReport;

/// A record that is emitted once late events have had time to arrive.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) since: Option<Timestamp>,
    pub(super) uid: Uid,
    /// Whether the lifecycle has ended, or only the start.
    pub(super) is_lifecycle: bool,
    /// The version of the state with which it became due.
    pub(super) version: Option<u64>,
    /// For a state of a list, the latest time at which it became due, by the API's time.
    pub(super) happened: Option<Timestamp>,
}

impl Tracker {
    /// Becomes a standby: due records are queued until a checkpoint of the leader covers them, or
    /// until [`Tracker::lead`].
    pub fn stand_by(&mut self) {
        self.is_standby = true;
    }

    /// Becomes the leader, and emits the queued records that no checkpoint covers.
    pub fn lead(&mut self, out: &mut impl FnMut(Output)) {
        self.is_standby = false;
        self.emit_pulls(out);
        self.emit_due(out);
    }

    /// Applies a checkpoint of the leader: drops the queued records that it covers.
    pub fn apply_checkpoint(&mut self, checkpoint: Checkpoint) {
        let checkpoint = checkpoint.further(self.leader_checkpoint);
        if self.leader_checkpoint == Some(checkpoint) {
            return;
        }
        self.leader_checkpoint = Some(checkpoint);
        self.drop_covered_pulls(checkpoint);
        let due = std::mem::take(&mut self.due);
        for due in due {
            if checkpoint.covers(due.version, due.happened) {
                self.counts.leader_emitted += 1;
                self.discard(&due);
            } else {
                self.due.push_back(due);
            }
        }
    }

    /// Returns how far records are emitted, by this replica or the leader; `None` if nothing was
    /// seen yet, or versions are not numbers.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let mut own = Checkpoint {
            event_version: self.newest_event,
            ..self.newest?
        };
        for due in &self.due {
            own.version = own.version.min(due.version?.saturating_sub(1));
            own.time = own.time.min(due.since?);
        }
        Some(own.further(self.leader_checkpoint))
    }

    pub(super) fn is_emitted_by_leader(
        &self,
        version: Option<u64>,
        happened: Option<Timestamp>,
    ) -> bool {
        self.leader_checkpoint
            .is_some_and(|checkpoint| checkpoint.covers(version, happened))
    }

    pub(super) fn emit_due(&mut self, out: &mut impl FnMut(Output)) {
        while let Some(first) = self.due.front() {
            let has_waited = self.config.linger.is_some_and(|linger| {
                let until = first.since.and_then(|since| since.checked_add(linger));
                until <= self.now
            });
            let is_full = self.ended > self.config.max_ended;
            if !is_full && (self.is_standby || !has_waited) {
                return;
            }
            let Some(due) = self.due.pop_front() else {
                return;
            };
            if self.is_standby {
                self.counts.standby_dropped += 1;
                self.discard(&due);
            } else {
                self.emit(&due, out);
            }
        }
    }

    pub(super) fn emit(&mut self, due: &Due, out: &mut impl FnMut(Output)) {
        let Some(lifecycle) = self.lifecycles.get_mut(&due.uid) else {
            return;
        };
        if lifecycle.startup == StartupReport::Due {
            lifecycle.startup = StartupReport::Emitted;
            self.starting.remove(&due.uid);
            // The record has the pulls that have begun and not ended.
            for (_, pull) in lifecycle.record.facts.pulls_mut() {
                pull.report.is_done |= pull.started().is_some();
            }
            out(Output::Startup(Arc::new(lifecycle.record.clone())));
        }
        if due.is_lifecycle
            && let Some(lifecycle) = self.lifecycles.remove(&due.uid)
        {
            self.ended = self.ended.saturating_sub(1);
            if let Some(static_uid) = lifecycle.record.pod.static_uid.as_deref()
                && self.mirrors.get(static_uid) == Some(&due.uid)
            {
                self.mirrors.remove(static_uid);
            }
            self.finished.add(due.uid.clone());
            out(Output::Lifecycle(Arc::new(lifecycle.record)));
        }
    }

    /// Does the same without emitting.
    pub(super) fn discard(&mut self, due: &Due) {
        self.emit(due, &mut drop);
    }
}

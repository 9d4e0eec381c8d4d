//! What is to be told, by whom, and up to where that has been done.

use std::sync::Arc;

use kubevitals_model::{Timestamp, Uid};

use super::checkpoint::Checkpoint;
use super::{Output, Tracker};
use crate::life::StartupReport;

/// Something that is to be told once late events have had their time.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) since: Option<Timestamp>,
    pub(super) uid: Uid,
    /// Whether it is the life that is over, or only the start.
    pub(super) is_life: bool,
    /// The version of the state with which it came due.
    pub(super) version: Option<u64>,
    /// If that state was found in a list: when, at the latest, it came due by the API's time.
    pub(super) happened: Option<Timestamp>,
}

impl Tracker {
    /// Another process tells: what comes due is kept until that process is known to have told it,
    /// or until [`Tracker::lead`].
    pub fn stand_by(&mut self) {
        self.is_standby = true;
    }

    /// This process tells from now on: first what was kept back and is not known to have been told.
    pub fn lead(&mut self, out: &mut impl FnMut(Output)) {
        self.is_standby = false;
        self.tell_due(out);
    }

    /// Another process has told everything up to there.
    pub fn told_elsewhere(&mut self, until: Checkpoint) {
        let until = until.further(self.told_until);
        if self.told_until == Some(until) {
            return;
        }
        self.told_until = Some(until);
        let due = std::mem::take(&mut self.due);
        for due in due {
            if until.covers(due.version, due.happened) {
                self.counts.told_elsewhere += 1;
                self.forget(&due);
            } else {
                self.due.push_back(due);
            }
        }
    }

    /// Up to where everything has been told, by this process or another; `None` if nothing was seen
    /// yet, or versions are no numbers.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let mut own = self.newest?;
        for due in &self.due {
            own.version = own.version.min(due.version?.saturating_sub(1));
            own.time = own.time.min(due.since?);
        }
        Some(own.further(self.told_until))
    }

    pub(super) fn is_told_elsewhere(
        &self,
        version: Option<u64>,
        happened: Option<Timestamp>,
    ) -> bool {
        self.told_until
            .is_some_and(|until| until.covers(version, happened))
    }

    pub(super) fn tell_due(&mut self, out: &mut impl FnMut(Output)) {
        while let Some(first) = self.due.front() {
            let has_waited = self.config.linger.is_some_and(|linger| {
                let until = first.since.and_then(|since| since.checked_add(linger));
                until <= self.now
            });
            let is_full = self.ended > self.config.most_ended;
            if !is_full && (self.is_standby || !has_waited) {
                return;
            }
            let Some(due) = self.due.pop_front() else {
                return;
            };
            if self.is_standby {
                self.counts.withheld_dropped += 1;
                self.forget(&due);
            } else {
                self.tell(&due, out);
            }
        }
    }

    pub(super) fn tell(&mut self, due: &Due, out: &mut impl FnMut(Output)) {
        let Some(life) = self.lives.get_mut(&due.uid) else {
            return;
        };
        if life.startup == StartupReport::Due {
            life.startup = StartupReport::Told;
            self.starting = self.starting.saturating_sub(1);
            out(Output::Startup(Arc::new(life.record.clone())));
        }
        if due.is_life
            && let Some(life) = self.lives.remove(&due.uid)
        {
            self.ended = self.ended.saturating_sub(1);
            self.told.add(due.uid.clone());
            out(Output::Life(Arc::new(life.record)));
        }
    }

    /// The same without a word.
    pub(super) fn forget(&mut self, due: &Due) {
        self.tell(due, &mut drop);
    }
}

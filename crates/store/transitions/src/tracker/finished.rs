//! The pods whose lifecycles were emitted last.

use std::collections::VecDeque;

use hashbrown::HashSet;
use kubevitals_model::Uid;

/// Enough for a minute of the fastest cluster.
const MAX_FINISHED: usize = 65_536;

/// The pods whose lifecycles were emitted last, so that late input does not start another.
#[derive(Debug, Default)]
pub(super) struct FinishedPods {
    uids: HashSet<Uid>,
    order: VecDeque<Uid>,
}

impl FinishedPods {
    pub(super) fn contains(&self, uid: &Uid) -> bool {
        self.uids.contains(uid)
    }

    pub(super) fn add(&mut self, uid: Uid) {
        if self.order.len() >= MAX_FINISHED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
        self.uids.insert(uid.clone());
        self.order.push_back(uid);
    }
}

//! The last pods that were told of to the end.

use std::collections::VecDeque;

use hashbrown::HashSet;
use kubevitals_model::Uid;

/// Enough for a minute of the fastest cluster.
const MAX_TOLD: usize = 65_536;

/// The last pods that were told of to the end, so that a late word does not raise one.
#[derive(Debug, Default)]
pub(super) struct Told {
    uids: HashSet<Uid>,
    order: VecDeque<Uid>,
}

impl Told {
    pub(super) fn has(&self, uid: &Uid) -> bool {
        self.uids.contains(uid)
    }

    pub(super) fn add(&mut self, uid: Uid) {
        if self.order.len() >= MAX_TOLD
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
        self.uids.insert(uid.clone());
        self.order.push_back(uid);
    }
}

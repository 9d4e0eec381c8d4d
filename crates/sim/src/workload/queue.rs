//! The queue of planned transitions.

use std::collections::{BTreeMap, VecDeque};

use kubevitals_model::Timestamp;

use super::Transition;

/// Transitions in the order of their instants, and those of one instant in the order in which they
/// were planned.
///
/// A busy cluster plans a hundred thousand of them ahead. A map by instant keeps those that are due
/// next together in memory; in a heap each level would be a cache miss.
#[derive(Debug, Default)]
pub(super) struct Queue(BTreeMap<Timestamp, VecDeque<Transition>>);

impl Queue {
    pub(super) fn push(&mut self, at: Timestamp, transition: Transition) {
        self.0.entry(at).or_default().push_back(transition);
    }

    /// Returns the instant of the next transition.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.0.first_key_value().map(|(at, _)| *at)
    }

    /// Removes the next transition if it is due at `now`.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, Transition)> {
        let mut first = self.0.first_entry()?;
        let at = *first.key();
        if at > now {
            return None;
        }
        let transition = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        transition.map(|transition| (at, transition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_transitions_are_in_order() {
        let at = Timestamp::from_unix_millis;
        let mut queue = Queue::default();
        for (millis, owner) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            queue.push(at(millis), Transition::Reconcile(owner));
        }
        let mut taken = Vec::new();
        while let Some((_, Transition::Reconcile(owner))) = queue.pop(at(5)) {
            if owner == 2 {
                queue.push(at(5), Transition::Reconcile(5));
            }
            taken.push(owner);
        }
        assert_eq!(taken, [2, 1, 3, 5]);
        assert_eq!(queue.next_due(), Some(at(9)));
        assert!(queue.pop(at(9)).is_some());
        assert_eq!(queue.next_due(), None);
    }
}

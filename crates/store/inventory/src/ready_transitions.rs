//! How often nodes stopped being ready.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kubevitals_model::{Condition, ConditionStatus, Node, Timestamp, Uid};

use crate::node::NodeStatus;

/// Changes of nodes of a pool and a zone from ready to not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReadyCount {
    pub pool: Arc<str>,
    pub zone: Arc<str>,
    /// When the count was zero.
    pub start: Timestamp,
    pub total: u64,
}

/// Counts changes of nodes from ready to not ready.
#[derive(Debug)]
pub struct ReadyTransitions {
    start: Timestamp,
    nodes: HashMap<Uid, Seen>,
    counts: BTreeMap<(Arc<str>, Arc<str>), u64>,
}

/// The condition `Ready` of a node at the last observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    status: Option<ConditionStatus>,
    last_transition: Option<Timestamp>,
}

impl ReadyTransitions {
    pub fn new(start: Timestamp) -> Self {
        Self {
            start,
            nodes: HashMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Counts from zero, as a replica does that starts to report: the series of its predecessor
    /// must not overlap with its own.
    pub fn restart(&mut self, now: Timestamp) {
        self.start = now;
        self.counts.clear();
    }

    /// Observes all nodes. `statuses` are those of `nodes`, in their order.
    pub fn observe(&mut self, nodes: &[Arc<Node>], statuses: &[NodeStatus]) {
        let mut known = std::mem::take(&mut self.nodes);
        self.nodes.reserve(nodes.len());
        for (node, status) in nodes.iter().zip(statuses) {
            let ready = Condition::find(&node.conditions, "Ready");
            let seen = Seen {
                status: ready.map(|ready| ready.status),
                last_transition: ready.and_then(|ready| ready.last_transition),
            };
            let uid = &node.identity.uid;
            let count = known.remove(uid).map_or(0, |before| seen.changes(before));
            let key = (Arc::clone(&status.pool), Arc::clone(&status.zone));
            // A pool without changes has a count of zero.
            *self.counts.entry(key).or_insert(0) += count;
            self.nodes.insert(uid.clone(), seen);
        }
    }

    pub fn counts(&self) -> Vec<NotReadyCount> {
        let counts = self.counts.iter();
        let counts = counts.map(|((pool, zone), total)| NotReadyCount {
            pool: Arc::clone(pool),
            zone: Arc::clone(zone),
            start: self.start,
            total: *total,
        });
        counts.collect()
    }
}

impl Seen {
    fn is_ready(self) -> bool {
        self.status == Some(ConditionStatus::True)
    }

    /// Changes from ready to not ready since `before`, at least. A node that is ready again says so
    /// by a newer time of its last change.
    fn changes(self, before: Self) -> u64 {
        let changed_since = self.last_transition > before.last_transition;
        u64::from(match (before.is_ready(), self.is_ready()) {
            (true, false) => true,
            (true, true) => changed_since,
            (false, _) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixture::{at, condition, node};

    fn ready(status: &str, since: i64) -> [Arc<Node>; 1] {
        let mut node = node("a");
        node.conditions = [Condition {
            last_transition: Some(at(since)),
            ..condition("Ready", status)
        }]
        .into();
        [Arc::new(node)]
    }

    fn observe(transitions: &mut ReadyTransitions, nodes: &[Arc<Node>]) -> Option<u64> {
        let statuses: Vec<_> = nodes
            .iter()
            .map(|node| NodeStatus::of(node, at(1_000), Duration::ZERO))
            .collect();
        transitions.observe(nodes, &statuses);
        transitions.counts().first().map(|count| count.total)
    }

    #[test]
    fn changes_to_not_ready_count_also_when_a_tick_missed_them() {
        let mut transitions = ReadyTransitions::new(at(0));
        for (status, since, total) in [
            ("True", 10, 0),
            ("Unknown", 20, 1),
            // No longer reachable, then reachable with a broken runtime: still not ready.
            ("False", 30, 1),
            ("True", 40, 1),
            ("True", 40, 1),
            // Not ready and ready again between two ticks.
            ("True", 60, 2),
        ] {
            let counted = observe(&mut transitions, &ready(status, since));
            assert_eq!(counted, Some(total), "{status} since {since}");
        }
        transitions.restart(at(100));
        let counted = observe(&mut transitions, &ready("False", 110));
        assert_eq!(counted, Some(1));
        assert_eq!(transitions.counts()[0].start, at(100));
    }

    #[test]
    fn nodes_that_are_gone_are_forgotten() {
        let mut transitions = ReadyTransitions::new(at(0));
        observe(&mut transitions, &ready("True", 10));
        observe(&mut transitions, &[]);
        assert!(transitions.nodes.is_empty());
        // A node of the same name that starts not ready has not changed.
        assert_eq!(observe(&mut transitions, &ready("False", 20)), Some(0));
    }
}

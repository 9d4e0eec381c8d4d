//! Nodes whose own prober cannot report.
//!
//! A node that is down cannot say so. The prober on each node fails its readiness probe when it
//! cannot report, and Kubernetes marks the pods of a node that it cannot reach as not ready. So the
//! readiness of one pod on each node says which nodes are silent, and nothing is written to the API
//! for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Condition, Pod, Timestamp};

use crate::node::NodeStatus;

/// A node whose own prober cannot report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentNode {
    pub node: Arc<str>,
    pub pool: Arc<str>,
    pub zone: Arc<str>,
    pub silence: Silence,
    pub since: Timestamp,
}

/// Why a node is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Silence {
    /// No pod of the prober is bound to the node.
    NoProber,
    /// The prober of the node is not ready.
    NotReady,
}

/// Finds silent nodes.
#[derive(Debug, Default)]
pub struct SilentNodes {
    /// Whether there has been a prober on any node. A cluster may have none.
    has_probers: bool,
    since: HashMap<Arc<str>, Timestamp>,
}

impl Silence {
    /// The value of the label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoProber => "no_prober",
            Self::NotReady => "not_ready",
        }
    }
}

impl SilentNodes {
    /// Finds the nodes that have been silent for `tolerance`, sorted by name. `probers` are the
    /// pods of the prober's node mode. Returns `None` as long as there has been none of them.
    pub fn find(
        &mut self,
        statuses: &[NodeStatus],
        probers: &[Arc<Pod>],
        now: Timestamp,
        tolerance: Duration,
    ) -> Option<Vec<SilentNode>> {
        let mut bound = HashSet::new();
        let mut ready = HashSet::new();
        for pod in probers {
            let Some(node) = &pod.summary.node else {
                continue;
            };
            bound.insert(Arc::clone(node));
            if Condition::find(&pod.conditions, "Ready").is_some_and(Condition::is_true) {
                ready.insert(Arc::clone(node));
            }
        }
        self.has_probers |= !bound.is_empty();
        if !self.has_probers {
            return None;
        }
        let mut before = std::mem::take(&mut self.since);
        let mut silent = Vec::new();
        // A new node has no prober yet.
        for status in statuses.iter().filter(|status| status.done_warming) {
            if ready.contains(&status.name) {
                continue;
            }
            let since = before.remove(&status.name).unwrap_or(now);
            self.since.insert(Arc::clone(&status.name), since);
            if now.since(since).unwrap_or_default() >= tolerance {
                silent.push(SilentNode {
                    node: Arc::clone(&status.name),
                    pool: Arc::clone(&status.pool),
                    zone: Arc::clone(&status.zone),
                    silence: if bound.contains(&status.name) {
                        Silence::NotReady
                    } else {
                        Silence::NoProber
                    },
                    since,
                });
            }
        }
        silent.sort_by(|a, b| a.node.cmp(&b.node));
        Some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, condition, node, pod};
    use crate::node::WARM_UP;

    const TOLERANCE: Duration = Duration::from_mins(2);

    fn prober(on: &str, ready: &str) -> Arc<Pod> {
        let mut pod = pod(&format!("prober-{on}"), &[]);
        pod.summary.node = Some(on.into());
        pod.conditions = [condition("Ready", ready)].into();
        Arc::new(pod)
    }

    fn statuses() -> Vec<NodeStatus> {
        let names = ["a", "b", "c"];
        let status = |name| NodeStatus::of(&node(name), at(10_000), WARM_UP);
        names.map(status).into()
    }

    #[test]
    fn nodes_without_a_ready_prober_are_silent_after_a_while() {
        let mut silent = SilentNodes::default();
        let probers = [prober("a", "True"), prober("b", "False")];
        let found = silent.find(&statuses(), &probers, at(10_000), TOLERANCE);
        assert_eq!(found, Some(Vec::new()));
        let found = silent.find(&statuses(), &probers, at(10_120), TOLERANCE);
        let rows: Vec<_> = found
            .iter()
            .flatten()
            .map(|one| (&*one.node, one.silence, one.since))
            .collect();
        assert_eq!(
            rows,
            [
                ("b", Silence::NotReady, at(10_000)),
                ("c", Silence::NoProber, at(10_000))
            ]
        );
        let all = ["a", "b", "c"].map(|name| prober(name, "True"));
        let found = silent.find(&statuses(), &all, at(10_180), TOLERANCE);
        assert_eq!(found, Some(Vec::new()));
        assert!(silent.since.is_empty());
    }

    #[test]
    fn a_cluster_without_node_mode_has_no_silent_nodes_until_it_had_a_prober() {
        let mut silent = SilentNodes::default();
        assert_eq!(silent.find(&statuses(), &[], at(10_000), TOLERANCE), None);
        silent.find(&statuses(), &[prober("a", "True")], at(10_060), TOLERANCE);
        silent.find(&statuses(), &[], at(10_120), TOLERANCE);
        let found = silent.find(&statuses(), &[], at(10_300), TOLERANCE);
        assert_eq!(found.map(|nodes| nodes.len()), Some(3));
    }

    #[test]
    fn a_new_node_is_not_silent() {
        let mut young = statuses();
        for status in &mut young {
            status.done_warming = false;
        }
        let mut silent = SilentNodes::default();
        let probers = [prober("a", "False")];
        silent.find(&young, &probers, at(10_000), TOLERANCE);
        let found = silent.find(&young, &probers, at(10_300), TOLERANCE);
        assert_eq!(found, Some(Vec::new()));
    }
}

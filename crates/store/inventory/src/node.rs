//! What one node says of itself.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Condition, ConditionStatus, Node, Timestamp, node_pool, zone};

/// The value of a label that a node does not have.
pub const UNKNOWN: &str = "Unknown";

/// A younger node still starts its addons, and does not count as available.
pub const WARM_UP: Duration = Duration::from_mins(5);

/// The taint of a cordoned node.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Conditions of one node beyond this number are ignored: their types are free text.
const MAX_CONDITIONS: usize = 32;

/// The availability of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    pub name: Arc<str>,
    pub pool: Arc<str>,
    pub zone: Arc<str>,
    /// Whether the condition `Ready` is true.
    pub ready: bool,
    /// Whether the node is not cordoned. Other taints are about some pods only.
    pub schedulable: bool,
    /// Whether the node is older than the warm-up.
    pub done_warming: bool,
}

/// A condition of a node: its type and its status.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeCondition {
    pub kind: Arc<str>,
    pub status: &'static str,
}

impl NodeStatus {
    pub fn of(node: &Node, now: Timestamp, warm_up: Duration) -> Self {
        let or_unknown =
            |label: Option<&Arc<str>>| label.cloned().unwrap_or_else(|| UNKNOWN.into());
        let is_tainted = node
            .taints
            .iter()
            .any(|taint| &*taint.key == UNSCHEDULABLE_TAINT);
        let age = node.meta.created.map(|created| now.since(created));
        Self {
            name: Arc::clone(&node.identity.name),
            pool: or_unknown(node_pool(&node.labels)),
            zone: or_unknown(zone(&node.labels)),
            ready: Condition::find(&node.conditions, "Ready").is_some_and(Condition::is_true),
            schedulable: !node.unschedulable && !is_tainted,
            // A node of unknown age is not new: the API server writes the time at creation. One
            // that was created after `now` is.
            done_warming: age.is_none_or(|age| age.is_some_and(|age| age >= warm_up)),
        }
    }

    /// Whether the node can run pods and had the time to start its addons.
    pub const fn is_available(&self) -> bool {
        self.ready && self.schedulable && self.done_warming
    }
}

impl NodeCondition {
    /// The conditions of a node, in the order of the API, each type once.
    pub fn all(node: &Node) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for condition in node.conditions.iter().take(MAX_CONDITIONS) {
            if !all.iter().any(|known| known.kind == condition.kind) {
                all.push(Self {
                    kind: Arc::clone(&condition.kind),
                    status: condition.status.as_str(),
                });
            }
        }
        all
    }

    /// Whether this is the status that a healthy node has: all conditions but `Ready` are about
    /// problems.
    pub fn is_good(&self) -> bool {
        let good = if &*self.kind == "Ready" {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        self.status == good.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, condition, labels, node};
    use kubevitals_model::Taint;

    fn status(node: &Node) -> NodeStatus {
        NodeStatus::of(node, at(10_000), WARM_UP)
    }

    #[test]
    fn a_node_is_available_when_it_is_ready_schedulable_and_warm() {
        let good = node("a");
        assert!(status(&good).is_available());

        let mut cold = node("a");
        cold.meta.created = Some(at(10_000 - 299));
        assert!(!status(&cold).done_warming);
        cold.meta.created = Some(at(10_000 - 300));
        assert!(status(&cold).done_warming);
        cold.meta.created = Some(at(10_001));
        assert!(!status(&cold).done_warming);

        let mut silent = node("a");
        silent.conditions = [condition("Ready", "Unknown")].into();
        assert!(!status(&silent).ready);
        silent.conditions = [].into();
        assert!(!status(&silent).is_available());
    }

    /// gke-prober looks at the taint alone, which the API server adds a moment later.
    #[test]
    fn a_cordoned_node_is_not_schedulable_by_spec_or_by_taint() {
        let mut cordoned = node("a");
        cordoned.unschedulable = true;
        assert!(!status(&cordoned).schedulable);
        let taint = |key: &str| Taint {
            key: key.into(),
            value: None,
            effect: "NoSchedule".into(),
        };
        let mut tainted = node("a");
        tainted.taints = [taint(UNSCHEDULABLE_TAINT)].into();
        assert!(!status(&tainted).schedulable);
        tainted.taints = [taint("nvidia.com/gpu")].into();
        assert!(status(&tainted).schedulable);
    }

    #[test]
    fn labels_that_a_node_does_not_have_are_unknown() {
        let mut plain = node("a");
        plain.labels = labels(&[]);
        let status = status(&plain);
        assert_eq!((&*status.pool, &*status.zone), ("Unknown", "Unknown"));
    }

    #[test]
    fn only_ready_is_good_when_it_is_true() {
        let mut node = node("a");
        node.conditions = [
            condition("Ready", "True"),
            condition("DiskPressure", "False"),
            condition("MemoryPressure", "True"),
            condition("KernelDeadlock", "Unknown"),
            condition("Ready", "False"),
        ]
        .into();
        let all = NodeCondition::all(&node);
        let good: Vec<_> = all.iter().map(NodeCondition::is_good).collect();
        assert_eq!(good, [true, true, false, false]);
    }
}

//! Counts over all nodes and workloads of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_model::{DaemonSet, Deployment, Node};

use crate::addon::{Addon, AddonRules};
use crate::node::{NodeCondition, NodeStatus};

/// Nodes of a pool and a zone with a condition in a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConditionCount {
    pub pool: Arc<str>,
    pub zone: Arc<str>,
    pub condition: NodeCondition,
    pub nodes: u64,
}

/// Nodes of a pool and a zone by availability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAvailabilityCount {
    pub pool: Arc<str>,
    pub zone: Arc<str>,
    pub ready: bool,
    pub schedulable: bool,
    pub done_warming: bool,
    pub nodes: u64,
}

/// Pods that an addon should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddonCount {
    pub addon: Addon,
    pub pods: u64,
}

impl NodeAvailabilityCount {
    pub const fn is_available(&self) -> bool {
        self.ready && self.schedulable && self.done_warming
    }
}

/// Counts nodes by condition. `statuses` are those of `nodes`, in their order.
pub fn node_conditions(nodes: &[Arc<Node>], statuses: &[NodeStatus]) -> Vec<NodeConditionCount> {
    let mut counts = BTreeMap::new();
    for (node, status) in nodes.iter().zip(statuses) {
        for condition in NodeCondition::all(node) {
            let key = (
                Arc::clone(&status.pool),
                Arc::clone(&status.zone),
                condition,
            );
            *counts.entry(key).or_insert(0) += 1;
        }
    }
    let counts = counts.into_iter();
    let counts = counts.map(|((pool, zone, condition), nodes)| NodeConditionCount {
        pool,
        zone,
        condition,
        nodes,
    });
    counts.collect()
}

/// Counts nodes by availability.
pub fn node_availabilities(statuses: &[NodeStatus]) -> Vec<NodeAvailabilityCount> {
    let mut counts = BTreeMap::new();
    for status in statuses {
        let key = (
            Arc::clone(&status.pool),
            Arc::clone(&status.zone),
            (status.ready, status.schedulable, status.done_warming),
        );
        *counts.entry(key).or_insert(0) += 1;
    }
    let counts = counts.into_iter();
    let counts = counts.map(
        |((pool, zone, (ready, schedulable, done_warming)), nodes)| NodeAvailabilityCount {
            pool,
            zone,
            ready,
            schedulable,
            done_warming,
            nodes,
        },
    );
    counts.collect()
}

/// The pods that addons should have. A `DaemonSet` wants one on each node that it targets, which
/// its controller counts; a variant that targets no node says nothing.
pub fn addons_expected(
    rules: &AddonRules,
    daemon_sets: &[Arc<DaemonSet>],
    deployments: &[Arc<Deployment>],
) -> Vec<AddonCount> {
    let mut counts = BTreeMap::new();
    let of_sets = daemon_sets
        .iter()
        .filter(|set| set.desired > 0)
        .map(|set| (rules.of_workload(&set.workload, "DaemonSet"), set.desired));
    let of_deployments = deployments.iter().map(|deployment| {
        (
            rules.of_workload(&deployment.workload, "Deployment"),
            deployment.desired,
        )
    });
    for (addon, desired) in of_sets.chain(of_deployments) {
        if let Some(addon) = addon {
            let pods = counts.entry(addon).or_insert(0_u64);
            *pods = pods.saturating_add(u64::try_from(desired).unwrap_or(0));
        }
    }
    let counts = counts.into_iter();
    counts
        .map(|(addon, pods)| AddonCount { addon, pods })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, condition, daemon_set, deployment, labels, node};
    use crate::node::WARM_UP;

    fn statuses(nodes: &[Arc<Node>]) -> Vec<NodeStatus> {
        nodes
            .iter()
            .map(|node| NodeStatus::of(node, at(10_000), WARM_UP))
            .collect()
    }

    #[test]
    fn nodes_are_counted_by_pool_zone_type_and_status() {
        let mut broken = node("b");
        broken.conditions = [condition("Ready", "False")].into();
        let mut elsewhere = node("c");
        elsewhere.labels = labels(&[]);
        let nodes = [node("a"), broken, elsewhere].map(Arc::new);
        let statuses = statuses(&nodes);
        let counts = node_conditions(&nodes, &statuses);
        let rows: Vec<_> = counts
            .iter()
            .map(|count| {
                let NodeCondition { kind, status } = &count.condition;
                (&*count.pool, &*count.zone, &**kind, *status, count.nodes)
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("Unknown", "Unknown", "MemoryPressure", "False", 1),
                ("Unknown", "Unknown", "Ready", "True", 1),
                ("pool", "zone-a", "MemoryPressure", "False", 1),
                ("pool", "zone-a", "Ready", "False", 1),
                ("pool", "zone-a", "Ready", "True", 1),
            ]
        );
        let available = node_availabilities(&statuses);
        let in_pool: Vec<_> = available
            .iter()
            .filter(|count| &*count.pool == "pool")
            .map(|count| (count.is_available(), count.nodes))
            .collect();
        assert_eq!(in_pool, [(false, 1), (true, 1)]);
    }

    /// gke-prober panics if its list of nodes is empty.
    #[test]
    fn a_cluster_without_nodes_has_no_counts() {
        assert!(node_conditions(&[], &[]).is_empty());
        assert!(node_availabilities(&[]).is_empty());
    }

    /// gke-prober multiplies by all available nodes, whatever a `DaemonSet` targets.
    #[test]
    fn expected_pods_are_what_controllers_want() {
        let agent = &[("k8s-app", "agent")][..];
        let sets = [
            daemon_set("agent-small", agent, 3),
            daemon_set("agent-large", agent, 2),
            daemon_set("agent-windows", agent, 0),
            daemon_set("unlabelled", &[], 7),
        ]
        .map(Arc::new);
        let dns = &[("k8s-app", "kube-dns")][..];
        let deployments = [
            deployment("dns", dns, 2),
            deployment("off", &[("k8s-app", "off")], 0),
            deployment("wrong", &[("k8s-app", "wrong")], -1),
        ]
        .map(Arc::new);
        let counts = addons_expected(&AddonRules::default(), &sets, &deployments);
        let rows: Vec<_> = counts
            .iter()
            .map(|count| {
                let Addon {
                    name, controller, ..
                } = &count.addon;
                (&**name, &**controller, count.pods)
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("agent", "DaemonSet", 5),
                ("kube-dns", "Deployment", 2),
                ("off", "Deployment", 0),
                ("wrong", "Deployment", 0),
            ]
        );
    }
}

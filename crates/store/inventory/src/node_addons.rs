//! The addons of one node: every pod judged.

use std::collections::BTreeMap;

use kubevitals_model::{Condition, Pod, Uid};

use crate::addon::{Addon, AddonRules};
use crate::node::NodeStatus;

/// The verdict of an addon's own probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Healthy {
    /// There is no probe for the addon, or it has not run yet.
    #[default]
    Unknown,
    True,
    False,
    /// The probe itself could not run.
    Error,
}

/// Pods of an addon on a node with the same verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddonPods {
    pub addon: Addon,
    /// Whether they are ready. The name is that of the peer.
    pub running: bool,
    pub healthy: Healthy,
    /// Whether no container has restarted since the last report.
    pub stable: bool,
    pub pods: u64,
}

/// The addons of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeAddons {
    /// Sorted by addon.
    pub addons: Vec<AddonPods>,
}

impl Healthy {
    /// The value of the label `healthy`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::True => "True",
            Self::False => "False",
            Self::Error => "Error",
        }
    }
}

impl AddonPods {
    /// Whether the pods do their work, as far as anyone can tell.
    pub const fn is_available(&self) -> bool {
        self.running && self.stable && matches!(self.healthy, Healthy::True | Healthy::Unknown)
    }
}

impl NodeAddons {
    /// Judges every pod. `is_stable` says of a pod that no container has restarted since the last
    /// report; `healthy` is the verdict of the addon's probe.
    ///
    /// Pods that have ended or are being deleted do not count: others replace them, and those that
    /// are missing show by comparison with the expected ones.
    pub fn judge<'p>(
        rules: &AddonRules,
        pods: impl IntoIterator<Item = &'p Pod>,
        is_stable: impl Fn(&Uid) -> bool,
        healthy: impl Fn(&Addon, &Pod) -> Healthy,
    ) -> Self {
        let mut counts = BTreeMap::new();
        for pod in pods {
            if pod.summary.phase.is_final() || pod.meta.deleted.is_some() {
                continue;
            }
            let Some(addon) = rules.of_pod(pod) else {
                continue;
            };
            let running = Condition::find(&pod.conditions, "Ready").is_some_and(Condition::is_true);
            let healthy = healthy(&addon, pod);
            let stable = is_stable(&pod.summary.identity.uid);
            *counts.entry((addon, running, healthy, stable)).or_insert(0) += 1;
        }
        let addons = counts.into_iter();
        let addons = addons.map(|((addon, running, healthy, stable), pods)| AddonPods {
            addon,
            running,
            healthy,
            stable,
            pods,
        });
        Self {
            addons: addons.collect(),
        }
    }

    /// Whether the node and all addons on it are available; `None` if no addon was found, of which
    /// nothing follows.
    pub fn control_plane_available(&self, node: &NodeStatus) -> Option<bool> {
        let all = self.addons.iter().all(AddonPods::is_available);
        (!self.addons.is_empty()).then_some(node.is_available() && all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, condition, node, pod};
    use crate::node::WARM_UP;
    use kubevitals_model::PodPhase;

    const AGENT: &[(&str, &str)] = &[("k8s-app", "agent")];

    fn judge(pods: &[Pod]) -> NodeAddons {
        let rules = AddonRules::default();
        NodeAddons::judge(&rules, pods, |_| true, |_, _| Healthy::Unknown)
    }

    /// gke-prober looks at the first pod of an addon and gives its verdict to all.
    #[test]
    fn every_pod_of_an_addon_is_judged() {
        let mut broken = pod("agent-2", AGENT);
        broken.conditions = [condition("Ready", "False")].into();
        let found = judge(&[pod("agent-1", AGENT), broken, pod("agent-3", AGENT)]);
        let rows: Vec<_> = found
            .addons
            .iter()
            .map(|addon| (addon.is_available(), addon.pods))
            .collect();
        assert_eq!(rows, [(false, 1), (true, 2)]);
    }

    #[test]
    fn an_addon_is_available_if_it_is_ready_stable_and_not_unhealthy() {
        let rules = AddonRules::default();
        let pods = [pod("agent-1", AGENT)];
        for (healthy, stable, available) in [
            (Healthy::Unknown, true, true),
            (Healthy::True, true, true),
            (Healthy::True, false, false),
            (Healthy::False, true, false),
            (Healthy::Error, true, false),
        ] {
            let found = NodeAddons::judge(&rules, &pods, |_| stable, |_, _| healthy);
            assert_eq!(found.addons[0].is_available(), available, "{healthy:?}");
        }
    }

    #[test]
    fn pods_that_have_ended_or_are_being_deleted_do_not_count() {
        let mut evicted = pod("agent-1", AGENT);
        evicted.summary.phase = PodPhase::Failed;
        let mut deleted = pod("agent-2", AGENT);
        deleted.meta.deleted = Some(at(1));
        assert_eq!(judge(&[evicted, deleted]), NodeAddons::default());
    }

    /// gke-prober reports the control plane as available if it knows of no addon.
    #[test]
    fn nothing_follows_from_a_node_without_addons() {
        let status = NodeStatus::of(&node("a"), at(10_000), WARM_UP);
        assert_eq!(judge(&[]).control_plane_available(&status), None);
        let good = judge(&[pod("agent-1", AGENT)]);
        assert_eq!(good.control_plane_available(&status), Some(true));
        let cordoned = NodeStatus {
            schedulable: false,
            ..status.clone()
        };
        assert_eq!(good.control_plane_available(&cordoned), Some(false));
        let mut broken = pod("agent-2", AGENT);
        broken.conditions = [].into();
        let one_broken = judge(&[pod("agent-1", AGENT), broken]);
        assert_eq!(one_broken.control_plane_available(&status), Some(false));
    }
}

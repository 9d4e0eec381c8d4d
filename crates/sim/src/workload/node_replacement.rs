//! Replacement of nodes at run time, as by an upgrade or a node autoscaler.
//!
//! The oldest node is removed with its pods, and a spare node is added, with its own name and
//! address. Names are reused only after every node of the set was present once, and then for
//! another machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::churn::ChurnRate;
use super::nodes::LEASE_NAMESPACE;
use super::owner::OwnerKind;
use super::{OwnerId, PodId, StepContext, Transition, Workload};
use crate::clock::after;
use crate::objects::Resource;

/// State of node replacement, and pods that are bound to one node.
#[derive(Debug, Default)]
pub(super) struct NodeReplacement {
    /// By index in the node set.
    nodes: BTreeMap<usize, NodeLifetime>,
    /// Index of the oldest node.
    oldest: usize,
    /// Pods of DaemonSets on nodes that were added later.
    bound: BTreeMap<PodId, usize>,
    /// Whether the next replacement is planned.
    is_planned: bool,
}

#[derive(Debug, Clone, Copy)]
struct NodeLifetime {
    /// Heartbeats of an earlier epoch are ignored.
    epoch: u32,
    since: Timestamp,
    is_over: bool,
}

impl NodeReplacement {
    /// Adds a node and returns its epoch.
    pub(super) fn begin(&mut self, index: usize, now: Timestamp) -> u32 {
        let epoch = self
            .nodes
            .get(&index)
            .map_or(0, |lifetime| lifetime.epoch + 1);
        let lifetime = NodeLifetime {
            epoch,
            since: now,
            is_over: false,
        };
        self.nodes.insert(index, lifetime);
        epoch
    }

    fn end(&mut self, index: usize) {
        if let Some(lifetime) = self.nodes.get_mut(&index) {
            lifetime.is_over = true;
        }
    }

    /// Returns the creation time of a node, unless it was removed or replaced.
    pub(super) fn since(&self, index: usize, epoch: u32) -> Option<Timestamp> {
        let lifetime = self.nodes.get(&index)?;
        (lifetime.epoch == epoch && !lifetime.is_over).then_some(lifetime.since)
    }

    /// Number of earlier nodes with the same name.
    pub(super) fn reuse_count(&self, index: usize) -> u32 {
        self.nodes.get(&index).map_or(0, |lifetime| {
            // While the next one is created, the last one is over.
            lifetime.epoch + u32::from(lifetime.is_over)
        })
    }

    /// Returns the node that a pod of a DaemonSet is bound to.
    pub(super) fn bound(&self, pod: PodId) -> Option<usize> {
        self.bound.get(&pod).copied()
    }

    pub(super) fn unbind(&mut self, pod: PodId) {
        self.bound.remove(&pod);
    }
}

impl Workload {
    /// Changes the rate of replacements, after the one that is planned.
    pub fn set_replacements(&mut self, rate: ChurnRate, now: Timestamp) {
        self.config.replacements = rate;
        self.plan_replacement(now);
    }

    pub(super) fn plan_replacement(&mut self, now: Timestamp) {
        if self.node_replacement.is_planned {
            return;
        }
        if let Some(gap) = self.config.replacements.gap_micros() {
            self.node_replacement.is_planned = true;
            self.plan(after(now, (gap / 1_000).max(1)), Transition::Replace);
        }
    }

    /// Replaces the oldest node, and plans the next replacement.
    pub(super) fn replace_next(&mut self, ctx: StepContext<'_>) {
        self.node_replacement.is_planned = false;
        if self.config.replacements.is_none() {
            return;
        }
        let slots = self.node_set.nodes().len();
        let (leaves, comes) = (
            self.node_replacement.oldest,
            (self.node_replacement.oldest + self.node_set.count()) % slots.max(1),
        );
        // Without spares the added node would be one that is present.
        if slots > self.node_set.count() && leaves != comes {
            self.add_spare_node(comes, ctx);
            self.remove_node(leaves, ctx);
            self.node_replacement.oldest = (leaves + 1) % slots;
        }
        self.plan_replacement(ctx.now);
    }

    fn add_spare_node(&mut self, index: usize, ctx: StepContext<'_>) {
        let Some(node) = self.node_set.nodes().get(index) else {
            return;
        };
        node.set_present(true);
        self.add_node(index, ctx);
        let daemons: Vec<OwnerId> = self
            .owners
            .iter()
            .filter(|(_, entry)| matches!(entry.kind, OwnerKind::DaemonSet) && !entry.leaving)
            .map(|(id, _)| *id)
            .collect();
        for daemon in daemons {
            if let Some(pod) = self.create_owned(daemon, ctx) {
                self.node_replacement.bound.insert(pod, index);
            }
        }
    }

    /// The machine is gone: its pods are not terminated, but removed with it.
    fn remove_node(&mut self, index: usize, ctx: StepContext<'_>) {
        let Some(node) = self.node_set.nodes().get(index) else {
            return;
        };
        node.set_present(false);
        let name = Arc::clone(node.name());
        self.node_replacement.end(index);
        self.written(ctx.writer.delete(Resource::Nodes, None, &name));
        if self.config.leases {
            let lease = ctx
                .writer
                .delete(Resource::Leases, Some(LEASE_NAMESPACE), &name);
            self.written(lease);
        }
        let pods: Vec<PodId> = self
            .pods
            .iter()
            .filter(|(id, entry)| {
                let host = entry.pod.host.as_ref().map(|host| host.index);
                host.or_else(|| self.node_replacement.bound(**id)) == Some(index)
            })
            .map(|(id, _)| *id)
            .collect();
        for pod in pods {
            self.cancel_steps(pod);
            self.remove(pod, ctx);
        }
    }
}

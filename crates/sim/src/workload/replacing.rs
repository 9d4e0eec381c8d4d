//! Replacement of nodes at run time, as by an upgrade or a node autoscaler.
//!
//! The oldest node is removed with its pods, and a spare node is added, with its own name and
//! address. Names are reused only after every node of the pool was present once, and then for another
//! machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::churn::ChurnRate;
use super::nodes::LEASE_NAMESPACE;
use super::owner::OwnerKind;
use super::{Moment, OwnerId, PodId, What, Workload};
use crate::clock::after;
use crate::objects::Resource;

/// State of node replacement, and pods that are bound to one node.
#[derive(Debug, Default)]
pub(super) struct Replacing {
    /// By index in the node pool.
    lives: BTreeMap<usize, Life>,
    /// Index of the oldest node.
    oldest: usize,
    /// Pods of DaemonSets on nodes that were added later.
    bound: BTreeMap<PodId, usize>,
    /// Whether the next replacement is planned.
    is_planned: bool,
}

#[derive(Debug, Clone, Copy)]
struct Life {
    /// Heartbeats of an earlier epoch are ignored.
    era: u32,
    since: Timestamp,
    is_over: bool,
}

impl Replacing {
    /// Adds a node and returns its epoch.
    pub(super) fn begin(&mut self, index: usize, now: Timestamp) -> u32 {
        let era = self.lives.get(&index).map_or(0, |life| life.era + 1);
        let life = Life {
            era,
            since: now,
            is_over: false,
        };
        self.lives.insert(index, life);
        era
    }

    fn end(&mut self, index: usize) {
        if let Some(life) = self.lives.get_mut(&index) {
            life.is_over = true;
        }
    }

    /// Returns the creation time of a node, unless it was removed or replaced.
    pub(super) fn since(&self, index: usize, era: u32) -> Option<Timestamp> {
        let life = self.lives.get(&index)?;
        (life.era == era && !life.is_over).then_some(life.since)
    }

    /// Number of earlier nodes with the same name.
    pub(super) fn laps(&self, index: usize) -> u32 {
        self.lives.get(&index).map_or(0, |life| {
            // While the next one is created, the last one is over.
            life.era + u32::from(life.is_over)
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
        if self.replacing.is_planned {
            return;
        }
        if let Some(gap) = self.config.replacements.gap_micros() {
            self.replacing.is_planned = true;
            self.plan(after(now, (gap / 1_000).max(1)), What::Replace);
        }
    }

    /// Replaces the oldest node, and plans the next replacement.
    pub(super) fn replace_next(&mut self, moment: Moment<'_>) {
        self.replacing.is_planned = false;
        if self.config.replacements.is_none() {
            return;
        }
        let slots = self.roster.nodes().len();
        let (leaves, comes) = (
            self.replacing.oldest,
            (self.replacing.oldest + self.roster.count()) % slots.max(1),
        );
        // Without spares the added node would be one that is present.
        if slots > self.roster.count() && leaves != comes {
            self.bring_node(comes, moment);
            self.take_node(leaves, moment);
            self.replacing.oldest = (leaves + 1) % slots;
        }
        self.plan_replacement(moment.now);
    }

    fn bring_node(&mut self, index: usize, moment: Moment<'_>) {
        let Some(node) = self.roster.nodes().get(index) else {
            return;
        };
        node.set_present(true);
        self.add_node(index, moment);
        let daemons: Vec<OwnerId> = self
            .owners
            .iter()
            .filter(|(_, slot)| matches!(slot.kind, OwnerKind::DaemonSet) && !slot.leaving)
            .map(|(id, _)| *id)
            .collect();
        for daemon in daemons {
            if let Some(pod) = self.create_owned(daemon, moment) {
                self.replacing.bound.insert(pod, index);
            }
        }
    }

    /// The machine is gone: its pods are not terminated, but removed with it.
    fn take_node(&mut self, index: usize, moment: Moment<'_>) {
        let Some(node) = self.roster.nodes().get(index) else {
            return;
        };
        node.set_present(false);
        let name = Arc::clone(node.name());
        self.replacing.end(index);
        self.written(moment.writer.delete(Resource::Nodes, None, &name));
        if self.config.leases {
            let lease = moment
                .writer
                .delete(Resource::Leases, Some(LEASE_NAMESPACE), &name);
            self.written(lease);
        }
        let pods: Vec<PodId> = self
            .pods
            .iter()
            .filter(|(id, slot)| {
                let host = slot.pod.host.as_ref().map(|host| host.index);
                host.or_else(|| self.replacing.bound(**id)) == Some(index)
            })
            .map(|(id, _)| *id)
            .collect();
        for pod in pods {
            self.void(pod);
            self.remove(pod, moment);
        }
    }
}

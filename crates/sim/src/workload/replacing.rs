//! Nodes that are replaced by others while the cluster runs, as an upgrade or an autoscaler of
//! nodes does.
//!
//! The oldest node goes with its pods and a node that was not there comes, with a name and an
//! address of its own. Names come back only when every node of the roster was there once, and then
//! for another machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::churn::ChurnRate;
use super::nodes::LEASE_NAMESPACE;
use super::owner::OwnerKind;
use super::{Moment, OwnerId, PodId, What, Workload};
use crate::clock::after;
use crate::objects::Resource;

/// Which nodes came when, and which pods are for one node only.
#[derive(Debug, Default)]
pub(super) struct Replacing {
    /// By the place in the roster.
    lives: BTreeMap<usize, Life>,
    /// The place of the oldest node.
    oldest: usize,
    /// Daemons that were made for a node that came later.
    bound: BTreeMap<PodId, usize>,
    /// The next replacement is planned already.
    is_planned: bool,
}

#[derive(Debug, Clone, Copy)]
struct Life {
    /// Heartbeats of an earlier life are void.
    era: u32,
    since: Timestamp,
    is_over: bool,
}

impl Replacing {
    /// A node comes; returns the number of its life.
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

    /// When this life of a node began, if it lasts.
    pub(super) fn since(&self, index: usize, era: u32) -> Option<Timestamp> {
        let life = self.lives.get(&index)?;
        (life.era == era && !life.is_over).then_some(life.since)
    }

    /// How often a node of this name was there before.
    pub(super) fn laps(&self, index: usize) -> u32 {
        self.lives.get(&index).map_or(0, |life| {
            // While the next one is made, the last one is over.
            life.era + u32::from(life.is_over)
        })
    }

    /// The node that a pod is made for.
    pub(super) fn bound(&self, pod: PodId) -> Option<usize> {
        self.bound.get(&pod).copied()
    }

    pub(super) fn unbind(&mut self, pod: PodId) {
        self.bound.remove(&pod);
    }
}

impl Workload {
    /// Changes how often nodes are replaced, after the replacement that is planned.
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
        // Without spares the one that comes would be one that is there.
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

    /// The machine is gone: nobody ends its pods, they are collected with it.
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

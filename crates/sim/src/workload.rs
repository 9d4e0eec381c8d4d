//! Pod lifecycles: a discrete-event simulation of scheduler, controllers and kubelets.
//!
//! [`Workload::step`] runs every transition that is due and writes what a real cluster would write:
//! pods field by field, events with their messages and counts, owners, nodes and leases. It is
//! pure: time is an argument, randomness comes from the seed, and each transition happens at the
//! instant at which it was due, however late `step` is called. The same seed and the same calls
//! give the same objects. [`drive`] calls it from a task.
//!
//! Fields, order of conditions and messages follow recordings of Kubernetes 1.37.
//!
//! # Limits
//!
//! * Writes of clients are ignored: a pod that a client creates is not scheduled, a Deployment that
//!   a client scales does not follow. A pod that a client removes is dropped.
//! * Pods are not resized in place, and do not move when their node fails; when a node is replaced,
//!   its pods are removed with it, and their owners create others.
//! * `managedFields` are not written.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use crate::clock::after;
use crate::kubelet::usage::{self, ContainerUsage};
use crate::node_set::NodeSet;
use crate::objects::{ObjectText, ObjectWriter, WriteError};
use crate::seed::Seed;

mod bookkeeping;
mod churn;
mod compiled_template;
mod controller;
mod delay;
mod deployment;
mod driver;
mod event;
mod lifecycle;
mod messages;
mod node_replacement;
mod nodes;
mod owner;
pub(crate) mod pod;
mod population;
mod queue;
pub(crate) mod render;
mod running;
mod scenario;
mod startup;
mod template;
mod termination;

pub use churn::{ChurnRate, ChurnRateError, ScenarioMix};
pub use driver::{WorkloadHandle, drive};
pub use owner::Manifest;
pub use pod::Pod;
pub use scenario::Scenario;
pub use template::{
    ContainerTemplate, DEFAULT_IMAGE, Delay, PodTemplate, Probe, Pull, Readiness, Resources,
    RestartPolicy,
};

use event::{Recorder, WrittenEvent};
use lifecycle::PodStep;
use owner::OwnerEntry;

/// Configuration of a workload.
#[derive(Debug, Clone)]
pub struct WorkloadConfig {
    /// Pods that run on each node from the start.
    pub pods_per_node: usize,
    /// Containers of each of these pods.
    pub containers_per_pod: usize,
    /// Number of namespaces of these pods.
    pub namespaces: usize,
    /// Average rate at which pods are created; as many are deleted.
    pub churn: ChurnRate,
    /// Scenarios of the pods of the churn.
    pub mix: ScenarioMix,
    /// Average rate at which nodes are replaced, oldest first. Needs a node set with spares.
    pub replacements: ChurnRate,
    /// Whether nodes renew their leases every ten seconds.
    pub leases: bool,
    /// Lifetime of events in milliseconds. An hour in a real cluster.
    pub event_lifetime_millis: u64,
    /// Limit of events; beyond it the oldest are removed early.
    pub max_events: usize,
}

#[derive(Debug)]
pub struct Workload {
    config: WorkloadConfig,
    seed: Seed,
    node_set: Arc<NodeSet>,
    queue: queue::Queue,
    /// Counts planned transitions and created objects, and names the latter.
    sequence: u64,
    pods: BTreeMap<PodId, PodEntry>,
    owners: BTreeMap<OwnerId, OwnerEntry>,
    recorder: Recorder,
    /// Buffer of the next object to write.
    text: ObjectText,
    churn: churn::Churn,
    next_node: usize,
    node_replacement: node_replacement::NodeReplacement,
    /// Writes that the store rejected.
    rejected_writes: u64,
}

pub(crate) type PodId = u64;
pub(crate) type OwnerId = u64;

/// A pod and the state of its controllers.
#[derive(Debug)]
pub(crate) struct PodEntry {
    pub(crate) pod: Arc<Pod>,
    pub(crate) owner: Option<OwnerId>,
    /// Steps planned in an earlier epoch are ignored.
    pub(crate) epoch: u32,
    pub(crate) version: u64,
    pub(crate) written: Vec<WrittenEvent>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Transition {
    Pod {
        id: PodId,
        epoch: u32,
        step: PodStep,
    },
    Reconcile(OwnerId),
    Expire(OwnerId),
    Arrival,
    Lease {
        index: usize,
        epoch: u32,
    },
    Heartbeat {
        index: usize,
        epoch: u32,
    },
    Replace,
}

/// The instant and the store of a transition.
#[derive(Clone, Copy)]
pub(crate) struct StepContext<'a> {
    pub(crate) now: Timestamp,
    pub(crate) writer: &'a dyn ObjectWriter,
}

impl Default for WorkloadConfig {
    /// No pods at all: tests and demos configure what they need.
    fn default() -> Self {
        Self {
            pods_per_node: 0,
            containers_per_pod: 2,
            namespaces: 10,
            churn: ChurnRate::NONE,
            mix: ScenarioMix::default(),
            replacements: ChurnRate::NONE,
            leases: true,
            event_lifetime_millis: 600_000,
            max_events: 50_000,
        }
    }
}

impl Workload {
    /// Creates a workload on the nodes of a node set. Nothing happens before
    /// [`Workload::populate`].
    pub fn new(config: WorkloadConfig, node_set: Arc<NodeSet>, seed: Seed) -> Self {
        Self {
            recorder: Recorder::new(
                seed.derive_name("events"),
                config.event_lifetime_millis,
                config.max_events,
            ),
            text: ObjectText::default(),
            churn: churn::Churn::new(seed.derive_name("churn")),
            config,
            seed,
            node_set,
            queue: queue::Queue::default(),
            sequence: 0,
            pods: BTreeMap::new(),
            owners: BTreeMap::new(),
            next_node: 0,
            node_replacement: node_replacement::NodeReplacement::default(),
            rejected_writes: 0,
        }
    }

    /// Runs every transition that is due at `now`, in the order of their instants.
    pub fn step(&mut self, now: Timestamp, writer: &dyn ObjectWriter) {
        while self.step_some(now, writer, usize::MAX) {}
    }

    /// Runs at most `max` transitions and returns whether more are due.
    pub fn step_some(&mut self, now: Timestamp, writer: &dyn ObjectWriter, max: usize) -> bool {
        for _ in 0..max {
            let Some((at, transition)) = self.queue.pop(now) else {
                self.recorder.expire(writer, now);
                return false;
            };
            let ctx = StepContext { now: at, writer };
            match transition {
                Transition::Pod { id, epoch, step } => {
                    if self.pods.get(&id).is_some_and(|entry| entry.epoch == epoch) {
                        self.run_step(id, step, ctx);
                    }
                }
                Transition::Reconcile(id) => self.reconcile(id, ctx),
                Transition::Expire(id) => self.remove_owner(id, ctx),
                Transition::Arrival => self.on_arrival(ctx),
                Transition::Lease { index, epoch } => self.renew_lease(index, epoch, ctx),
                Transition::Heartbeat { index, epoch } => self.heartbeat(index, epoch, ctx),
                Transition::Replace => self.replace_next(ctx),
            }
        }
        true
    }

    /// Returns the instant of the next transition.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    /// Number of pods, in any state.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// Number of events.
    pub fn events(&self) -> usize {
        self.recorder.count()
    }

    /// Number of writes that the store rejected.
    pub fn rejected_writes(&self) -> u64 {
        self.rejected_writes
    }

    /// The true usage of a running container, to compare with what is read from a kubelet.
    pub fn usage(&self, namespace: &str, pod: &str, container: &str) -> Option<ContainerUsage> {
        let mut slots = self.pods.values();
        let entry = slots.find(|s| *s.pod.namespace == *namespace && *s.pod.name == *pod)?;
        let index = entry
            .pod
            .parts()
            .find(|part| **part.name == *container)?
            .index;
        usage::running(&entry.pod, index)
    }

    pub fn node_set(&self) -> &Arc<NodeSet> {
        &self.node_set
    }

    fn plan(&mut self, at: Timestamp, transition: Transition) {
        self.sequence += 1;
        self.queue.push(at, transition);
    }

    /// Plans a pod's next step, `low` to `high` milliseconds from now.
    fn plan_step(&mut self, id: PodId, step: PodStep, now: Timestamp, (low, high): (u64, u64)) {
        let Some(entry) = self.pods.get(&id) else {
            return;
        };
        // The random number depends only on the pod and its progress, so no other pod affects it.
        let mut seed = entry
            .pod
            .seed
            .derive(now.unix_millis().cast_unsigned())
            .derive(step.tag());
        let epoch = entry.epoch;
        let at = after(now, seed.between(low, high));
        self.plan(at, Transition::Pod { id, epoch, step });
    }

    fn written(&mut self, result: Result<u64, WriteError>) {
        if let Err(error) = result {
            self.rejected_writes += 1;
            tracing::debug!(%error, "object not written");
        }
    }

    fn next_id(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

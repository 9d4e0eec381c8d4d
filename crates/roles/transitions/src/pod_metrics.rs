//! The metrics of pods: counted with every record, and the gauges of those that are starting.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Clock, Node};
use kubevitals_transition_metrics::{Topology, TransitionMetrics};
use kubevitals_transitions::{Output, PodRecord, Tracker};
use kubevitals_watch::Reflector;

/// Time between two walks over the pods that are starting, at least.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// Walks take at most this part of the time of the event loop, whatever the number of pods.
const MAX_SHARE: u32 = 100;

pub(crate) struct PodMetrics {
    families: TransitionMetrics,
    /// For the labels of node pools and zones, and the age of nodes.
    nodes: Option<Reflector<Node>>,
    /// The time of the next walk, since the process started.
    next: Duration,
    /// Whether the gauges are empty, as those of a standby.
    is_clear: bool,
}

impl PodMetrics {
    pub(crate) fn new(families: TransitionMetrics, nodes: Option<Reflector<Node>>) -> Self {
        Self {
            families,
            nodes,
            next: Duration::ZERO,
            is_clear: true,
        }
    }

    /// Adds the creation of the pod's node, where nodes are watched: a node that is younger than
    /// its pod was waited for.
    pub(crate) fn add_node(&self, output: &mut Output) {
        let (Output::Startup(record) | Output::Lifecycle(record) | Output::Progress(record)) =
            output
        else {
            return;
        };
        let created = self.node_of(record).and_then(|node| node.meta.created);
        if created.is_some() {
            Arc::make_mut(record).node_created = created;
        }
    }

    /// Records an output.
    pub(crate) fn record(&self, output: &Output) {
        let (Output::Startup(record) | Output::Lifecycle(record)) = output else {
            return;
        };
        self.with_topology(record, |topology| self.families.record(output, topology));
    }

    /// Updates the gauges of starting pods from time to time, and removes idle series. No change of
    /// a pod costs anything for it. A standby has no gauges: the leader has the same.
    pub(crate) fn update(&mut self, tracker: &Tracker, clock: &Clock) {
        let begun = clock.moment();
        if tracker.is_standby() {
            if !self.is_clear {
                self.families.starting(begun.wall).publish();
                self.is_clear = true;
                self.next = Duration::ZERO;
            }
            return;
        }
        if begun.monotonic < self.next {
            return;
        }
        self.families.advance(begun.monotonic);
        let mut starting = self.families.starting(begun.wall);
        for record in tracker.starting_records() {
            self.with_topology(record, |topology| starting.add(record, topology));
        }
        starting.publish();
        self.is_clear = false;
        let now = clock.moment().monotonic;
        let took = now.saturating_sub(begun.monotonic);
        self.next = now + MIN_INTERVAL.max(took.saturating_mul(MAX_SHARE));
    }

    fn with_topology(&self, record: &PodRecord, then: impl FnOnce(Topology<'_>)) {
        let node = self.node_of(record);
        let topology = node
            .as_ref()
            .map(|node| self.families.topology_of(&node.labels));
        then(topology.unwrap_or_default());
    }

    fn node_of(&self, record: &PodRecord) -> Option<Arc<Node>> {
        let name = record.pod.summary.node.as_deref();
        let (nodes, name) = self.nodes.as_ref().zip(name)?;
        nodes.get("", name)
    }
}

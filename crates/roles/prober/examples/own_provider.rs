//! A metrics provider of your own: it writes a line of text for each observation.
//!
//! A provider gives three recorders. One type may be all of them, as here. A recorder must not
//! wait: this one writes to memory or to a file, and a backend over the network would queue.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kubevitals_inventory::{
    AddonCount, AddonPods, AddonRules, NodeAvailabilityCount, NodeCondition, NodeConditionCount,
    NodeStatus, RestartCount, addons_expected,
};
use kubevitals_model::Timestamp;
use kubevitals_prober::{ClusterRecorder, NodeRecorder, ProbeRecorder, ProbeTarget, Provider};

/// The provider. Clones write to the same place.
#[derive(Clone)]
pub(crate) struct Lines(Arc<Mutex<Box<dyn Write + Send>>>);

impl Lines {
    pub(crate) fn new(out: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(out))))
    }

    fn line(&self, at: Timestamp, text: &str) {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A backend that fails costs its own data and nothing else.
        let _ = writeln!(out, "{} {text}", at.rfc3339_seconds());
    }
}

impl Provider for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn cluster_recorder(&self) -> Arc<dyn ClusterRecorder> {
        Arc::new(self.clone())
    }

    fn node_recorder(&self) -> Arc<dyn NodeRecorder> {
        Arc::new(self.clone())
    }

    fn probe_recorder(&self) -> Arc<dyn ProbeRecorder> {
        Arc::new(self.clone())
    }

    fn shutdown(&self, _grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = out.flush();
        })
    }
}

impl ClusterRecorder for Lines {
    fn node_conditions(&self, at: Timestamp, counts: &[NodeConditionCount]) {
        for count in counts {
            let NodeCondition { kind, status } = &count.condition;
            let (pool, nodes) = (&count.pool, count.nodes);
            self.line(at, &format!("pool {pool}: {kind}={status} on {nodes}"));
        }
    }

    fn node_availabilities(&self, at: Timestamp, counts: &[NodeAvailabilityCount]) {
        let available = counts.iter().filter(|count| count.is_available());
        let nodes: u64 = available.map(|count| count.nodes).sum();
        self.line(at, &format!("available nodes: {nodes}"));
    }

    fn addons_expected(&self, at: Timestamp, counts: &[AddonCount]) {
        for AddonCount { addon, pods } in counts {
            self.line(at, &format!("addon {}: expected {pods}", addon.name));
        }
    }
}

impl NodeRecorder for Lines {
    fn conditions(&self, at: Timestamp, node: &NodeStatus, conditions: &[NodeCondition]) {
        for condition in conditions.iter().filter(|condition| !condition.is_good()) {
            self.line(at, &format!("node {}: {}", node.name, condition.kind));
        }
    }

    fn availability(&self, at: Timestamp, node: &NodeStatus) {
        let available = node.is_available();
        self.line(at, &format!("node {}: available={available}", node.name));
    }

    fn addons(&self, at: Timestamp, node: &NodeStatus, addons: &[AddonPods]) {
        for addon in addons.iter().filter(|addon| !addon.is_available()) {
            let (node, name) = (&node.name, &addon.addon.name);
            self.line(at, &format!("node {node}: addon {name} is broken"));
        }
    }

    fn control_plane(&self, _: Timestamp, _: &NodeStatus, _: Option<bool>) {}

    fn restarts(&self, at: Timestamp, _: &NodeStatus, counts: &[RestartCount]) {
        for count in counts {
            let (pod, total) = (count.pod.name(), count.total);
            self.line(at, &format!("pod {pod}: {total} restarts"));
        }
    }
}

impl ProbeRecorder for Lines {
    fn targets(&self, at: Timestamp, targets: &[ProbeTarget]) {
        for target in targets {
            let (probe, verdict) = (&target.probe.name, target.statistics.verdict);
            self.line(at, &format!("probe {probe}: {}", verdict.as_str()));
        }
    }
}

#[cfg_attr(
    test,
    expect(dead_code, reason = "the test of this example includes the file")
)]
fn main() {
    // `kubevitals prober` calls the recorders; here it is done by hand.
    let lines = Lines::new(io::stdout());
    let at = Timestamp::from_unix_millis(0);
    let expected = addons_expected(&AddonRules::default(), &[], &[]);
    let recorder = lines.cluster_recorder();
    recorder.node_availabilities(at, &[]);
    recorder.addons_expected(at, &expected);
}

//! The tick of node mode: this node, and the addons on it.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_inventory::{AddonRules, NodeAddons, NodeCondition, NodeStatus, Restarts};
use kubevitals_model::{Node, Pod, Timestamp};
use kubevitals_watch::Reflector;

use crate::fan_out::FanOut;
use crate::metrics::TickResult;
use crate::probe_board::ProbeBoard;
use crate::provider::NodeRecorder;

/// The watches of node mode: one node, and the pods that are bound to it.
#[derive(Clone)]
pub struct NodeWatches {
    pub node: Reflector<Node>,
    pub pods: Reflector<Pod>,
}

/// The node and its pods at one time.
pub(crate) struct NodeObjects {
    /// `None` if the node does not exist.
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) pods: Vec<Arc<Pod>>,
}

/// Settings of node mode.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// The name of this node.
    pub name: String,
    pub rules: AddonRules,
    /// A younger node is not available.
    pub warm_up: Duration,
}

/// Node mode, with what it remembers.
pub(crate) struct NodeMode {
    settings: NodeSettings,
    interval: Duration,
    recorders: FanOut<dyn NodeRecorder>,
    restarts: Restarts,
    board: Arc<ProbeBoard>,
}

impl NodeWatches {
    /// The objects, or `None` until all of them are listed.
    pub(crate) fn objects(&self, name: &str) -> Option<NodeObjects> {
        let is_synced = self.node.state().synced && self.pods.state().synced;
        is_synced.then(|| NodeObjects {
            node: self.node.get("", name),
            pods: self.pods.objects(),
        })
    }

    pub(crate) async fn shutdown(&self) {
        self.node.shutdown().await;
        self.pods.shutdown().await;
    }
}

impl NodeMode {
    pub(crate) fn new(
        settings: NodeSettings,
        interval: Duration,
        recorders: FanOut<dyn NodeRecorder>,
        board: Arc<ProbeBoard>,
    ) -> Self {
        Self {
            settings,
            interval,
            recorders,
            restarts: Restarts::default(),
            board,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Records the state of the node.
    pub(crate) fn tick(&mut self, objects: Option<&NodeObjects>, now: Timestamp) -> TickResult {
        let Some(NodeObjects { node, pods }) = objects else {
            return TickResult::NotSynced;
        };
        let rules = &self.settings.rules;
        let pods = || pods.iter().map(|pod| &**pod);
        self.restarts.observe(rules, pods(), now, self.interval);
        let Some(node) = node else {
            // It was deleted or renamed, and this process will be too.
            self.recorders.ended();
            return TickResult::NoNode;
        };
        let status = NodeStatus::of(node, now, self.settings.warm_up);
        let addons = NodeAddons::judge(
            rules,
            pods(),
            |pod| self.restarts.is_stable(pod),
            |addon, pod| self.board.health(addon, pod),
        );
        let recorders = &self.recorders;
        recorders.conditions(now, &status, &NodeCondition::all(node));
        recorders.availability(now, &status);
        recorders.addons(now, &status, &addons.addons);
        recorders.control_plane(now, &status, addons.control_plane_available(&status));
        recorders.restarts(now, &status, &self.restarts.counts());
        TickResult::Recorded
    }
}

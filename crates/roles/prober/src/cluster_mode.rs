//! The tick of cluster mode: all nodes, and what addons should have.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_inventory::{
    AddonRules, NodeStatus, ReadyTransitions, SilentNodes, addons_expected, node_availabilities,
    node_conditions,
};
use kubevitals_model::{DaemonSet, Deployment, Node, Pod, Timestamp};
use kubevitals_watch::Reflector;

use crate::fan_out::FanOut;
use crate::mesh::MeshCoordinator;
use crate::metrics::TickResult;
use crate::provider::ClusterRecorder;

/// The watches of cluster mode.
#[derive(Clone)]
pub struct ClusterWatches {
    pub nodes: Reflector<Node>,
    pub daemon_sets: Reflector<DaemonSet>,
    pub deployments: Reflector<Deployment>,
    /// The pods of the prober's node mode; `None` if nobody asks which nodes are silent.
    pub probers: Option<Reflector<Pod>>,
}

/// Objects of the cluster at one time.
pub(crate) struct ClusterObjects {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) daemon_sets: Vec<Arc<DaemonSet>>,
    pub(crate) deployments: Vec<Arc<Deployment>>,
    pub(crate) probers: Option<Vec<Arc<Pod>>>,
}

/// Settings of cluster mode.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    pub rules: AddonRules,
    /// A younger node is not available.
    pub warm_up: Duration,
    /// A node is silent after this time without a ready prober.
    pub silence: Duration,
    /// Gives peers to the probers of nodes; `None` without a mesh.
    pub mesh: Option<MeshCoordinator>,
}

/// Cluster mode, with what it remembers.
pub(crate) struct ClusterMode {
    settings: ClusterSettings,
    recorders: FanOut<dyn ClusterRecorder>,
    transitions: ReadyTransitions,
    silent: SilentNodes,
    was_leader: bool,
}

impl ClusterWatches {
    /// All objects, or `None` until all of them are listed.
    pub(crate) fn objects(&self) -> Option<ClusterObjects> {
        let probers_synced = self.probers.as_ref().is_none_or(|one| one.state().synced);
        let is_synced = self.nodes.state().synced
            && self.daemon_sets.state().synced
            && self.deployments.state().synced
            && probers_synced;
        is_synced.then(|| ClusterObjects {
            nodes: self.nodes.objects(),
            daemon_sets: self.daemon_sets.objects(),
            deployments: self.deployments.objects(),
            probers: self.probers.as_ref().map(Reflector::objects),
        })
    }

    /// Ends the watches that no other role shares.
    pub(crate) async fn shutdown(&self) {
        self.daemon_sets.shutdown().await;
        self.deployments.shutdown().await;
        if let Some(probers) = &self.probers {
            probers.shutdown().await;
        }
    }
}

impl ClusterMode {
    pub(crate) fn new(
        settings: ClusterSettings,
        recorders: FanOut<dyn ClusterRecorder>,
        now: Timestamp,
    ) -> Self {
        Self {
            settings,
            recorders,
            transitions: ReadyTransitions::new(now),
            silent: SilentNodes::default(),
            was_leader: false,
        }
    }

    /// Ends the series of this replica as soon as another one may report.
    pub(crate) fn follow(&mut self, is_leader: bool, now: Timestamp) {
        if is_leader && !self.was_leader {
            self.transitions.restart(now);
        }
        if !is_leader && self.was_leader {
            self.recorders.ended();
        }
        self.was_leader = is_leader;
    }

    /// Records the state of the cluster, if this replica leads.
    pub(crate) fn tick(
        &mut self,
        objects: Option<&ClusterObjects>,
        is_leader: bool,
        now: Timestamp,
    ) -> TickResult {
        self.follow(is_leader, now);
        let Some(objects) = objects else {
            return TickResult::NotSynced;
        };
        let settings = &self.settings;
        let nodes = &objects.nodes;
        let status = |node: &Arc<Node>| NodeStatus::of(node, now, settings.warm_up);
        let statuses: Vec<NodeStatus> = nodes.iter().map(status).collect();
        if let (Some(mesh), Some(probers)) = (&settings.mesh, &objects.probers) {
            mesh.update(&statuses, probers);
        }
        // A standby observes too, so that it knows the past when it takes over.
        self.transitions.observe(nodes, &statuses);
        let silent = objects.probers.as_ref().and_then(|probers| {
            let silence = settings.silence;
            self.silent.find(&statuses, probers, now, silence)
        });
        if !is_leader {
            return TickResult::Standby;
        }
        let recorders = &self.recorders;
        recorders.node_conditions(now, &node_conditions(nodes, &statuses));
        recorders.node_availabilities(now, &node_availabilities(&statuses));
        let expected = addons_expected(&settings.rules, &objects.daemon_sets, &objects.deployments);
        recorders.addons_expected(now, &expected);
        recorders.not_ready(now, &self.transitions.counts());
        if let Some(silent) = silent {
            recorders.silent_nodes(now, &silent);
        }
        TickResult::Recorded
    }
}

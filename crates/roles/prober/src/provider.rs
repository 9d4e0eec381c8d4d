//! The interface of a metrics provider: a backend that receives what the prober observes.
//!
//! A provider gives one recorder for each kind of observation. The role calls all recorders at each
//! tick, with all series of a metric: a series that is missing has ended. A recorder queues and
//! returns; one that waits delays the tick of all.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kubevitals_inventory::{
    AddonCount, AddonPods, NodeAvailabilityCount, NodeCondition, NodeConditionCount, NodeStatus,
    NotReadyCount, RestartCount, SilentNode,
};
use kubevitals_model::Timestamp;
use kubevitals_probes::{Completed, ProbeInfo, Statistics};

/// A backend, such as Google Cloud Monitoring.
pub trait Provider: Send + Sync {
    /// The name in `--provider`, logs and metrics.
    fn name(&self) -> &str;

    fn cluster_recorder(&self) -> Arc<dyn ClusterRecorder>;

    fn node_recorder(&self) -> Arc<dyn NodeRecorder>;

    fn probe_recorder(&self) -> Arc<dyn ProbeRecorder>;

    /// Sends what is queued, within the grace period. Nothing is recorded afterwards.
    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()>;
}

/// Records observations of the whole cluster.
pub trait ClusterRecorder: Send + Sync {
    /// `cluster/node_condition`: nodes by condition.
    fn node_conditions(&self, at: Timestamp, counts: &[NodeConditionCount]);

    /// `cluster/node_available`: nodes by availability.
    fn node_availabilities(&self, at: Timestamp, counts: &[NodeAvailabilityCount]);

    /// `cluster/addons_expected`: pods that addons should have.
    fn addons_expected(&self, at: Timestamp, counts: &[AddonCount]);

    /// `cluster/node_not_ready`: changes of nodes from ready to not ready.
    fn not_ready(&self, at: Timestamp, counts: &[NotReadyCount]) {
        let _ = (at, counts);
    }

    /// `cluster/node_silent`: nodes whose own prober cannot report.
    fn silent_nodes(&self, at: Timestamp, nodes: &[SilentNode]) {
        let _ = (at, nodes);
    }

    /// All series of the cluster end here: another replica reports from now on.
    fn ended(&self) {}
}

/// Records observations of the node that this process runs on.
pub trait NodeRecorder: Send + Sync {
    /// `node/condition`: the conditions of the node.
    fn conditions(&self, at: Timestamp, node: &NodeStatus, conditions: &[NodeCondition]);

    /// `node/available`: the availability of the node.
    fn availability(&self, at: Timestamp, node: &NodeStatus);

    /// `addon/available`: the pods of addons on the node.
    fn addons(&self, at: Timestamp, node: &NodeStatus, addons: &[AddonPods]);

    /// `addon/control_plane_available`: whether the node and all addons on it are available; `None`
    /// if there is no addon.
    fn control_plane(&self, at: Timestamp, node: &NodeStatus, available: Option<bool>);

    /// `addon/restart`: restarts of the containers of addons.
    fn restarts(&self, at: Timestamp, node: &NodeStatus, counts: &[RestartCount]);

    /// All series of the node end here: it was deleted.
    fn ended(&self) {}
}

/// Records the results of probes.
pub trait ProbeRecorder: Send + Sync {
    /// A run has ended. The call holds up the probe.
    fn completed(&self, completed: &Completed) {
        let _ = completed;
    }

    /// A target is no longer probed: its series end.
    fn removed(&self, probe: &ProbeInfo, target: &str) {
        let _ = (probe, target);
    }

    /// The statistics of all targets, at each tick.
    fn targets(&self, at: Timestamp, targets: &[ProbeTarget]);
}

/// A target of a probe, and its statistics.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeTarget {
    pub probe: Arc<ProbeInfo>,
    pub target: Arc<str>,
    /// When the counts were zero.
    pub start: Timestamp,
    pub statistics: Statistics,
}

//! Several providers at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kubevitals_inventory::{
    AddonCount, AddonPods, NodeAvailabilityCount, NodeCondition, NodeConditionCount, NodeStatus,
    NotReadyCount, RestartCount, SilentNode,
};
use kubevitals_model::Timestamp;
use kubevitals_probes::{Completed, ProbeInfo};

use crate::provider::{ClusterRecorder, NodeRecorder, ProbeRecorder, ProbeTarget, Provider};

/// The providers of a process. Every one of them receives every observation.
#[derive(Clone, Default)]
pub struct Providers(Vec<Arc<dyn Provider>>);

/// Recorders of one kind, one of each provider.
pub(crate) struct FanOut<R: ?Sized>(Vec<Arc<R>>);

impl Providers {
    pub fn new(providers: Vec<Arc<dyn Provider>>) -> Self {
        Self(providers)
    }

    pub fn names(&self) -> Vec<String> {
        let names = self.0.iter().map(|provider| provider.name().to_owned());
        names.collect()
    }

    pub(crate) fn cluster(&self) -> FanOut<dyn ClusterRecorder> {
        FanOut(self.0.iter().map(|one| one.cluster_recorder()).collect())
    }

    pub(crate) fn node(&self) -> FanOut<dyn NodeRecorder> {
        FanOut(self.0.iter().map(|one| one.node_recorder()).collect())
    }

    pub(crate) fn probes(&self) -> FanOut<dyn ProbeRecorder> {
        FanOut(self.0.iter().map(|one| one.probe_recorder()).collect())
    }

    /// Flushes all providers, each within the whole grace period.
    pub(crate) async fn shutdown(&self, grace: Duration) {
        join_all(self.0.iter().map(|provider| provider.shutdown(grace))).await;
    }
}

impl ClusterRecorder for FanOut<dyn ClusterRecorder> {
    fn node_conditions(&self, at: Timestamp, counts: &[NodeConditionCount]) {
        self.0
            .iter()
            .for_each(|one| one.node_conditions(at, counts));
    }

    fn node_availabilities(&self, at: Timestamp, counts: &[NodeAvailabilityCount]) {
        let all = self.0.iter();
        all.for_each(|one| one.node_availabilities(at, counts));
    }

    fn addons_expected(&self, at: Timestamp, counts: &[AddonCount]) {
        self.0
            .iter()
            .for_each(|one| one.addons_expected(at, counts));
    }

    fn not_ready(&self, at: Timestamp, counts: &[NotReadyCount]) {
        self.0.iter().for_each(|one| one.not_ready(at, counts));
    }

    fn silent_nodes(&self, at: Timestamp, nodes: &[SilentNode]) {
        self.0.iter().for_each(|one| one.silent_nodes(at, nodes));
    }

    fn ended(&self) {
        self.0.iter().for_each(|one| one.ended());
    }
}

impl NodeRecorder for FanOut<dyn NodeRecorder> {
    fn conditions(&self, at: Timestamp, node: &NodeStatus, conditions: &[NodeCondition]) {
        let all = self.0.iter();
        all.for_each(|one| one.conditions(at, node, conditions));
    }

    fn availability(&self, at: Timestamp, node: &NodeStatus) {
        self.0.iter().for_each(|one| one.availability(at, node));
    }

    fn addons(&self, at: Timestamp, node: &NodeStatus, addons: &[AddonPods]) {
        self.0.iter().for_each(|one| one.addons(at, node, addons));
    }

    fn control_plane(&self, at: Timestamp, node: &NodeStatus, available: Option<bool>) {
        let all = self.0.iter();
        all.for_each(|one| one.control_plane(at, node, available));
    }

    fn restarts(&self, at: Timestamp, node: &NodeStatus, counts: &[RestartCount]) {
        self.0.iter().for_each(|one| one.restarts(at, node, counts));
    }

    fn ended(&self) {
        self.0.iter().for_each(|one| one.ended());
    }
}

impl ProbeRecorder for FanOut<dyn ProbeRecorder> {
    fn completed(&self, completed: &Completed) {
        self.0.iter().for_each(|one| one.completed(completed));
    }

    fn removed(&self, probe: &ProbeInfo, target: &str) {
        self.0.iter().for_each(|one| one.removed(probe, target));
    }

    fn targets(&self, at: Timestamp, targets: &[ProbeTarget]) {
        self.0.iter().for_each(|one| one.targets(at, targets));
    }
}

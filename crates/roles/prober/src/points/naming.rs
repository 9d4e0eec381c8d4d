//! The names of metrics and labels: those of gke-prober, or semantic conventions.

use std::sync::Arc;

/// Whose names data points have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Those of gke-prober: `cluster/node_condition`, `nodepool`.
    Peer,
    /// Those of OpenTelemetry where there is one: `k8s.node.condition.status`.
    SemanticConventions,
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metric {
    peer: &'static str,
    conventions: &'static str,
    /// By UCUM.
    pub(super) unit: &'static str,
    /// What it is, for descriptors.
    text: &'static str,
}

/// A label, or an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    peer: &'static str,
    conventions: &'static str,
}

const fn metric(
    peer: &'static str,
    conventions: &'static str,
    unit: &'static str,
    text: &'static str,
) -> Metric {
    Metric {
        peer,
        conventions,
        unit,
        text,
    }
}

const fn label(peer: &'static str, conventions: &'static str) -> Label {
    Label { peer, conventions }
}

impl Metric {
    pub(super) const CLUSTER_CONDITION: Self = metric(
        "cluster/node_condition",
        "k8s.node.condition.status",
        "{node}",
        "Number of nodes by condition",
    );
    pub(super) const CLUSTER_AVAILABLE: Self = metric(
        "cluster/node_available",
        "kubevitals.node.available",
        "{node}",
        "Number of nodes by availability",
    );
    pub(super) const ADDONS_EXPECTED: Self = metric(
        "cluster/addons_expected",
        "kubevitals.addon.expected",
        "{pod}",
        "Number of pods that an addon should have",
    );
    pub(super) const NOT_READY: Self = metric(
        "cluster/node_not_ready",
        "kubevitals.node.not_ready",
        "{change}",
        "Changes of nodes from ready to not ready",
    );
    pub(super) const NODE_SILENT: Self = metric(
        "cluster/node_silent",
        "kubevitals.node.silent",
        "{node}",
        "A node whose own prober cannot report",
    );
    pub(super) const NODES_SILENT: Self = metric(
        "cluster/nodes_silent",
        "kubevitals.node.silent.count",
        "{node}",
        "Number of nodes whose own prober cannot report",
    );
    pub(super) const NODE_CONDITION: Self = metric(
        "node/condition",
        "k8s.node.condition.status",
        "{node}",
        "A condition of the node",
    );
    pub(super) const NODE_AVAILABLE: Self = metric(
        "node/available",
        "kubevitals.node.available",
        "{node}",
        "The availability of the node",
    );
    pub(super) const ADDON_AVAILABLE: Self = metric(
        "addon/available",
        "kubevitals.addon.available",
        "{pod}",
        "Number of pods of an addon on the node by availability",
    );
    pub(super) const CONTROL_PLANE: Self = metric(
        "addon/control_plane_available",
        "kubevitals.addon.control_plane.available",
        "1",
        "Whether the node and all addons on it are available",
    );
    pub(super) const ADDON_RESTART: Self = metric(
        "addon/restart",
        "k8s.container.restart.count",
        "{restart}",
        "Restarts of a container of an addon since its pod started",
    );
    pub(super) const ADDONS_CONDITION: Self = metric(
        "cluster/probe/addons_condition",
        "kubevitals.addon.condition",
        "1",
        "Whether the probe of an addon succeeds",
    );
    pub(super) const PROBE_TOTAL: Self = metric(
        "probe/total",
        "kubevitals.probe.runs",
        "{run}",
        "Runs of a probe",
    );
    pub(super) const PROBE_SUCCESS: Self = metric(
        "probe/success",
        "kubevitals.probe.successes",
        "{run}",
        "Runs of a probe that succeeded",
    );
    pub(super) const PROBE_TIMEOUT: Self = metric(
        "probe/timeout",
        "kubevitals.probe.timeouts",
        "{run}",
        "Runs of a probe that ran out of time",
    );
    pub(super) const PROBE_FAILURES: Self = metric(
        "probe/failures",
        "kubevitals.probe.failures",
        "{run}",
        "Runs of a probe that failed, by reason",
    );
    pub(super) const PROBE_DURATION: Self = metric(
        "probe/duration",
        "kubevitals.probe.duration",
        "s",
        "Duration of runs of a probe",
    );
    pub(super) const PROBE_PHASE_DURATION: Self = metric(
        "probe/phase_duration",
        "kubevitals.probe.phase.duration",
        "s",
        "Duration of a phase of runs of a probe",
    );
    pub(super) const PROBE_UP: Self = metric(
        "probe/up",
        "kubevitals.probe.up",
        "1",
        "Whether a target is up, by the threshold of its probe",
    );

    const ALL: [Self; 19] = [
        Self::CLUSTER_CONDITION,
        Self::CLUSTER_AVAILABLE,
        Self::ADDONS_EXPECTED,
        Self::NOT_READY,
        Self::NODE_SILENT,
        Self::NODES_SILENT,
        Self::NODE_CONDITION,
        Self::NODE_AVAILABLE,
        Self::ADDON_AVAILABLE,
        Self::CONTROL_PLANE,
        Self::ADDON_RESTART,
        Self::ADDONS_CONDITION,
        Self::PROBE_TOTAL,
        Self::PROBE_SUCCESS,
        Self::PROBE_TIMEOUT,
        Self::PROBE_FAILURES,
        Self::PROBE_DURATION,
        Self::PROBE_PHASE_DURATION,
        Self::PROBE_UP,
    ];

    pub(super) const fn name(&self, naming: Naming) -> &'static str {
        match naming {
            Naming::Peer => self.peer,
            Naming::SemanticConventions => self.conventions,
        }
    }
}

impl Naming {
    /// The names of all metrics, and what they are.
    pub fn descriptions(self) -> Vec<(&'static str, &'static str)> {
        let all = Metric::ALL.iter();
        all.map(|metric| (metric.name(self), metric.text)).collect()
    }
}

impl Label {
    pub(super) const POOL: Self = label("nodepool", "kubevitals.node.pool");
    pub(super) const ZONE: Self = label("zone", "cloud.availability_zone");
    pub(super) const CONDITION_TYPE: Self = label("type", "k8s.node.condition.type");
    pub(super) const CONDITION_STATUS: Self = label("status", "k8s.node.condition.status");
    pub(super) const READY: Self = label("ready", "kubevitals.node.ready");
    pub(super) const SCHEDULABLE: Self = label("schedulable", "kubevitals.node.schedulable");
    /// The spelling of the node mode of gke-prober.
    pub(super) const SCHEDULEABLE: Self = label("scheduleable", "kubevitals.node.schedulable");
    pub(super) const DONE_WARMING: Self = label("done_warming", "kubevitals.node.done_warming");
    pub(super) const AVAILABLE: Self = label("available", "kubevitals.available");
    pub(super) const NODE_AVAILABLE: Self = label("node_available", "kubevitals.node.available");
    pub(super) const RUNNING: Self = label("running", "kubevitals.addon.running");
    pub(super) const STABLE: Self = label("stable", "kubevitals.addon.stable");
    pub(super) const HEALTHY: Self = label("healthy", "kubevitals.addon.healthy");
    pub(super) const ADDON: Self = label("addon", "kubevitals.addon.name");
    pub(super) const VERSION: Self = label("version", "kubevitals.addon.version");
    pub(super) const CONTROLLER: Self = label("controller", "kubevitals.addon.controller");
    pub(super) const CONTAINER: Self = label("container_name", "k8s.container.name");
    pub(super) const REASON: Self = label("reason", "kubevitals.reason");
    pub(super) const EXIT_CODE: Self = label("exit_code", "kubevitals.container.exit_code");
    /// Not `k8s.node.name`: the resource is the cluster.
    pub(super) const NODE: Self = label("node", "kubevitals.node.name");
    pub(super) const PROBE: Self = label("probe", "kubevitals.probe.name");
    pub(super) const TARGET: Self = label("target", "kubevitals.probe.target");
    pub(super) const ERROR_TYPE: Self = label("reason", "error.type");
    pub(super) const PHASE: Self = label("phase", "kubevitals.probe.phase");
    pub(super) const NAME: Self = label("name", "kubevitals.addon.name");
    pub(super) const CONDITION: Self = label("condition", "kubevitals.addon.condition");

    pub(super) const fn name(&self, naming: Naming) -> &'static str {
        match naming {
            Naming::Peer => self.peer,
            Naming::SemanticConventions => self.conventions,
        }
    }

    /// The values of a condition are in lower case by convention.
    pub(super) fn value(&self, naming: Naming, value: &str) -> Arc<str> {
        let is_status = self.conventions == Self::CONDITION_STATUS.conventions;
        if naming == Naming::SemanticConventions && is_status {
            value.to_ascii_lowercase().into()
        } else {
            value.into()
        }
    }
}

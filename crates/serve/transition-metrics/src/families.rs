//! Name, type, labels and help of each family. A test compares the table in the documents with
//! these.

use kubevitals_telemetry::{HistogramSpec, NativeOptions};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyInfo {
    pub name: &'static str,
    pub kind: FamilyKind,
    /// Whether its series have the labels of pods
    /// ([`LabelChoice`](crate::LabelChoice)).
    pub by_pod: bool,
    /// Its own label, if it has one.
    pub label: Option<&'static str>,
    /// The help text, without a full stop.
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FamilyKind {
    Counter,
    Gauge,
    /// In seconds, with the bounds of the classic buckets.
    Histogram(&'static [f64]),
}

/// The kubelet's buckets for starts of pods.
const START_BOUNDS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// The kubelet's buckets for image pulls.
const PULL_BOUNDS: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];

/// Fewer than for a whole start: there are fourteen phases.
const PHASE_BOUNDS: &[f64] = &[
    0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];

/// With one just above the usual grace period of 30 seconds.
const TERMINATION_BOUNDS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 33.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];

/// Just above each step of a kubelet's back-off: 10, 20, 40, 80, 160 and 300 seconds.
const DOWN_BOUNDS: &[f64] = &[
    1.0, 2.0, 5.0, 15.0, 30.0, 50.0, 100.0, 180.0, 330.0, 600.0, 1800.0, 3600.0,
];

pub(crate) const STARTING: FamilyInfo = FamilyInfo {
    name: "kubevitals_pods_starting",
    kind: FamilyKind::Gauge,
    by_pod: true,
    label: Some("waiting_for"),
    help: "Number of pods that are not ready yet, by what they wait for",
};

pub(crate) const STARTING_AGE: FamilyInfo = FamilyInfo {
    name: "kubevitals_pods_starting_oldest_age_seconds",
    kind: FamilyKind::Gauge,
    by_pod: true,
    label: Some("waiting_for"),
    help: "Time since the creation of the oldest pod that is not ready yet, by what it waits for, in seconds",
};

pub(crate) const STARTUPS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_startups_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("result"),
    help: "Total number of pods that became ready (result ready) or never will, by blocker",
};

pub(crate) const STARTUP: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_startup_duration_seconds",
    kind: FamilyKind::Histogram(START_BOUNDS),
    by_pod: true,
    label: None,
    help: "Time from the creation of a pod until it is ready in seconds",
};

pub(crate) const PHASE: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_startup_phase_duration_seconds",
    kind: FamilyKind::Histogram(PHASE_BOUNDS),
    by_pod: true,
    label: Some("phase"),
    help: "Duration of each completed phase of a pod start in seconds",
};

pub(crate) const UNMEASURED: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_startups_unmeasured_total",
    kind: FamilyKind::Counter,
    by_pod: false,
    label: Some("reason"),
    help: "Total number of pods that became ready without being in the startup histograms, because their times are unknown",
};

pub(crate) const SLI: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_start_sli_duration_seconds",
    kind: FamilyKind::Histogram(START_BOUNDS),
    by_pod: true,
    label: None,
    help: "Time from the creation of a schedulable stateless pod until all its containers run, excluding image pulls and init containers, in seconds",
};

pub(crate) const SLI_EXCLUDED: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_start_sli_excluded_total",
    kind: FamilyKind::Counter,
    by_pod: false,
    label: Some("reason"),
    help: "Total number of pods whose start does not count for the service level indicator, by the first reason",
};

pub(crate) const PULLS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pulls_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("result"),
    help: "Total number of containers and image volumes whose image was pulled, was already present, or failed to be pulled by the time the start of the pod was decided",
};

pub(crate) const PULL: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_duration_seconds",
    kind: FamilyKind::Histogram(PULL_BOUNDS),
    by_pod: true,
    label: Some("image_size_in_bytes"),
    help: "Duration of image pulls including the wait for other pulls of the node, by the kubelet's size classes, in seconds",
};

pub(crate) const PULL_WAIT: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_wait_duration_seconds",
    kind: FamilyKind::Histogram(PHASE_BOUNDS),
    by_pod: true,
    label: None,
    help: "Time image pulls waited for other pulls of the node in seconds",
};

pub(crate) const PULL_BYTES: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_bytes_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: None,
    help: "Total size of pulled images in bytes",
};

pub(crate) const PULL_FAILURES: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_failures_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("reason"),
    help: "Total number of failed attempts to pull an image until the start of the pod was decided, by reason of the last",
};

pub(crate) const PULL_BACK_OFFS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_back_offs_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: None,
    help: "Total number of back-offs before another attempt to pull an image",
};

pub(crate) const LIFECYCLES: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_lifecycles_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("end"),
    help: "Total number of pods whose lifecycle ended, by end",
};

pub(crate) const TERMINATION: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_termination_duration_seconds",
    kind: FamilyKind::Histogram(TERMINATION_BOUNDS),
    by_pod: true,
    label: None,
    help: "Time from the request to delete a pod until it is removed in seconds",
};

pub(crate) const RESTARTS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_container_restarts_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("reason"),
    help: "Total number of container restarts of deleted pods, by reason of the previous exit",
};

pub(crate) const DOWN: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_container_down_duration_seconds",
    kind: FamilyKind::Histogram(DOWN_BOUNDS),
    by_pod: true,
    label: None,
    help: "Time from the exit of a container to its next start, including the back-off of the kubelet, of deleted pods, in seconds",
};

pub(crate) const LABEL_SETS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_metrics_label_sets",
    kind: FamilyKind::Gauge,
    by_pod: false,
    label: None,
    help: "Number of sets of pod labels with series of their own",
};

pub(crate) const LABEL_SETS_LIMIT: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_metrics_label_sets_limit",
    kind: FamilyKind::Gauge,
    by_pod: false,
    label: None,
    help: "Maximum number of sets of pod labels with series of their own",
};

pub(crate) const OVERFLOWS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_metrics_overflow_total",
    kind: FamilyKind::Counter,
    by_pod: false,
    label: None,
    help: "Total number of starts and ends of pods counted under _other because the limit of label sets is reached",
};

/// All families.
pub const FAMILIES: [FamilyInfo; 21] = [
    STARTING,
    STARTING_AGE,
    STARTUPS,
    STARTUP,
    PHASE,
    UNMEASURED,
    SLI,
    SLI_EXCLUDED,
    PULLS,
    PULL,
    PULL_WAIT,
    PULL_BYTES,
    PULL_FAILURES,
    PULL_BACK_OFFS,
    LIFECYCLES,
    TERMINATION,
    RESTARTS,
    DOWN,
    LABEL_SETS,
    LABEL_SETS_LIMIT,
    OVERFLOWS,
];

impl FamilyInfo {
    /// The name for registration: the library appends the suffix of counters.
    pub(crate) fn registered_name(&self) -> &'static str {
        match self.kind {
            FamilyKind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            FamilyKind::Gauge | FamilyKind::Histogram(_) => self.name,
        }
    }

    pub(crate) fn histogram(&self, is_native: bool) -> HistogramSpec {
        let bounds = match self.kind {
            FamilyKind::Histogram(bounds) => bounds,
            FamilyKind::Counter | FamilyKind::Gauge => &[],
        };
        HistogramSpec {
            name: self.name,
            help: self.help,
            bounds,
            native: is_native.then(NativeOptions::default),
        }
    }
}

impl FamilyKind {
    /// The type as in Prometheus.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

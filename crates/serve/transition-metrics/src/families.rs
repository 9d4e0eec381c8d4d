//! What each family is: its name, type, labels and meaning. The table in the documents is compared
//! with this one.

use kubevitals_telemetry::{HistogramSpec, NativeOptions};

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyInfo {
    /// Its whole name.
    pub name: &'static str,
    /// What kind of values it has.
    pub kind: FamilyKind,
    /// Whether its series are told apart by the labels of pods
    /// ([`LabelChoice`](crate::LabelChoice)).
    pub by_pod: bool,
    /// The label of its own, if it has one.
    pub label: Option<&'static str>,
    /// What it tells, without a full stop.
    pub help: &'static str,
}

/// What kind of values a family has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FamilyKind {
    /// A count that only rises.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Durations in seconds, with the bounds of the classic buckets.
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

/// Fewer than for a whole start: there are nine phases.
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

pub(crate) const STARTUPS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_startups_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("result"),
    help: "Pods that became ready (result ready) or never will, by what was in the way",
};

pub(crate) const STARTUP: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_startup_duration_seconds",
    kind: FamilyKind::Histogram(START_BOUNDS),
    by_pod: true,
    label: None,
    help: "From the creation of a pod to its being ready",
};

pub(crate) const PHASE: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_startup_phase_duration_seconds",
    kind: FamilyKind::Histogram(PHASE_BOUNDS),
    by_pod: true,
    label: Some("phase"),
    help: "How long each phase of a pod's start took, if it came to its end",
};

pub(crate) const UNMEASURED: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_startups_unmeasured_total",
    kind: FamilyKind::Counter,
    by_pod: false,
    label: Some("reason"),
    help: "Pods that became ready and are not in the histograms of starts, because their times are not known",
};

pub(crate) const SLI: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_start_sli_duration_seconds",
    kind: FamilyKind::Histogram(START_BOUNDS),
    by_pod: true,
    label: None,
    help: "From the creation of a stateless pod that can be scheduled at once to all its containers running, without image pulls and init containers",
};

pub(crate) const SLI_EXCLUDED: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_start_sli_excluded_total",
    kind: FamilyKind::Counter,
    by_pod: false,
    label: Some("reason"),
    help: "Pods whose start does not count for the service level indicator, by the first reason",
};

pub(crate) const PULLS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pulls_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("result"),
    help: "Containers whose image was pulled, was there already, or had not come when the start of the pod was decided",
};

pub(crate) const PULL: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_duration_seconds",
    kind: FamilyKind::Histogram(PULL_BOUNDS),
    by_pod: true,
    label: Some("image_size_in_bytes"),
    help: "How long image pulls took with their wait for other pulls of the node, by the kubelet's classes of sizes",
};

pub(crate) const PULL_WAIT: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_wait_duration_seconds",
    kind: FamilyKind::Histogram(PHASE_BOUNDS),
    by_pod: true,
    label: None,
    help: "How long image pulls waited for other pulls of the node",
};

pub(crate) const PULL_BYTES: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_bytes_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: None,
    help: "Sizes of the images that were pulled",
};

pub(crate) const PULL_FAILURES: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_failures_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("reason"),
    help: "Attempts to pull an image that failed until the start of the pod was decided, by the last message",
};

pub(crate) const PULL_BACK_OFFS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_image_pull_back_offs_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: None,
    help: "How often a kubelet put off another attempt to pull an image",
};

pub(crate) const LIVES: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_lives_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("end"),
    help: "Pods that are gone, by whether that was seen",
};

pub(crate) const TERMINATION: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_termination_duration_seconds",
    kind: FamilyKind::Histogram(TERMINATION_BOUNDS),
    by_pod: true,
    label: None,
    help: "From when the deletion of a pod was asked for to its being gone",
};

pub(crate) const RESTARTS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_container_restarts_total",
    kind: FamilyKind::Counter,
    by_pod: true,
    label: Some("reason"),
    help: "Restarts of containers in the whole life of pods that are gone, by why the run before ended",
};

pub(crate) const DOWN: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_container_down_duration_seconds",
    kind: FamilyKind::Histogram(DOWN_BOUNDS),
    by_pod: true,
    label: None,
    help: "From the end of a container to its next run, the kubelet's back-off included, in the life of pods that are gone",
};

pub(crate) const LABEL_SETS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_metrics_label_sets",
    kind: FamilyKind::Gauge,
    by_pod: false,
    label: None,
    help: "Sets of pod labels that are told apart",
};

pub(crate) const LABEL_SETS_LIMIT: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_metrics_label_sets_limit",
    kind: FamilyKind::Gauge,
    by_pod: false,
    label: None,
    help: "How many sets of pod labels may be told apart",
};

pub(crate) const OVERFLOWS: FamilyInfo = FamilyInfo {
    name: "kubevitals_pod_metrics_overflow_total",
    kind: FamilyKind::Counter,
    by_pod: false,
    label: None,
    help: "Starts and ends of pods that were counted under _other because too many sets of labels are in use",
};

/// Every family.
pub const FAMILIES: [FamilyInfo; 19] = [
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
    LIVES,
    TERMINATION,
    RESTARTS,
    DOWN,
    LABEL_SETS,
    LABEL_SETS_LIMIT,
    OVERFLOWS,
];

impl FamilyInfo {
    /// The name that it is registered under: the library adds what a counter ends in.
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
    /// As Prometheus calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

//! Workloads: `DaemonSets`, `Deployments` and `ReplicaSets`.

use std::sync::Arc;

use super::condition::Condition;
use super::identity::Identity;
use super::meta::ObjectMeta;
use crate::labels::Labels;

/// The fields that all workloads have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub identity: Identity,
    pub labels: Labels,
    pub meta: ObjectMeta,
    pub selector: WorkloadSelector,
    /// The labels of the pod template.
    pub template_labels: Labels,
    /// The annotations of the pod template, of those that the reflector keeps.
    pub template_annotations: Labels,
    /// The image of the first container of the pod template.
    pub template_image: Option<Arc<str>>,
    /// The generation that the controller has acted on.
    pub observed_generation: i64,
    pub conditions: Box<[Condition]>,
}

/// A `metav1.LabelSelector`: all parts must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadSelector {
    pub labels: Labels,
    pub expressions: Box<[SelectorRequirement]>,
}

/// A `metav1.LabelSelectorRequirement`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorRequirement {
    pub key: Arc<str>,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: Arc<str>,
    pub values: Box<[Arc<str>]>,
}

/// A `DaemonSet`. The counts are numbers of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    pub workload: Workload,
    pub desired: i32,
    /// Nodes that run a pod and should.
    pub current: i32,
    /// Nodes that run a pod and should not.
    pub misscheduled: i32,
    pub ready: i32,
    pub updated: i32,
    pub available: i32,
    pub unavailable: i32,
}

/// A `Deployment`. The counts are numbers of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    pub workload: Workload,
    pub paused: bool,
    pub desired: i32,
    pub replicas: i32,
    pub updated: i32,
    pub ready: i32,
    pub available: i32,
    pub unavailable: i32,
}

/// A `ReplicaSet`. The counts are numbers of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSet {
    pub workload: Workload,
    pub desired: i32,
    pub replicas: i32,
    pub ready: i32,
    pub available: i32,
}

impl Workload {
    /// Whether the controller has acted on the current spec.
    pub fn is_observed(&self) -> bool {
        self.observed_generation >= self.meta.generation
    }
}

impl WorkloadSelector {
    /// Whether the selector matches these labels. An empty selector matches none: workloads with
    /// one own no pods.
    pub fn matches(&self, labels: &Labels) -> bool {
        let is_empty = self.labels.is_empty() && self.expressions.is_empty();
        let has = |(key, value): (&str, &str)| labels.get(key).is_some_and(|own| **own == *value);
        !is_empty
            && self.labels.iter().all(has)
            && self.expressions.iter().all(|one| one.matches(labels))
    }
}

impl SelectorRequirement {
    /// An operator that this program does not know matches nothing.
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.contains(value));
        match &*self.operator {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

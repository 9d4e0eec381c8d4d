//! Workload controllers as objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::compiled_template::{CompiledTemplate, Owner, SpecText, write_labels};
use super::event::WrittenEvent;
use super::template::PodTemplate;
use super::{OwnerId, PodId};
use crate::json::{Members, push_display};
use crate::objects::{ObjectText, Resource};
use crate::seed::Uid;

/// A workload to run.
#[derive(Debug, Clone)]
pub enum Manifest {
    /// A pod without an owner.
    Pod { name: String, template: PodTemplate },
    /// A Deployment.
    Deployment {
        name: String,
        replicas: u32,
        template: PodTemplate,
    },
    /// A `StatefulSet`, which starts its pods in order.
    StatefulSet {
        name: String,
        replicas: u32,
        template: PodTemplate,
    },
    /// A Job, which starts all its pods at once.
    Job {
        name: String,
        completions: u32,
        template: PodTemplate,
        /// `ttlSecondsAfterFinished`.
        ttl_seconds: Option<u32>,
    },
}

#[derive(Debug)]
pub(crate) struct OwnerEntry {
    pub(crate) kind: OwnerKind,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) created: Timestamp,
    pub(crate) version: u64,
    pub(crate) generation: u32,
    pub(crate) desired: u32,
    pub(crate) pods: Vec<PodId>,
    /// `None` for a Deployment, whose pods belong to its `ReplicaSets`.
    pub(crate) compiled: Option<Arc<CompiledTemplate>>,
    /// Number of pods created so far, for the names of new ones.
    pub(crate) made: u64,
    pub(crate) counts: Counts,
    pub(crate) written: Vec<WrittenEvent>,
    /// Whether a reconciliation is planned.
    pub(crate) woken: bool,
    pub(crate) leaving: bool,
}

/// Counts in the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) total: u32,
    pub(crate) ready: u32,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    /// Set when a Job has completed.
    pub(crate) completed: Option<Timestamp>,
}

#[derive(Debug)]
pub(crate) enum OwnerKind {
    Deployment {
        template: Box<PodTemplate>,
        /// The template's spec, rendered once.
        spec: SpecText,
        current: OwnerId,
        previous: Option<OwnerId>,
        revision: u32,
    },
    ReplicaSet {
        deployment: Option<OwnerId>,
        deployment_owner: Option<(Arc<str>, Uid)>,
        hash: Arc<str>,
        revision: u32,
    },
    StatefulSet,
    DaemonSet,
    Job {
        ttl_seconds: Option<u32>,
    },
}

impl Manifest {
    pub fn name(&self) -> &str {
        match self {
            Self::Pod { name, .. }
            | Self::Deployment { name, .. }
            | Self::StatefulSet { name, .. }
            | Self::Job { name, .. } => name,
        }
    }
}

impl OwnerKind {
    pub(crate) fn resource(&self) -> Resource {
        match self {
            Self::Deployment { .. } => Resource::Deployments,
            Self::ReplicaSet { .. } => Resource::ReplicaSets,
            Self::StatefulSet => Resource::StatefulSets,
            Self::DaemonSet => Resource::DaemonSets,
            Self::Job { .. } => Resource::Jobs,
        }
    }

    /// `apiVersion`, `kind`, and the component that reports its events.
    pub(crate) fn identity(&self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Deployment { .. } => ("apps/v1", "Deployment", "deployment-controller"),
            Self::ReplicaSet { .. } => ("apps/v1", "ReplicaSet", "replicaset-controller"),
            Self::StatefulSet => ("apps/v1", "StatefulSet", "statefulset-controller"),
            Self::DaemonSet => ("apps/v1", "DaemonSet", "daemonset-controller"),
            Self::Job { .. } => ("batch/v1", "Job", "job-controller"),
        }
    }
}

impl OwnerEntry {
    /// Writes the whole object, without `resourceVersion`.
    pub(crate) fn render(&self, out: &mut ObjectText) {
        out.begin(&self.namespace, &self.name);
        self.metadata(&mut out.members());
        out.end_metadata();
        out.members()
            .object("spec", |members| self.spec(members))
            .object("status", |members| self.status(members));
        out.end();
        if let (OwnerKind::ReplicaSet { .. }, Some(compiled)) = (&self.kind, &self.compiled) {
            for (key, value) in self.labels(&compiled.template) {
                out.label(key, value);
            }
        }
        // The selectable field, if there is one.
        let count = match self.kind {
            OwnerKind::ReplicaSet { .. } => self.counts.total,
            OwnerKind::Job { .. } => self.counts.succeeded,
            _ => return,
        };
        push_display(&mut out.fields, count);
        out.field("");
    }

    fn metadata(&self, members: &mut Members<'_>) {
        if let OwnerKind::Deployment { revision, .. } | OwnerKind::ReplicaSet { revision, .. } =
            &self.kind
        {
            members.object("annotations", |members| {
                members.display("deployment.kubernetes.io/revision", revision);
            });
        }
        members
            .time("creationTimestamp", self.created)
            .bare("generation", self.generation);
        if let OwnerKind::ReplicaSet { .. } = &self.kind
            && let Some(compiled) = &self.compiled
        {
            write_labels(members, "labels", &self.labels(&compiled.template));
        }
        members
            .text("name", &self.name)
            .text("namespace", &self.namespace);
        if let OwnerKind::ReplicaSet {
            deployment_owner: Some((name, uid)),
            ..
        } = &self.kind
        {
            let owner = Owner {
                api_version: "apps/v1",
                kind: "Deployment",
                name: Arc::clone(name),
                uid: *uid,
            };
            owner.write(members);
        }
        members.uid("uid", self.uid);
    }

    fn spec(&self, members: &mut Members<'_>) {
        let (template, spec) = match (&self.kind, &self.compiled) {
            (OwnerKind::Deployment { template, spec, .. }, _) => (&**template, spec),
            (_, Some(kind)) => (&kind.template, &kind.spec),
            _ => return,
        };
        let labels = self.labels(template);
        match &self.kind {
            OwnerKind::Deployment { .. } => members
                .bare("progressDeadlineSeconds", 600)
                .bare("replicas", self.desired)
                .bare("revisionHistoryLimit", 10),
            OwnerKind::ReplicaSet { .. } => members.bare("replicas", self.desired),
            OwnerKind::StatefulSet => members
                .text("podManagementPolicy", "OrderedReady")
                .bare("replicas", self.desired),
            OwnerKind::DaemonSet => members,
            OwnerKind::Job { .. } => members
                .bare("backoffLimit", 6)
                .bare("completions", self.desired)
                .bare("parallelism", self.desired),
        };
        if !matches!(self.kind, OwnerKind::Job { .. }) {
            members.object("selector", |members| {
                write_labels(members, "matchLabels", &labels);
            });
        }
        match &self.kind {
            OwnerKind::Deployment { .. } => {
                members.json(
                    "strategy",
                    r#"{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}"#,
                );
            }
            OwnerKind::StatefulSet => {
                members.text("serviceName", &self.name);
            }
            _ => {}
        }
        members.object("template", |members| {
            members
                .object("metadata", |members| {
                    write_labels(members, "labels", &labels);
                })
                .object("spec", |members| spec.write(members, |_, _| {}));
        });
        if let OwnerKind::Job {
            ttl_seconds: Some(ttl),
        } = self.kind
        {
            members.bare("ttlSecondsAfterFinished", ttl);
        }
    }

    /// The labels of its pods.
    fn labels<'l>(&'l self, template: &'l PodTemplate) -> BTreeMap<&'l str, &'l str> {
        let labels = template.labels.iter();
        let mut labels: BTreeMap<&str, &str> =
            labels.map(|(key, value)| (&**key, &**value)).collect();
        if let OwnerKind::ReplicaSet { hash, .. } = &self.kind {
            labels.insert("pod-template-hash", hash);
        }
        labels
    }

    fn status(&self, members: &mut Members<'_>) {
        let Counts {
            total,
            ready,
            succeeded,
            failed,
            ..
        } = self.counts;
        match &self.kind {
            OwnerKind::Deployment { .. } => members
                .bare("availableReplicas", ready)
                .bare("observedGeneration", self.generation)
                .bare("readyReplicas", ready)
                .bare("replicas", total)
                .bare("unavailableReplicas", self.desired.saturating_sub(ready))
                .bare("updatedReplicas", total.min(self.desired)),
            OwnerKind::ReplicaSet { .. } => members
                .bare("availableReplicas", ready)
                .bare("fullyLabeledReplicas", total)
                .bare("observedGeneration", self.generation)
                .bare("readyReplicas", ready)
                .bare("replicas", total),
            OwnerKind::StatefulSet => members
                .bare("availableReplicas", ready)
                .bare("currentReplicas", total)
                .bare("observedGeneration", self.generation)
                .bare("readyReplicas", ready)
                .bare("replicas", total),
            OwnerKind::DaemonSet => members
                .bare("currentNumberScheduled", total)
                .bare("desiredNumberScheduled", self.desired)
                .bare("numberAvailable", ready)
                .bare("numberMisscheduled", 0)
                .bare("numberReady", ready)
                .bare("observedGeneration", self.generation)
                .bare("updatedNumberScheduled", total),
            OwnerKind::Job { .. } => {
                members.bare("active", total.saturating_sub(succeeded + failed));
                self.completion(members);
                members
                    .bare("failed", failed)
                    .bare("ready", ready)
                    .time("startTime", self.created)
                    .bare("succeeded", succeeded)
                    .bare("terminating", 0)
            }
        };
    }

    /// The part of a Job's status that is set on completion.
    fn completion(&self, members: &mut Members<'_>) {
        let Some(at) = self.counts.completed else {
            return;
        };
        members
            .time("completionTime", at)
            .list("conditions", |items| {
                items.object(|members| {
                    members
                        .time("lastProbeTime", at)
                        .time("lastTransitionTime", at)
                        .text("message", "Reached expected number of succeeded pods")
                        .text("reason", "CompletionsReached")
                        .text("status", "True")
                        .text("type", "Complete");
                });
            });
    }
}

#[cfg(test)]
mod tests;

//! Workload controllers as objects.

use std::sync::Arc;

use kubevitals_model::Timestamp;
use serde_json::{Value, json};

use super::event::Written;
use super::pod::PodKind;
use super::render::{object, time};
use super::template::PodTemplate;
use super::{OwnerId, PodId};
use crate::objects::Resource;
use crate::seed::Uid;

/// Something to run.
#[derive(Debug, Clone)]
pub enum Manifest {
    /// A pod of its own.
    Pod {
        /// Its name.
        name: String,
        /// What it is made of.
        template: PodTemplate,
    },
    /// A Deployment.
    Deployment {
        /// Its name.
        name: String,
        /// How many pods.
        replicas: u32,
        /// What they are made of.
        template: PodTemplate,
    },
    /// A `StatefulSet`, which starts one pod after the other.
    StatefulSet {
        /// Its name.
        name: String,
        /// How many pods.
        replicas: u32,
        /// What they are made of.
        template: PodTemplate,
    },
    /// A Job, which starts all its pods at once.
    Job {
        /// Its name.
        name: String,
        /// How many pods.
        completions: u32,
        /// What they are made of.
        template: PodTemplate,
        /// After how many seconds it is deleted once it is done.
        ttl_seconds: Option<u32>,
    },
}

#[derive(Debug)]
pub(crate) struct OwnerSlot {
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
    pub(crate) pod_kind: Option<Arc<PodKind>>,
    /// Pods that came and went, for the names of those to come.
    pub(crate) made: u64,
    pub(crate) counts: Counts,
    pub(crate) written: Vec<Written>,
    /// A reconciliation is planned already.
    pub(crate) woken: bool,
    pub(crate) leaving: bool,
}

/// What a status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) total: u32,
    pub(crate) ready: u32,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    /// Set when a Job is done.
    pub(crate) completed: Option<Timestamp>,
}

#[derive(Debug)]
pub(crate) enum OwnerKind {
    Deployment {
        template: Box<PodTemplate>,
        /// The template's spec, made once.
        spec: Value,
        current: OwnerId,
        previous: Option<OwnerId>,
        revision: u32,
    },
    ReplicaSet {
        deployment: Option<OwnerId>,
        deployment_owner: Option<(Arc<str>, Uid)>,
        hash: Arc<str>,
    },
    StatefulSet,
    DaemonSet,
    Job {
        ttl_seconds: Option<u32>,
    },
}

impl Manifest {
    /// Its name.
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

    /// `apiVersion`, `kind`, and the component that writes its events.
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

impl OwnerSlot {
    /// The whole object, without `resourceVersion`.
    pub(crate) fn render(&self) -> Value {
        let (api_version, kind, _) = self.kind.identity();
        let mut metadata = json!({
            "name": &*self.name,
            "namespace": &*self.namespace,
            "uid": self.uid.to_string(),
            "generation": self.generation,
            "creationTimestamp": time(self.created),
        });
        if let OwnerKind::ReplicaSet {
            deployment_owner: Some((name, uid)),
            ..
        } = &self.kind
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.insert(
                "ownerReferences".into(),
                json!([{
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": &**name,
                    "uid": uid.to_string(),
                    "controller": true,
                    "blockOwnerDeletion": true,
                }]),
            );
        }
        if let (OwnerKind::Deployment { revision, .. }, Some(metadata)) =
            (&self.kind, metadata.as_object_mut())
        {
            metadata.insert(
                "annotations".into(),
                json!({"deployment.kubernetes.io/revision": revision.to_string()}),
            );
        }
        object([
            ("apiVersion", api_version.into()),
            ("kind", kind.into()),
            ("metadata", metadata),
            ("spec", self.spec()),
            ("status", self.status()),
        ])
    }

    fn template(&self) -> Option<(&PodTemplate, Value)> {
        match (&self.kind, &self.pod_kind) {
            (OwnerKind::Deployment { template, spec, .. }, _) => Some((template, spec.clone())),
            (_, Some(kind)) => Some((&kind.template, kind.spec.clone())),
            _ => None,
        }
    }

    fn spec(&self) -> Value {
        let Some((template, spec)) = self.template() else {
            return json!({});
        };
        let mut labels: serde_json::Map<String, Value> = template
            .labels
            .iter()
            .map(|(key, value)| ((**key).to_owned(), (**value).into()))
            .collect();
        if let OwnerKind::ReplicaSet { hash, .. } = &self.kind {
            labels.insert("pod-template-hash".into(), (**hash).into());
        }
        let selector = object([("matchLabels", labels.clone().into())]);
        let metadata = object([("labels", labels.into())]);
        let template = object([("metadata", metadata), ("spec", spec)]);
        let mut spec = match &self.kind {
            OwnerKind::Deployment { .. } => json!({
                "replicas": self.desired,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            }),
            OwnerKind::ReplicaSet { .. } => json!({"replicas": self.desired}),
            OwnerKind::StatefulSet => json!({
                "replicas": self.desired,
                "serviceName": &*self.name,
                "podManagementPolicy": "OrderedReady",
            }),
            OwnerKind::DaemonSet => json!({}),
            OwnerKind::Job { .. } => json!({
                "parallelism": self.desired,
                "completions": self.desired,
                "backoffLimit": 6,
            }),
        };
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("template".into(), template);
            match self.kind {
                OwnerKind::Job { ttl_seconds } => {
                    if let Some(ttl) = ttl_seconds {
                        spec.insert("ttlSecondsAfterFinished".into(), ttl.into());
                    }
                }
                _ => {
                    spec.insert("selector".into(), selector);
                }
            }
        }
        spec
    }

    fn status(&self) -> Value {
        let Counts {
            total,
            ready,
            succeeded,
            failed,
            completed,
        } = self.counts;
        match &self.kind {
            OwnerKind::Deployment { .. } => json!({
                "observedGeneration": self.generation,
                "replicas": total,
                "updatedReplicas": total.min(self.desired),
                "readyReplicas": ready,
                "availableReplicas": ready,
                "unavailableReplicas": self.desired.saturating_sub(ready),
            }),
            OwnerKind::ReplicaSet { .. } => json!({
                "observedGeneration": self.generation,
                "replicas": total,
                "fullyLabeledReplicas": total,
                "readyReplicas": ready,
                "availableReplicas": ready,
            }),
            OwnerKind::StatefulSet => json!({
                "observedGeneration": self.generation,
                "replicas": total,
                "readyReplicas": ready,
                "currentReplicas": total,
                "availableReplicas": ready,
            }),
            OwnerKind::DaemonSet => json!({
                "observedGeneration": self.generation,
                "currentNumberScheduled": total,
                "desiredNumberScheduled": self.desired,
                "numberAvailable": ready,
                "numberMisscheduled": 0,
                "numberReady": ready,
                "updatedNumberScheduled": total,
            }),
            OwnerKind::Job { .. } => {
                let mut status = json!({
                    "startTime": time(self.created),
                    "active": total.saturating_sub(succeeded + failed),
                    "ready": ready,
                    "succeeded": succeeded,
                    "failed": failed,
                    "terminating": 0,
                });
                if let (Some(at), Some(status)) = (completed, status.as_object_mut()) {
                    status.insert("completionTime".into(), time(at));
                    status.insert(
                        "conditions".into(),
                        json!([{
                            "type": "Complete",
                            "status": "True",
                            "reason": "CompletionsReached",
                            "message": "Reached expected number of succeeded pods",
                            "lastProbeTime": time(at),
                            "lastTransitionTime": time(at),
                        }]),
                    );
                }
                status
            }
        }
    }
}

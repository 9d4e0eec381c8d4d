//! An owner rendered as text equals the one built as a tree of values.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::workload::render::tests::{assert_same, every_transition, object};
use crate::workload::render::time;

#[test]
fn text_and_tree_of_an_owner_are_equal_at_every_step() {
    let mut text = ObjectText::default();
    let mut resources = BTreeSet::new();
    let mut completed = 0;
    every_transition(|workload, written| {
        for entry in workload.owners.values() {
            let resource = entry.kind.resource();
            let key = format!("{}/{}", entry.namespace, entry.name);
            if written.contains(&(resource, key)) {
                entry.render(&mut text);
                assert_same(resource, &text, &entry.tree());
                resources.insert(resource);
                completed += u32::from(entry.counts.completed.is_some());
            }
        }
    });
    assert_eq!(resources.len(), 5, "{resources:?}");
    assert!(completed > 0, "no Job is done");
}

/// Builds the same object as a tree.
impl OwnerEntry {
    fn tree(&self) -> Value {
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
        if let OwnerKind::ReplicaSet { hash, .. } = &self.kind
            && let Some((template, _)) = self.tree_of_template()
        {
            let labels = template.labels.iter();
            let mut labels: serde_json::Map<String, Value> = labels
                .map(|(key, value)| ((**key).to_owned(), (**value).into()))
                .collect();
            labels.insert("pod-template-hash".into(), (**hash).into());
            metadata["labels"] = labels.into();
        }
        if let (
            OwnerKind::Deployment { revision, .. } | OwnerKind::ReplicaSet { revision, .. },
            Some(metadata),
        ) = (&self.kind, metadata.as_object_mut())
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
            ("spec", self.tree_of_spec()),
            ("status", self.tree_of_status()),
        ])
    }

    fn tree_of_template(&self) -> Option<(&PodTemplate, Value)> {
        match (&self.kind, &self.compiled) {
            (OwnerKind::Deployment { template, .. }, _) => Some((template, template.spec())),
            (_, Some(kind)) => Some((&kind.template, kind.template.spec())),
            _ => None,
        }
    }

    fn tree_of_spec(&self) -> Value {
        let Some((template, spec)) = self.tree_of_template() else {
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

    fn tree_of_status(&self) -> Value {
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

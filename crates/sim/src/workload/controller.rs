//! Controllers: they create the pods of their workload, count them, and replace removed ones.

use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::owner::{Counts, Manifest, OwnerKind};
use super::pod::{Phase, Pod};
use super::template::PodTemplate;
use super::{OwnerId, PodId, StepContext, Transition, Workload};
use crate::clock::after;
use crate::objects::ObjectWriter;

/// A created workload.
#[derive(Debug, Clone, Copy)]
pub(super) enum Launched {
    Pod(Option<PodId>),
    Owner(OwnerId),
}

impl Workload {
    /// Creates a workload.
    pub fn launch(
        &mut self,
        namespace: &str,
        manifest: Manifest,
        now: Timestamp,
        writer: &dyn ObjectWriter,
    ) {
        let ctx = StepContext { now, writer };
        self.launch_for(namespace.into(), manifest, None, ctx);
    }

    /// Replaces the pods of a Deployment step by step with pods of another template. Returns
    /// whether the Deployment exists and is not rolling out already.
    pub fn rollout(
        &mut self,
        namespace: &str,
        name: &str,
        template: PodTemplate,
        now: Timestamp,
        writer: &dyn ObjectWriter,
    ) -> bool {
        let Some(id) = self.find_owner(namespace, name) else {
            return false;
        };
        self.start_rollout(id, template, StepContext { now, writer })
    }

    /// Deletes a workload and its pods, or a single pod. Returns whether it existed.
    pub fn remove_workload(
        &mut self,
        namespace: &str,
        name: &str,
        now: Timestamp,
        writer: &dyn ObjectWriter,
    ) -> bool {
        if let Some(id) = self.find_owner(namespace, name) {
            self.remove_owner(id, StepContext { now, writer });
            return true;
        }
        self.delete_pod(namespace, name, None, now, writer)
    }

    /// Deletes a pod, optionally with a grace period. Returns whether it exists.
    pub fn delete_pod(
        &mut self,
        namespace: &str,
        name: &str,
        grace_seconds: Option<u32>,
        now: Timestamp,
        writer: &dyn ObjectWriter,
    ) -> bool {
        let found = self
            .pods
            .iter()
            .find(|(_, entry)| *entry.pod.namespace == *namespace && *entry.pod.name == *name)
            .map(|(id, _)| *id);
        if let Some(id) = found {
            self.delete(id, grace_seconds, StepContext { now, writer });
        }
        found.is_some()
    }

    pub(super) fn launch_for(
        &mut self,
        namespace: Arc<str>,
        manifest: Manifest,
        lifetime_millis: Option<u64>,
        ctx: StepContext<'_>,
    ) -> Launched {
        match manifest {
            Manifest::Pod { name, template } => {
                let kind = self.compile_template(template, None, None, Vec::new());
                let seed = self.seed.derive_name(&namespace).derive_name(&name);
                let pod = Pod::new(kind, namespace, name.into(), seed, ctx.now);
                Launched::Pod(self.create_pod(pod, None, lifetime_millis, ctx))
            }
            Manifest::Deployment {
                name,
                replicas,
                template,
            } => {
                let id = self.add_deployment(namespace, &name, replicas, template, ctx);
                self.reconcile(id, ctx);
                Launched::Owner(id)
            }
            Manifest::StatefulSet {
                name,
                replicas,
                mut template,
            } => {
                template.subdomain = Some(name.as_str().into());
                let hash = self.hash(&name, 0, 10);
                let revision = (
                    "controller-revision-hash".into(),
                    format!("{name}-{hash}").into(),
                );
                let kind = OwnerKind::StatefulSet;
                let id = self.add_owner(kind, namespace, &name, replicas, ctx);
                self.set_pod_template(id, template, format!("{name}-"), vec![revision]);
                self.write_new_owner(id, ctx);
                self.reconcile(id, ctx);
                Launched::Owner(id)
            }
            Manifest::Job {
                name,
                completions,
                template,
                ttl_seconds,
            } => {
                let kind = OwnerKind::Job { ttl_seconds };
                let id = self.add_owner(kind, namespace, &name, completions, ctx);
                let uid = self.owners.get(&id).map(|entry| entry.uid.to_string());
                let uid = uid.unwrap_or_default();
                let labels = [
                    ("batch.kubernetes.io/controller-uid", uid.as_str()),
                    ("batch.kubernetes.io/job-name", name.as_str()),
                    ("controller-uid", uid.as_str()),
                    ("job-name", name.as_str()),
                ];
                let labels = labels
                    .map(|(key, value)| (key.into(), value.into()))
                    .to_vec();
                self.set_pod_template(id, template, format!("{name}-"), labels);
                self.write_new_owner(id, ctx);
                self.reconcile(id, ctx);
                Launched::Owner(id)
            }
        }
    }

    /// Notifies the controller of a pod that the pod has changed.
    pub(super) fn pod_changed(&mut self, id: PodId, ctx: StepContext<'_>) {
        if let Some(owner) = self.pods.get(&id).and_then(|entry| entry.owner) {
            self.enqueue(owner, ctx);
        }
    }

    /// Notifies an owner that a pod was removed.
    pub(super) fn pod_removed(&mut self, owner: OwnerId, pod: PodId, ctx: StepContext<'_>) {
        if let Some(entry) = self.owners.get_mut(&owner) {
            entry.pods.retain(|id| *id != pod);
        }
        self.enqueue(owner, ctx);
    }

    /// Controllers reconcile a little later, and once for several changes.
    pub(super) fn enqueue(&mut self, owner: OwnerId, ctx: StepContext<'_>) {
        if let Some(entry) = self.owners.get_mut(&owner)
            && !entry.woken
        {
            entry.woken = true;
            self.plan(after(ctx.now, 15), Transition::Reconcile(owner));
        }
    }

    pub(super) fn reconcile(&mut self, id: OwnerId, ctx: StepContext<'_>) {
        let counts = self.count(id);
        let Some(entry) = self.owners.get_mut(&id) else {
            return;
        };
        entry.woken = false;
        let had = entry.counts;
        entry.counts = Counts {
            completed: had.completed,
            ..counts
        };
        if entry.leaving {
            if entry.pods.is_empty() {
                self.owners.remove(&id);
            }
            return;
        }
        let desired = entry.desired;
        let is_changed = match &entry.kind {
            OwnerKind::Deployment { .. } => {
                self.continue_rollout(id, ctx);
                true
            }
            OwnerKind::ReplicaSet { deployment, .. } => {
                let deployment = *deployment;
                self.scale(id, desired, counts, ctx);
                if let Some(deployment) = deployment {
                    self.enqueue(deployment, ctx);
                }
                counts.total != desired
            }
            OwnerKind::StatefulSet => {
                let all = entry.pods.len();
                all < desired as usize
                    && counts.ready as usize == all
                    && self.create_owned(id, ctx).is_some()
            }
            OwnerKind::Job { ttl_seconds } => {
                let ttl = *ttl_seconds;
                if entry.made == 0 {
                    for _ in 0..desired {
                        let _ = self.create_owned(id, ctx);
                    }
                    true
                } else if counts.succeeded >= desired && entry.counts.completed.is_none() {
                    entry.counts.completed = Some(ctx.now);
                    self.emit_owner_event(id, "Completed", "Job completed", ctx);
                    if let Some(ttl) = ttl {
                        let at = after(ctx.now, u64::from(ttl) * 1_000);
                        self.plan(at, Transition::Expire(id));
                    }
                    false
                } else {
                    false
                }
            }
            OwnerKind::DaemonSet => false,
        };
        let counts = if is_changed { self.count(id) } else { counts };
        if let Some(entry) = self.owners.get_mut(&id) {
            entry.counts = Counts {
                completed: entry.counts.completed,
                ..counts
            };
            if entry.counts != had {
                self.update_owner(id, ctx);
            }
        }
    }

    fn scale(&mut self, id: OwnerId, desired: u32, counts: Counts, ctx: StepContext<'_>) {
        for _ in counts.total..desired {
            let _ = self.create_owned(id, ctx);
        }
        let surplus = counts.total.saturating_sub(desired) as usize;
        if surplus == 0 {
            return;
        }
        let mut candidates: Vec<(bool, PodId)> = self
            .owners
            .get(&id)
            .map(|entry| entry.pods.clone())
            .unwrap_or_default()
            .into_iter()
            .filter_map(|pod| {
                let entry = self.pods.get(&pod)?;
                let going = entry.pod.deletion.is_some() || is_finished(&entry.pod);
                (!going).then_some((entry.pod.ready.holds, pod))
            })
            .collect();
        // Pods that are not ready are deleted first, then the youngest.
        candidates.sort_by_key(|(ready, pod)| (*ready, std::cmp::Reverse(*pod)));
        for (_, pod) in candidates.into_iter().take(surplus) {
            let name = self.pod(pod).map(|pod| Arc::clone(&pod.name));
            self.delete(pod, None, ctx);
            if let Some(name) = name {
                self.emit_owner_event(id, "SuccessfulDelete", &format!("Deleted pod: {name}"), ctx);
            }
        }
    }

    fn count(&self, id: OwnerId) -> Counts {
        let mut counts = Counts::default();
        let Some(entry) = self.owners.get(&id) else {
            return counts;
        };
        if let OwnerKind::Deployment { .. } = entry.kind {
            return self.deployment_counts(id);
        }
        for pod in entry.pods.iter().filter_map(|pod| self.pods.get(pod)) {
            let pod = &pod.pod;
            let done = is_finished(pod) && !pod.tracked;
            match (&entry.kind, pod.phase) {
                (OwnerKind::Job { .. }, Phase::Succeeded) if done => counts.succeeded += 1,
                (OwnerKind::Job { .. }, Phase::Failed) if done => counts.failed += 1,
                _ => {}
            }
            let alive = pod.deletion.is_none() && !is_finished(pod);
            if alive || matches!(entry.kind, OwnerKind::Job { .. }) {
                counts.total += 1;
                counts.ready += u32::from(pod.ready.holds);
            }
        }
        counts
    }

    pub(super) fn remove_owner(&mut self, id: OwnerId, ctx: StepContext<'_>) {
        let Some(entry) = self.owners.get_mut(&id) else {
            return;
        };
        entry.leaving = true;
        let (resource, namespace, name) = (
            entry.kind.resource(),
            Arc::clone(&entry.namespace),
            Arc::clone(&entry.name),
        );
        let pods = entry.pods.clone();
        let children = match &entry.kind {
            OwnerKind::Deployment {
                current, previous, ..
            } => [Some(*current), *previous],
            _ => [None, None],
        };
        // A client may have deleted it already.
        let _ = ctx.writer.delete(resource, Some(&namespace), &name);
        for child in children.into_iter().flatten() {
            self.remove_owner(child, ctx);
        }
        for pod in pods {
            self.delete(pod, None, ctx);
        }
        self.enqueue(id, ctx);
    }
}

fn is_finished(pod: &Pod) -> bool {
    matches!(pod.phase, Phase::Succeeded | Phase::Failed)
}

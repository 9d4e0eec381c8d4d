//! Controllers: they create the pods of their workload, count them, and replace removed ones.

use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::owner::{Counts, Manifest, OwnerKind};
use super::pod::{Phase, Pod};
use super::template::PodTemplate;
use super::{Moment, OwnerId, PodId, What, Workload};
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
        let moment = Moment { now, writer };
        self.launch_for(namespace.into(), manifest, None, moment);
    }

    /// Replaces the pods of a Deployment step by step with pods of another template. Returns whether
    /// the Deployment exists and is not rolling out already.
    pub fn roll(
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
        self.begin_roll(id, template, Moment { now, writer })
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
            self.remove_owner(id, Moment { now, writer });
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
            .find(|(_, slot)| *slot.pod.namespace == *namespace && *slot.pod.name == *name)
            .map(|(id, _)| *id);
        if let Some(id) = found {
            self.delete(id, grace_seconds, Moment { now, writer });
        }
        found.is_some()
    }

    pub(super) fn launch_for(
        &mut self,
        namespace: Arc<str>,
        manifest: Manifest,
        lifetime_millis: Option<u64>,
        moment: Moment<'_>,
    ) -> Launched {
        match manifest {
            Manifest::Pod { name, template } => {
                let kind = self.pod_kind(template, None, None, Vec::new());
                let seed = self.seed.derive_name(&namespace).derive_name(&name);
                let pod = Pod::new(kind, namespace, name.into(), seed, moment.now);
                Launched::Pod(self.create_pod(pod, None, lifetime_millis, moment))
            }
            Manifest::Deployment {
                name,
                replicas,
                template,
            } => {
                let id = self.add_deployment(namespace, &name, replicas, template, moment);
                self.reconcile(id, moment);
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
                let id = self.add_owner(kind, namespace, &name, replicas, moment);
                self.give_pods(id, template, format!("{name}-"), vec![revision]);
                self.announce(id, moment);
                self.reconcile(id, moment);
                Launched::Owner(id)
            }
            Manifest::Job {
                name,
                completions,
                template,
                ttl_seconds,
            } => {
                let kind = OwnerKind::Job { ttl_seconds };
                let id = self.add_owner(kind, namespace, &name, completions, moment);
                let uid = self.owners.get(&id).map(|slot| slot.uid.to_string());
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
                self.give_pods(id, template, format!("{name}-"), labels);
                self.announce(id, moment);
                self.reconcile(id, moment);
                Launched::Owner(id)
            }
        }
    }

    /// Notifies the controller of a pod that the pod has changed.
    pub(super) fn changed(&mut self, id: PodId, moment: Moment<'_>) {
        if let Some(owner) = self.pods.get(&id).and_then(|slot| slot.owner) {
            self.wake(owner, moment);
        }
    }

    /// Notifies an owner that a pod was removed.
    pub(super) fn lost(&mut self, owner: OwnerId, pod: PodId, moment: Moment<'_>) {
        if let Some(slot) = self.owners.get_mut(&owner) {
            slot.pods.retain(|id| *id != pod);
        }
        self.wake(owner, moment);
    }

    /// Controllers reconcile a little later, and once for several changes.
    pub(super) fn wake(&mut self, owner: OwnerId, moment: Moment<'_>) {
        if let Some(slot) = self.owners.get_mut(&owner)
            && !slot.woken
        {
            slot.woken = true;
            self.plan(after(moment.now, 15), What::Reconcile(owner));
        }
    }

    pub(super) fn reconcile(&mut self, id: OwnerId, moment: Moment<'_>) {
        let counts = self.count(id);
        let Some(slot) = self.owners.get_mut(&id) else {
            return;
        };
        slot.woken = false;
        let had = slot.counts;
        slot.counts = Counts {
            completed: had.completed,
            ..counts
        };
        if slot.leaving {
            if slot.pods.is_empty() {
                self.owners.remove(&id);
            }
            return;
        }
        let desired = slot.desired;
        let is_changed = match &slot.kind {
            OwnerKind::Deployment { .. } => {
                self.roll_on(id, moment);
                true
            }
            OwnerKind::ReplicaSet { deployment, .. } => {
                let deployment = *deployment;
                self.scale(id, desired, counts, moment);
                if let Some(deployment) = deployment {
                    self.wake(deployment, moment);
                }
                counts.total != desired
            }
            OwnerKind::StatefulSet => {
                let all = slot.pods.len();
                all < desired as usize
                    && counts.ready as usize == all
                    && self.create_owned(id, moment).is_some()
            }
            OwnerKind::Job { ttl_seconds } => {
                let ttl = *ttl_seconds;
                if slot.made == 0 {
                    for _ in 0..desired {
                        let _ = self.create_owned(id, moment);
                    }
                    true
                } else if counts.succeeded >= desired && slot.counts.completed.is_none() {
                    slot.counts.completed = Some(moment.now);
                    self.say_of(id, "Completed", "Job completed", moment);
                    if let Some(ttl) = ttl {
                        let at = after(moment.now, u64::from(ttl) * 1_000);
                        self.plan(at, What::Expire(id));
                    }
                    false
                } else {
                    false
                }
            }
            OwnerKind::DaemonSet => false,
        };
        let counts = if is_changed { self.count(id) } else { counts };
        if let Some(slot) = self.owners.get_mut(&id) {
            slot.counts = Counts {
                completed: slot.counts.completed,
                ..counts
            };
            if slot.counts != had {
                self.update_owner(id, moment);
            }
        }
    }

    fn scale(&mut self, id: OwnerId, desired: u32, counts: Counts, moment: Moment<'_>) {
        for _ in counts.total..desired {
            let _ = self.create_owned(id, moment);
        }
        let surplus = counts.total.saturating_sub(desired) as usize;
        if surplus == 0 {
            return;
        }
        let mut candidates: Vec<(bool, PodId)> = self
            .owners
            .get(&id)
            .map(|slot| slot.pods.clone())
            .unwrap_or_default()
            .into_iter()
            .filter_map(|pod| {
                let slot = self.pods.get(&pod)?;
                let going = slot.pod.deletion.is_some() || over(&slot.pod);
                (!going).then_some((slot.pod.ready.holds, pod))
            })
            .collect();
        // Pods that are not ready are deleted first, then the youngest.
        candidates.sort_by_key(|(ready, pod)| (*ready, std::cmp::Reverse(*pod)));
        for (_, pod) in candidates.into_iter().take(surplus) {
            let name = self.pod(pod).map(|pod| Arc::clone(&pod.name));
            self.delete(pod, None, moment);
            if let Some(name) = name {
                self.say_of(
                    id,
                    "SuccessfulDelete",
                    &format!("Deleted pod: {name}"),
                    moment,
                );
            }
        }
    }

    fn count(&self, id: OwnerId) -> Counts {
        let mut counts = Counts::default();
        let Some(slot) = self.owners.get(&id) else {
            return counts;
        };
        if let OwnerKind::Deployment { .. } = slot.kind {
            return self.deployment_counts(id);
        }
        for pod in slot.pods.iter().filter_map(|pod| self.pods.get(pod)) {
            let pod = &pod.pod;
            let done = over(pod) && !pod.tracked;
            match (&slot.kind, pod.phase) {
                (OwnerKind::Job { .. }, Phase::Succeeded) if done => counts.succeeded += 1,
                (OwnerKind::Job { .. }, Phase::Failed) if done => counts.failed += 1,
                _ => {}
            }
            let alive = pod.deletion.is_none() && !over(pod);
            if alive || matches!(slot.kind, OwnerKind::Job { .. }) {
                counts.total += 1;
                counts.ready += u32::from(pod.ready.holds);
            }
        }
        counts
    }

    pub(super) fn remove_owner(&mut self, id: OwnerId, moment: Moment<'_>) {
        let Some(slot) = self.owners.get_mut(&id) else {
            return;
        };
        slot.leaving = true;
        let (resource, namespace, name) = (
            slot.kind.resource(),
            Arc::clone(&slot.namespace),
            Arc::clone(&slot.name),
        );
        let pods = slot.pods.clone();
        let children = match &slot.kind {
            OwnerKind::Deployment {
                current, previous, ..
            } => [Some(*current), *previous],
            _ => [None, None],
        };
        // A client may have deleted it already.
        let _ = moment.writer.delete(resource, Some(&namespace), &name);
        for child in children.into_iter().flatten() {
            self.remove_owner(child, moment);
        }
        for pod in pods {
            self.delete(pod, None, moment);
        }
        self.wake(id, moment);
    }
}

fn over(pod: &Pod) -> bool {
    matches!(pod.phase, Phase::Succeeded | Phase::Failed)
}

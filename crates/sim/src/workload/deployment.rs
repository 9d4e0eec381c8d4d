//! Deployments: one `ReplicaSet` for each revision, and rollouts from one to the next.

use std::sync::Arc;

use super::compiled_template::SpecText;
use super::owner::{Counts, OwnerKind};
use super::template::PodTemplate;
use super::{OwnerId, StepContext, Workload};

impl Workload {
    pub(super) fn add_deployment(
        &mut self,
        namespace: Arc<str>,
        name: &str,
        replicas: u32,
        template: PodTemplate,
        ctx: StepContext<'_>,
    ) -> OwnerId {
        let (id, set) = self.make_deployment(namespace, name, replicas, template, ctx);
        self.write_new_owner(id, ctx);
        self.write_new_owner(set, ctx);
        id
    }

    /// Creates a Deployment and its first `ReplicaSet` without writing them.
    pub(super) fn make_deployment(
        &mut self,
        namespace: Arc<str>,
        name: &str,
        replicas: u32,
        template: PodTemplate,
        ctx: StepContext<'_>,
    ) -> (OwnerId, OwnerId) {
        let kind = OwnerKind::Deployment {
            spec: SpecText::new(&template),
            template: Box::new(template.clone()),
            current: 0,
            previous: None,
            revision: 1,
        };
        let id = self.add_owner(kind, namespace, name, replicas, ctx);
        let set = self.add_replica_set(id, template, 1, 0, ctx);
        if let Some(entry) = self.owners.get_mut(&id)
            && let OwnerKind::Deployment { current, .. } = &mut entry.kind
        {
            *current = set;
        }
        (id, set)
    }

    fn add_replica_set(
        &mut self,
        deployment: OwnerId,
        template: PodTemplate,
        revision: u32,
        desired: u32,
        ctx: StepContext<'_>,
    ) -> OwnerId {
        let Some(entry) = self.owners.get(&deployment) else {
            return 0;
        };
        let (namespace, owner) = (Arc::clone(&entry.namespace), Arc::clone(&entry.name));
        let uid = entry.uid;
        let hash: Arc<str> = self.hash(&owner, revision, 9).into();
        let name = format!("{owner}-{hash}");
        let kind = OwnerKind::ReplicaSet {
            deployment: Some(deployment),
            deployment_owner: Some((owner, uid)),
            hash: Arc::clone(&hash),
            revision,
        };
        let id = self.add_owner(kind, namespace, &name, desired, ctx);
        let label = ("pod-template-hash".into(), hash);
        self.set_pod_template(id, template, format!("{name}-"), vec![label]);
        id
    }

    pub(super) fn start_rollout(
        &mut self,
        id: OwnerId,
        new: PodTemplate,
        ctx: StepContext<'_>,
    ) -> bool {
        let Some(entry) = self.owners.get_mut(&id) else {
            return false;
        };
        let OwnerKind::Deployment {
            template,
            spec,
            previous: None,
            revision,
            ..
        } = &mut entry.kind
        else {
            return false;
        };
        *spec = SpecText::new(&new);
        **template = new.clone();
        *revision += 1;
        entry.generation += 1;
        let number = *revision;
        let set = self.add_replica_set(id, new, number, 0, ctx);
        if let Some(entry) = self.owners.get_mut(&id)
            && let OwnerKind::Deployment {
                current, previous, ..
            } = &mut entry.kind
        {
            *previous = Some(std::mem::replace(current, set));
        }
        self.write_new_owner(set, ctx);
        self.update_owner(id, ctx);
        self.reconcile(id, ctx);
        true
    }

    /// Advances a Deployment by one step towards its desired state.
    pub(super) fn continue_rollout(&mut self, id: OwnerId, ctx: StepContext<'_>) {
        let Some(entry) = self.owners.get(&id) else {
            return;
        };
        let OwnerKind::Deployment {
            current, previous, ..
        } = entry.kind
        else {
            return;
        };
        let replicas = entry.desired;
        let of = |set: Option<OwnerId>| {
            set.and_then(|set| self.owners.get(&set))
                .map_or((0, Counts::default()), |entry| {
                    (entry.desired, entry.counts)
                })
        };
        let ((new, new_counts), (old, old_counts)) = (of(Some(current)), of(previous));
        // maxSurge and maxUnavailable of 25 %.
        let surge = replicas.div_ceil(4);
        let unavailable = replicas / 4;
        match previous {
            None if new != replicas => self.set_scale(id, current, replicas, ctx),
            None => {}
            Some(set) => {
                let room = (replicas + surge).saturating_sub(old);
                let desired = room.min(replicas).max(new);
                if desired > new {
                    self.set_scale(id, current, desired, ctx);
                }
                let ready = new_counts.ready + old_counts.ready.min(old);
                let spare = ready.saturating_sub(replicas.saturating_sub(unavailable));
                let keep = old.saturating_sub(spare);
                if keep < old {
                    self.set_scale(id, set, keep, ctx);
                }
                if old == 0 && old_counts.total == 0 && new_counts.ready >= replicas {
                    self.finish_rollout(id, set, ctx);
                }
            }
        }
    }

    fn finish_rollout(&mut self, id: OwnerId, old: OwnerId, ctx: StepContext<'_>) {
        if let Some(entry) = self.owners.get_mut(&id)
            && let OwnerKind::Deployment { previous, .. } = &mut entry.kind
        {
            *previous = None;
        }
        // The revision history is not kept: it would grow with every rollout.
        self.remove_owner(old, ctx);
    }

    /// Ready and total pods of both `ReplicaSets`.
    pub(super) fn deployment_counts(&self, id: OwnerId) -> Counts {
        let mut counts = Counts::default();
        if let Some(entry) = self.owners.get(&id)
            && let OwnerKind::Deployment {
                current, previous, ..
            } = &entry.kind
        {
            for set in [Some(*current), *previous].into_iter().flatten() {
                if let Some(set) = self.owners.get(&set) {
                    counts.total += set.counts.total;
                    counts.ready += set.counts.ready;
                }
            }
        }
        counts
    }

    fn set_scale(&mut self, id: OwnerId, set: OwnerId, desired: u32, ctx: StepContext<'_>) {
        let Some(entry) = self.owners.get_mut(&set) else {
            return;
        };
        let had = std::mem::replace(&mut entry.desired, desired);
        entry.generation += 1;
        let name = Arc::clone(&entry.name);
        let direction = if desired > had { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {had} to {desired}");
        self.emit_owner_event(id, "ScalingReplicaSet", &message, ctx);
        self.reconcile(set, ctx);
        self.update_owner(set, ctx);
    }
}

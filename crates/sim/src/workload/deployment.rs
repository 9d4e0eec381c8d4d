//! Deployments: one `ReplicaSet` for each revision, and rollouts from one to the next.

use std::sync::Arc;

use super::kind::SpecText;
use super::owner::{Counts, OwnerKind};
use super::template::PodTemplate;
use super::{Moment, OwnerId, Workload};

impl Workload {
    pub(super) fn add_deployment(
        &mut self,
        namespace: Arc<str>,
        name: &str,
        replicas: u32,
        template: PodTemplate,
        moment: Moment<'_>,
    ) -> OwnerId {
        let (id, set) = self.make_deployment(namespace, name, replicas, template, moment);
        self.announce(id, moment);
        self.announce(set, moment);
        id
    }

    /// Creates a Deployment and its first `ReplicaSet` without writing them.
    pub(super) fn make_deployment(
        &mut self,
        namespace: Arc<str>,
        name: &str,
        replicas: u32,
        template: PodTemplate,
        moment: Moment<'_>,
    ) -> (OwnerId, OwnerId) {
        let kind = OwnerKind::Deployment {
            spec: SpecText::new(&template),
            template: Box::new(template.clone()),
            current: 0,
            previous: None,
            revision: 1,
        };
        let id = self.add_owner(kind, namespace, name, replicas, moment);
        let set = self.add_replica_set(id, template, 1, 0, moment);
        if let Some(slot) = self.owners.get_mut(&id)
            && let OwnerKind::Deployment { current, .. } = &mut slot.kind
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
        moment: Moment<'_>,
    ) -> OwnerId {
        let Some(slot) = self.owners.get(&deployment) else {
            return 0;
        };
        let (namespace, owner) = (Arc::clone(&slot.namespace), Arc::clone(&slot.name));
        let uid = slot.uid;
        let hash: Arc<str> = self.hash(&owner, revision, 9).into();
        let name = format!("{owner}-{hash}");
        let kind = OwnerKind::ReplicaSet {
            deployment: Some(deployment),
            deployment_owner: Some((owner, uid)),
            hash: Arc::clone(&hash),
        };
        let id = self.add_owner(kind, namespace, &name, desired, moment);
        let label = ("pod-template-hash".into(), hash);
        self.give_pods(id, template, format!("{name}-"), vec![label]);
        id
    }

    pub(super) fn begin_roll(&mut self, id: OwnerId, new: PodTemplate, moment: Moment<'_>) -> bool {
        let Some(slot) = self.owners.get_mut(&id) else {
            return false;
        };
        let OwnerKind::Deployment {
            template,
            spec,
            previous: None,
            revision,
            ..
        } = &mut slot.kind
        else {
            return false;
        };
        *spec = SpecText::new(&new);
        **template = new.clone();
        *revision += 1;
        slot.generation += 1;
        let number = *revision;
        let set = self.add_replica_set(id, new, number, 0, moment);
        if let Some(slot) = self.owners.get_mut(&id)
            && let OwnerKind::Deployment {
                current, previous, ..
            } = &mut slot.kind
        {
            *previous = Some(std::mem::replace(current, set));
        }
        self.announce(set, moment);
        self.update_owner(id, moment);
        self.reconcile(id, moment);
        true
    }

    /// Advances a Deployment by one step towards its desired state.
    pub(super) fn roll_on(&mut self, id: OwnerId, moment: Moment<'_>) {
        let Some(slot) = self.owners.get(&id) else {
            return;
        };
        let OwnerKind::Deployment {
            current, previous, ..
        } = slot.kind
        else {
            return;
        };
        let replicas = slot.desired;
        let of = |set: Option<OwnerId>| {
            set.and_then(|set| self.owners.get(&set))
                .map_or((0, Counts::default()), |slot| (slot.desired, slot.counts))
        };
        let ((new, new_counts), (old, old_counts)) = (of(Some(current)), of(previous));
        // maxSurge and maxUnavailable of 25 %.
        let surge = replicas.div_ceil(4);
        let unavailable = replicas / 4;
        match previous {
            None if new != replicas => self.set_scale(id, current, replicas, moment),
            None => {}
            Some(set) => {
                let room = (replicas + surge).saturating_sub(old);
                let wanted = room.min(replicas).max(new);
                if wanted > new {
                    self.set_scale(id, current, wanted, moment);
                }
                let ready = new_counts.ready + old_counts.ready.min(old);
                let spare = ready.saturating_sub(replicas.saturating_sub(unavailable));
                let keep = old.saturating_sub(spare);
                if keep < old {
                    self.set_scale(id, set, keep, moment);
                }
                if old == 0 && old_counts.total == 0 && new_counts.ready >= replicas {
                    self.finish_roll(id, set, moment);
                }
            }
        }
    }

    fn finish_roll(&mut self, id: OwnerId, old: OwnerId, moment: Moment<'_>) {
        if let Some(slot) = self.owners.get_mut(&id)
            && let OwnerKind::Deployment { previous, .. } = &mut slot.kind
        {
            *previous = None;
        }
        // The revision history is not kept: it would grow with every rollout.
        self.remove_owner(old, moment);
    }

    /// Ready and total pods of both `ReplicaSets`.
    pub(super) fn deployment_counts(&self, id: OwnerId) -> Counts {
        let mut counts = Counts::default();
        if let Some(slot) = self.owners.get(&id)
            && let OwnerKind::Deployment {
                current, previous, ..
            } = &slot.kind
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

    fn set_scale(&mut self, id: OwnerId, set: OwnerId, desired: u32, moment: Moment<'_>) {
        let Some(slot) = self.owners.get_mut(&set) else {
            return;
        };
        let had = std::mem::replace(&mut slot.desired, desired);
        slot.generation += 1;
        let name = Arc::clone(&slot.name);
        let direction = if desired > had { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {had} to {desired}");
        self.say_of(id, "ScalingReplicaSet", &message, moment);
        self.reconcile(set, moment);
        self.update_owner(set, moment);
    }
}

//! Bookkeeping of owners and pods, and their writes.

use std::sync::Arc;

use super::event::{Saying, Source, Subject};
use super::kind::{Owner, PodKind};
use super::life::Step;
use super::owner::{Counts, OwnerKind, OwnerSlot};
use super::pod::Pod;
use super::template::PodTemplate;
use super::{Moment, OwnerId, PodId, Slot, Workload};
use crate::objects::Resource;
use crate::seed::Seed;

impl Workload {
    pub(super) fn find_owner(&self, namespace: &str, name: &str) -> Option<OwnerId> {
        self.owners
            .iter()
            .find(|(_, slot)| *slot.namespace == *namespace && *slot.name == *name && !slot.leaving)
            .map(|(id, _)| *id)
    }

    pub(super) fn pod_kind(
        &self,
        template: PodTemplate,
        generate_name: Option<String>,
        owner: Option<Owner>,
        owner_labels: Vec<(Arc<str>, Arc<str>)>,
    ) -> Arc<PodKind> {
        Arc::new(PodKind::new(
            template,
            generate_name.map(Into::into),
            owner,
            owner_labels,
            self.roster.count(),
        ))
    }

    /// Returns the hash of a template that identifies a revision.
    pub(super) fn hash(&self, name: &str, revision: u32, letters: usize) -> String {
        let mut hash = String::with_capacity(letters);
        let mut seed = self.seed.derive_name(name).derive(u64::from(revision));
        seed.push_suffix(&mut hash, letters);
        hash
    }

    pub(super) fn add_owner(
        &mut self,
        kind: OwnerKind,
        namespace: Arc<str>,
        name: &str,
        desired: u32,
        moment: Moment<'_>,
    ) -> OwnerId {
        let id = self.next_id();
        let (_, what, _) = kind.identity();
        let mut seed = self
            .seed
            .derive_name(what)
            .derive_name(&namespace)
            .derive_name(name);
        let slot = OwnerSlot {
            kind,
            namespace,
            name: name.into(),
            uid: seed.uid(),
            created: moment.now,
            version: 0,
            generation: 1,
            desired,
            pods: Vec::new(),
            pod_kind: None,
            made: 0,
            counts: Counts::default(),
            written: Vec::new(),
            woken: false,
            leaving: false,
        };
        self.owners.insert(id, slot);
        id
    }

    /// Sets the pod template of an owner.
    pub(super) fn give_pods(
        &mut self,
        id: OwnerId,
        template: PodTemplate,
        prefix: String,
        labels: Vec<(Arc<str>, Arc<str>)>,
    ) {
        let Some(slot) = self.owners.get(&id) else {
            return;
        };
        let (api_version, kind, _) = slot.kind.identity();
        let owner = Owner {
            api_version,
            kind,
            name: Arc::clone(&slot.name),
            uid: slot.uid,
        };
        let kind = self.pod_kind(template, Some(prefix), Some(owner), labels);
        if let Some(slot) = self.owners.get_mut(&id) {
            slot.pod_kind = Some(kind);
        }
    }

    /// Writes a new owner.
    pub(super) fn announce(&mut self, id: OwnerId, moment: Moment<'_>) {
        if let Some(slot) = self.owners.get_mut(&id) {
            slot.render(&mut self.text);
            match moment.writer.create_text(slot.kind.resource(), &self.text) {
                Ok(version) => slot.version = version,
                Err(error) => {
                    self.refused += 1;
                    tracing::debug!(%error, "workload not written");
                }
            }
        }
    }

    /// Writes a changed owner.
    pub(super) fn update_owner(&mut self, id: OwnerId, moment: Moment<'_>) {
        if let Some(slot) = self.owners.get_mut(&id) {
            slot.render(&mut self.text);
            match moment.writer.replace_text(slot.kind.resource(), &self.text) {
                Ok(version) => slot.version = version,
                Err(error) => {
                    self.refused += 1;
                    tracing::debug!(%error, "workload not written");
                }
            }
        }
    }

    pub(super) fn say_of(
        &mut self,
        id: OwnerId,
        reason: &'static str,
        message: &str,
        moment: Moment<'_>,
    ) {
        let Some(slot) = self.owners.get_mut(&id) else {
            return;
        };
        let (api_version, kind, component) = slot.kind.identity();
        let subject = Subject {
            api_version,
            kind,
            namespace: &slot.namespace,
            name: &slot.name,
            uid: slot.uid,
            version: slot.version,
            field_path: None,
        };
        let saying = Saying {
            warning: false,
            reason,
            message,
        };
        let source = Source::Controller(component);
        self.recorder.say(
            moment.writer,
            &mut slot.written,
            &subject,
            &source,
            &saying,
            moment.now,
        );
        // A controller's events contain pod names: remembering all of them would grow.
        slot.written.clear();
    }

    /// Creates a pod and plans its first step.
    pub(super) fn create_pod(
        &mut self,
        pod: Pod,
        owner: Option<OwnerId>,
        lifetime_millis: Option<u64>,
        moment: Moment<'_>,
    ) -> Option<PodId> {
        super::render::pod(&pod, &mut self.text);
        let version = match moment.writer.create_text(Resource::Pods, &self.text) {
            Ok(version) => version,
            Err(error) => {
                self.refused += 1;
                tracing::debug!(%error, "pod not created");
                return None;
            }
        };
        let gate = pod
            .kind
            .template
            .scheduling_gate
            .as_ref()
            .map(|(_, after)| *after);
        let id = self.next_id();
        self.pods.insert(
            id,
            Slot {
                pod: Arc::new(pod),
                owner,
                era: 0,
                version,
                written: Vec::new(),
            },
        );
        match gate {
            Some(after) => self.plan_step(id, Step::Ungate, moment.now, (after, after)),
            None => self.plan_step(id, Step::Schedule, moment.now, (5, 60)),
        }
        if let Some(lifetime) = lifetime_millis {
            self.plan_step(id, Step::Delete, moment.now, (lifetime, lifetime));
        }
        Some(id)
    }

    /// Creates one more pod of an owner.
    pub(super) fn create_owned(&mut self, id: OwnerId, moment: Moment<'_>) -> Option<PodId> {
        let slot = self.owners.get_mut(&id)?;
        let kind = slot.pod_kind.as_ref().map(Arc::clone)?;
        let mut seed = Seed::new(0)
            .derive_name(&slot.uid.to_string())
            .derive(slot.made);
        slot.made += 1;
        let namespace = Arc::clone(&slot.namespace);
        let mut name = kind.generate_name.as_deref().unwrap_or("pod-").to_owned();
        let ordinal = matches!(slot.kind, OwnerKind::StatefulSet)
            .then(|| u32::try_from(slot.pods.len()).unwrap_or(u32::MAX));
        match ordinal {
            Some(ordinal) => name.push_str(&ordinal.to_string()),
            None => seed.push_suffix(&mut name, 5),
        }
        let mut pod = Pod::new(kind, namespace, name.as_str().into(), seed, moment.now);
        pod.ordinal = ordinal;
        let message = match &slot.kind {
            OwnerKind::StatefulSet => {
                format!("Create Pod {name} in StatefulSet {} successful", slot.name)
            }
            _ => format!("Created pod: {name}"),
        };
        let pod = self.create_pod(pod, Some(id), None, moment)?;
        if let Some(slot) = self.owners.get_mut(&id) {
            slot.pods.push(pod);
        }
        self.say_of(id, "SuccessfulCreate", &message, moment);
        Some(pod)
    }
}

//! Bookkeeping of owners and pods, and their writes.

use std::sync::Arc;

use super::compiled_template::{CompiledTemplate, Owner};
use super::event::{EventText, Source, Subject};
use super::lifecycle::PodStep;
use super::owner::{Counts, OwnerEntry, OwnerKind};
use super::pod::Pod;
use super::template::PodTemplate;
use super::{OwnerId, PodEntry, PodId, StepContext, Workload};
use crate::objects::Resource;
use crate::seed::Seed;

impl Workload {
    pub(super) fn find_owner(&self, namespace: &str, name: &str) -> Option<OwnerId> {
        self.owners
            .iter()
            .find(|(_, entry)| {
                *entry.namespace == *namespace && *entry.name == *name && !entry.leaving
            })
            .map(|(id, _)| *id)
    }

    pub(super) fn compile_template(
        &self,
        template: PodTemplate,
        generate_name: Option<String>,
        owner: Option<Owner>,
        owner_labels: Vec<(Arc<str>, Arc<str>)>,
    ) -> Arc<CompiledTemplate> {
        Arc::new(CompiledTemplate::new(
            template,
            generate_name.map(Into::into),
            owner,
            owner_labels,
            self.node_set.count(),
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
        ctx: StepContext<'_>,
    ) -> OwnerId {
        let id = self.next_id();
        let (_, what, _) = kind.identity();
        let mut seed = self
            .seed
            .derive_name(what)
            .derive_name(&namespace)
            .derive_name(name);
        let entry = OwnerEntry {
            kind,
            namespace,
            name: name.into(),
            uid: seed.uid(),
            created: ctx.now,
            version: 0,
            generation: 1,
            desired,
            pods: Vec::new(),
            compiled: None,
            made: 0,
            counts: Counts::default(),
            written: Vec::new(),
            woken: false,
            leaving: false,
        };
        self.owners.insert(id, entry);
        id
    }

    /// Sets the pod template of an owner.
    pub(super) fn set_pod_template(
        &mut self,
        id: OwnerId,
        template: PodTemplate,
        prefix: String,
        labels: Vec<(Arc<str>, Arc<str>)>,
    ) {
        let Some(entry) = self.owners.get(&id) else {
            return;
        };
        let (api_version, kind, _) = entry.kind.identity();
        let owner = Owner {
            api_version,
            kind,
            name: Arc::clone(&entry.name),
            uid: entry.uid,
        };
        let kind = self.compile_template(template, Some(prefix), Some(owner), labels);
        if let Some(entry) = self.owners.get_mut(&id) {
            entry.compiled = Some(kind);
        }
    }

    /// Writes a new owner.
    pub(super) fn write_new_owner(&mut self, id: OwnerId, ctx: StepContext<'_>) {
        if let Some(entry) = self.owners.get_mut(&id) {
            entry.render(&mut self.text);
            match ctx.writer.create_text(entry.kind.resource(), &self.text) {
                Ok(version) => entry.version = version,
                Err(error) => {
                    self.rejected_writes += 1;
                    tracing::debug!(%error, "workload not written");
                }
            }
        }
    }

    /// Writes a changed owner.
    pub(super) fn update_owner(&mut self, id: OwnerId, ctx: StepContext<'_>) {
        if let Some(entry) = self.owners.get_mut(&id) {
            entry.render(&mut self.text);
            match ctx.writer.replace_text(entry.kind.resource(), &self.text) {
                Ok(version) => entry.version = version,
                Err(error) => {
                    self.rejected_writes += 1;
                    tracing::debug!(%error, "workload not written");
                }
            }
        }
    }

    pub(super) fn emit_owner_event(
        &mut self,
        id: OwnerId,
        reason: &'static str,
        message: &str,
        ctx: StepContext<'_>,
    ) {
        let Some(entry) = self.owners.get_mut(&id) else {
            return;
        };
        let (api_version, kind, component) = entry.kind.identity();
        let subject = Subject {
            api_version,
            kind,
            namespace: &entry.namespace,
            name: &entry.name,
            uid: entry.uid,
            version: entry.version,
            field_path: None,
        };
        let text = EventText {
            warning: false,
            reason,
            message,
        };
        let source = Source::Controller(component);
        self.recorder.record(
            ctx.writer,
            &mut entry.written,
            &subject,
            &source,
            &text,
            ctx.now,
        );
        // A controller's events contain pod names: remembering all of them would grow.
        entry.written.clear();
    }

    /// Creates a pod and plans its first step.
    pub(super) fn create_pod(
        &mut self,
        pod: Pod,
        owner: Option<OwnerId>,
        lifetime_millis: Option<u64>,
        ctx: StepContext<'_>,
    ) -> Option<PodId> {
        super::render::pod(&pod, &mut self.text);
        let version = match ctx.writer.create_text(Resource::Pods, &self.text) {
            Ok(version) => version,
            Err(error) => {
                self.rejected_writes += 1;
                tracing::debug!(%error, "pod not created");
                return None;
            }
        };
        let gate = pod
            .compiled
            .template
            .scheduling_gate
            .as_ref()
            .map(|(_, after)| *after);
        let id = self.next_id();
        self.pods.insert(
            id,
            PodEntry {
                pod: Arc::new(pod),
                owner,
                epoch: 0,
                version,
                written: Vec::new(),
            },
        );
        match gate {
            Some(after) => self.plan_step(id, PodStep::Ungate, ctx.now, (after, after)),
            None => self.plan_step(id, PodStep::Schedule, ctx.now, (5, 60)),
        }
        if let Some(lifetime) = lifetime_millis {
            self.plan_step(id, PodStep::Delete, ctx.now, (lifetime, lifetime));
        }
        Some(id)
    }

    /// Creates one more pod of an owner.
    pub(super) fn create_owned(&mut self, id: OwnerId, ctx: StepContext<'_>) -> Option<PodId> {
        let entry = self.owners.get_mut(&id)?;
        let kind = entry.compiled.as_ref().map(Arc::clone)?;
        let mut seed = Seed::new(0)
            .derive_name(&entry.uid.to_string())
            .derive(entry.made);
        entry.made += 1;
        let namespace = Arc::clone(&entry.namespace);
        let mut name = kind.generate_name.as_deref().unwrap_or("pod-").to_owned();
        let ordinal = matches!(entry.kind, OwnerKind::StatefulSet)
            .then(|| u32::try_from(entry.pods.len()).unwrap_or(u32::MAX));
        match ordinal {
            Some(ordinal) => name.push_str(&ordinal.to_string()),
            None => seed.push_suffix(&mut name, 5),
        }
        let mut pod = Pod::new(kind, namespace, name.as_str().into(), seed, ctx.now);
        pod.ordinal = ordinal;
        let message = match &entry.kind {
            OwnerKind::StatefulSet => {
                format!("Create Pod {name} in StatefulSet {} successful", entry.name)
            }
            _ => format!("Created pod: {name}"),
        };
        let pod = self.create_pod(pod, Some(id), None, ctx)?;
        if let Some(entry) = self.owners.get_mut(&id) {
            entry.pods.push(pod);
        }
        self.emit_owner_event(id, "SuccessfulCreate", &message, ctx);
        Some(pod)
    }
}

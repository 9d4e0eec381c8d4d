//! Startup of pods: creation, scheduling, sandbox.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::event::{EventText, Source, Subject};
use super::pod::{ConditionState, Host, Pod};
use super::{PodId, StepContext, Workload};
use crate::node_set::Node;
use crate::objects::{Resource, WriteError};

/// The next step in the lifecycle of a pod. Numbers are indexes in [`super::PodTemplate::all`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum PodStep {
    Ungate,
    Schedule,
    ScaleUp,
    Sync,
    VolumeAttached,
    PrepareFailed,
    Sandbox,
    PullImage(usize),
    ImagePulled(usize),
    PullFailed(usize),
    PullBackOff(usize),
    Start(usize),
    StartedUp(usize),
    SidecarReady(usize),
    Probe(usize),
    OpenGate,
    Exit(usize),
    BackOff(usize),
    Restart(usize),
    Complete,
    Untrack,
    Evict,
    Delete,
    Terminate,
    StopSandbox,
    Kill,
    Remove,
}

impl PodStep {
    /// Distinguishes steps when random numbers are derived.
    pub(crate) fn tag(self) -> u64 {
        match self {
            Self::Ungate => 1,
            Self::Schedule => 2,
            Self::Sync => 3,
            Self::Sandbox => 4,
            Self::PullImage(i) => 100 + i as u64,
            Self::ImagePulled(i) => 200 + i as u64,
            Self::PullFailed(i) => 300 + i as u64,
            Self::PullBackOff(i) => 400 + i as u64,
            Self::Start(i) => 500 + i as u64,
            Self::StartedUp(i) => 600 + i as u64,
            Self::SidecarReady(i) => 700 + i as u64,
            Self::Probe(i) => 800 + i as u64,
            Self::Exit(i) => 900 + i as u64,
            Self::BackOff(i) => 1_000 + i as u64,
            Self::Restart(i) => 1_100 + i as u64,
            Self::OpenGate => 5,
            Self::Complete => 6,
            Self::Untrack => 7,
            Self::Evict => 8,
            Self::Delete => 9,
            Self::Terminate => 10,
            Self::StopSandbox => 11,
            Self::Kill => 12,
            Self::Remove => 13,
            Self::ScaleUp => 14,
            Self::VolumeAttached => 15,
            Self::PrepareFailed => 16,
        }
    }
}

impl Workload {
    pub(super) fn run_step(&mut self, id: PodId, step: PodStep, ctx: StepContext<'_>) {
        match step {
            PodStep::Ungate => self.ungate(id, ctx),
            PodStep::Schedule => self.schedule(id, ctx),
            PodStep::ScaleUp => self.scale_up(id, ctx),
            PodStep::Sync => self.sync(id, ctx),
            PodStep::VolumeAttached => self.volume_attached(id, ctx),
            PodStep::PrepareFailed => self.prepare_failed(id, ctx),
            PodStep::Sandbox => self.sandbox(id, ctx),
            PodStep::PullImage(at) => self.pull_image(id, at, ctx),
            PodStep::ImagePulled(at) => self.image_pulled(id, at, ctx),
            PodStep::PullFailed(at) => self.pull_failed(id, at, ctx),
            PodStep::PullBackOff(at) => self.pull_back_off(id, at, ctx),
            PodStep::Start(at) => self.start(id, at, ctx),
            PodStep::StartedUp(at) => self.started_up(id, at, ctx),
            PodStep::SidecarReady(at) => self.sidecar_ready(id, at, ctx),
            PodStep::Probe(at) => self.probe(id, at, ctx),
            PodStep::OpenGate => self.open_gate(id, ctx),
            PodStep::Exit(at) => self.exit(id, at, ctx),
            PodStep::BackOff(at) => self.back_off(id, at, ctx),
            PodStep::Restart(at) => self.restart(id, at, ctx),
            PodStep::Complete => self.complete(id, ctx),
            PodStep::Untrack => self.untrack(id, ctx),
            PodStep::Evict => self.evict(id, ctx),
            PodStep::Delete => self.delete(id, None, ctx),
            PodStep::Terminate => self.terminate(id, ctx),
            PodStep::StopSandbox => self.stop_sandbox(id, ctx),
            PodStep::Kill => self.kill(id, ctx),
            PodStep::Remove => self.remove(id, ctx),
        }
    }

    /// Changes a copy of the pod and keeps it.
    pub(super) fn change<T>(&mut self, id: PodId, change: impl FnOnce(&mut Pod) -> T) -> Option<T> {
        let entry = self.pods.get_mut(&id)?;
        Some(change(Arc::make_mut(&mut entry.pod)))
    }

    pub(super) fn pod(&self, id: PodId) -> Option<&Arc<Pod>> {
        self.pods.get(&id).map(|entry| &entry.pod)
    }

    /// Publishes a pod to the API server and to its kubelet.
    pub(super) fn publish(&mut self, id: PodId, ctx: StepContext<'_>) {
        let Some(entry) = self.pods.get_mut(&id) else {
            return;
        };
        if let Some(host) = &entry.pod.host
            && entry.pod.start.is_some()
            && let Some(node) = self.node_set.nodes().get(host.index)
        {
            node.put(&entry.pod);
        }
        super::render::pod(&entry.pod, &mut self.text);
        match ctx.writer.replace_text(Resource::Pods, &self.text) {
            Ok(version) => entry.version = version,
            Err(WriteError::NotFound { .. }) => self.drop_pod(id, ctx),
            Err(error) => {
                self.rejected_writes += 1;
                tracing::debug!(%error, "pod not written");
            }
        }
    }

    /// Writes an event about a pod, or about one of its containers.
    pub(super) fn emit_event(
        &mut self,
        id: PodId,
        container: Option<usize>,
        warning: bool,
        reason: &'static str,
        message: &str,
        ctx: StepContext<'_>,
    ) -> u32 {
        let Some(entry) = self.pods.get_mut(&id) else {
            return 0;
        };
        let pod = &*entry.pod;
        let texts = container.and_then(|at| pod.compiled.containers.get(at));
        let subject = Subject {
            api_version: "v1",
            kind: "Pod",
            namespace: &pod.namespace,
            name: &pod.name,
            uid: pod.uid,
            version: entry.version,
            field_path: texts.map(|texts| &*texts.field_path),
        };
        let source = match (reason, &pod.host) {
            ("Scheduled", _) => Source::Scheduler { action: "Binding" },
            ("TriggeredScaleUp", _) => Source::Controller("cluster-autoscaler"),
            ("SuccessfulAttachVolume", _) => Source::Controller("attachdetach-controller"),
            (_, Some(host)) => Source::Kubelet(&host.name),
            (_, None) => Source::Scheduler {
                action: "Scheduling",
            },
        };
        let text = EventText {
            warning,
            reason,
            message,
        };
        self.recorder.record(
            ctx.writer,
            &mut entry.written,
            &subject,
            &source,
            &text,
            ctx.now,
        )
    }

    fn ungate(&mut self, id: PodId, ctx: StepContext<'_>) {
        self.change(id, |pod| pod.gated = false);
        self.publish(id, ctx);
        self.plan_step(id, PodStep::Schedule, ctx.now, (5, 60));
    }

    fn schedule(&mut self, id: PodId, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let needs_node = pod.needs_new_node();
        if needs_node || pod.template().node_selector.is_some() {
            self.change(id, |pod| {
                pod.scheduled = Some(ConditionState::false_since(ctx.now));
            });
            let message = super::messages::unschedulable(&pod);
            self.emit_event(id, None, true, "FailedScheduling", &message, ctx);
            self.publish(id, ctx);
            if needs_node {
                self.plan_step(id, PodStep::ScaleUp, ctx.now, (2_000, 10_000));
            }
            return;
        }
        let Some(host) = self.pick_host(id) else {
            return;
        };
        let (namespace, name) = (&pod.namespace, &pod.name);
        let message = format!("Successfully assigned {namespace}/{name} to {}", host.name);
        self.change(id, |pod| {
            pod.host = Some(host);
            pod.scheduled = Some(ConditionState {
                holds: true,
                since: ctx.now,
            });
        });
        self.publish(id, ctx);
        self.emit_event(id, None, false, "Scheduled", &message, ctx);
        self.plan_step(id, PodStep::Sync, ctx.now, (20, 250));
    }

    /// Assigns nodes in turn, which spreads pods as evenly as the scheduler would; a pod of a
    /// DaemonSet is bound to its own node.
    pub(super) fn pick_host(&mut self, id: PodId) -> Option<Host> {
        let nodes = self.node_set.nodes();
        let index = match self.node_replacement.bound(id) {
            Some(index) => index,
            None => (self.next_node..nodes.len())
                .chain(0..self.next_node)
                .find(|index| nodes.get(*index).is_some_and(Node::is_present))?,
        };
        let node = nodes.get(index)?;
        self.next_node = (index + 1) % nodes.len().max(1);
        Some(Host {
            index,
            name: Arc::clone(node.name()),
            ip: node.ip(),
        })
    }

    fn sync(&mut self, id: PodId, ctx: StepContext<'_>) {
        self.change(id, |pod| {
            pod.start = Some(ctx.now);
            pod.observed = pod.generation;
            for condition in [
                &mut pod.sandbox,
                &mut pod.initialized,
                &mut pod.ready,
                &mut pod.containers_ready,
            ] {
                *condition = ConditionState::false_since(ctx.now);
            }
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.prepare(id, ctx);
    }

    fn sandbox(&mut self, id: PodId, ctx: StepContext<'_>) {
        self.change(id, |pod| pod.sandbox.set(true, ctx.now));
        self.publish(id, ctx);
        // The runtime has assigned the address; the next status update contains it.
        self.change(id, |pod| pod.ip = Some(pod_ip(pod)));
        self.plan_step(id, PodStep::PullImage(0), ctx.now, (10, 80));
    }
}

/// An address of the node's pod CIDR, which is 10.x.y.0/24 as with most network plugins.
pub(super) fn pod_ip(pod: &Pod) -> Ipv4Addr {
    let index = pod.host.as_ref().map_or(0, |host| host.index);
    let [_, _, high, low] = u32::try_from(index).unwrap_or(0).to_be_bytes();
    let mut seed = pod.seed.derive_name("ip");
    let last = u8::try_from(seed.between(2, 254)).unwrap_or(2);
    Ipv4Addr::new(10, high, low, last)
}

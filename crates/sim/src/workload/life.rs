//! Startup of pods: creation, scheduling, sandbox.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::event::{Saying, Source, Subject};
use super::pod::{Flip, Host, Pod};
use super::{Moment, PodId, Workload};
use crate::objects::{Resource, WriteError};
use crate::roster::Node;

/// The next step in the lifecycle of a pod. Numbers are indexes in [`super::PodTemplate::all`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Ungate,
    Schedule,
    Sync,
    Sandbox,
    Fetch(usize),
    Fetched(usize),
    FetchFailed(usize),
    FetchBackOff(usize),
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

impl Step {
    /// Distinguishes steps when random numbers are derived.
    pub(crate) fn tag(self) -> u64 {
        match self {
            Self::Ungate => 1,
            Self::Schedule => 2,
            Self::Sync => 3,
            Self::Sandbox => 4,
            Self::Fetch(i) => 100 + i as u64,
            Self::Fetched(i) => 200 + i as u64,
            Self::FetchFailed(i) => 300 + i as u64,
            Self::FetchBackOff(i) => 400 + i as u64,
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
        }
    }
}

impl Workload {
    pub(super) fn take(&mut self, id: PodId, step: Step, moment: Moment<'_>) {
        match step {
            Step::Ungate => self.ungate(id, moment),
            Step::Schedule => self.schedule(id, moment),
            Step::Sync => self.sync(id, moment),
            Step::Sandbox => self.sandbox(id, moment),
            Step::Fetch(at) => self.fetch(id, at, moment),
            Step::Fetched(at) => self.fetched(id, at, moment),
            Step::FetchFailed(at) => self.fetch_failed(id, at, moment),
            Step::FetchBackOff(at) => self.fetch_back_off(id, at, moment),
            Step::Start(at) => self.start(id, at, moment),
            Step::StartedUp(at) => self.started_up(id, at, moment),
            Step::SidecarReady(at) => self.sidecar_ready(id, at, moment),
            Step::Probe(at) => self.probe(id, at, moment),
            Step::OpenGate => self.open_gate(id, moment),
            Step::Exit(at) => self.exit(id, at, moment),
            Step::BackOff(at) => self.back_off(id, at, moment),
            Step::Restart(at) => self.restart(id, at, moment),
            Step::Complete => self.complete(id, moment),
            Step::Untrack => self.untrack(id, moment),
            Step::Evict => self.evict(id, moment),
            Step::Delete => self.delete(id, None, moment),
            Step::Terminate => self.terminate(id, moment),
            Step::StopSandbox => self.stop_sandbox(id, moment),
            Step::Kill => self.kill(id, moment),
            Step::Remove => self.remove(id, moment),
        }
    }

    /// Changes a copy of the pod and keeps it.
    pub(super) fn change<T>(&mut self, id: PodId, change: impl FnOnce(&mut Pod) -> T) -> Option<T> {
        let slot = self.pods.get_mut(&id)?;
        Some(change(Arc::make_mut(&mut slot.pod)))
    }

    pub(super) fn pod(&self, id: PodId) -> Option<&Arc<Pod>> {
        self.pods.get(&id).map(|slot| &slot.pod)
    }

    /// Publishes a pod to the API server and to its kubelet.
    pub(super) fn publish(&mut self, id: PodId, moment: Moment<'_>) {
        let Some(slot) = self.pods.get_mut(&id) else {
            return;
        };
        if let Some(host) = &slot.pod.host
            && slot.pod.start.is_some()
            && let Some(node) = self.roster.nodes().get(host.index)
        {
            node.put(&slot.pod);
        }
        super::render::pod(&slot.pod, &mut self.text);
        match moment.writer.replace_text(Resource::Pods, &self.text) {
            Ok(version) => slot.version = version,
            Err(WriteError::NotFound { .. }) => self.forget(id, moment),
            Err(error) => {
                self.refused += 1;
                tracing::debug!(%error, "pod not written");
            }
        }
    }

    /// Writes an event about a pod, or about one of its containers.
    pub(super) fn say(
        &mut self,
        id: PodId,
        container: Option<usize>,
        warning: bool,
        reason: &'static str,
        message: &str,
        moment: Moment<'_>,
    ) -> u32 {
        let Some(slot) = self.pods.get_mut(&id) else {
            return 0;
        };
        let pod = &*slot.pod;
        let texts = container.and_then(|at| pod.kind.containers.get(at));
        let subject = Subject {
            api_version: "v1",
            kind: "Pod",
            namespace: &pod.namespace,
            name: &pod.name,
            uid: pod.uid,
            version: slot.version,
            field_path: texts.map(|texts| &*texts.field_path),
        };
        let source = match (reason, &pod.host) {
            ("Scheduled", _) => Source::Scheduler { action: "Binding" },
            (_, Some(host)) => Source::Kubelet(&host.name),
            (_, None) => Source::Scheduler {
                action: "Scheduling",
            },
        };
        let saying = Saying {
            warning,
            reason,
            message,
        };
        self.recorder.say(
            moment.writer,
            &mut slot.written,
            &subject,
            &source,
            &saying,
            moment.now,
        )
    }

    fn ungate(&mut self, id: PodId, moment: Moment<'_>) {
        self.change(id, |pod| pod.gated = false);
        self.publish(id, moment);
        self.plan_step(id, Step::Schedule, moment.now, (5, 60));
    }

    fn schedule(&mut self, id: PodId, moment: Moment<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        if pod.template().node_selector.is_some() {
            self.change(id, |pod| pod.scheduled = Some(Flip::no(moment.now)));
            let message = super::messages::unschedulable(&pod);
            self.say(id, None, true, "FailedScheduling", &message, moment);
            self.publish(id, moment);
            return;
        }
        let Some(host) = self.pick_host(id) else {
            return;
        };
        let (namespace, name) = (&pod.namespace, &pod.name);
        let message = format!("Successfully assigned {namespace}/{name} to {}", host.name);
        self.change(id, |pod| {
            pod.host = Some(host);
            pod.scheduled = Some(Flip {
                holds: true,
                since: moment.now,
            });
        });
        self.publish(id, moment);
        self.say(id, None, false, "Scheduled", &message, moment);
        self.plan_step(id, Step::Sync, moment.now, (20, 250));
    }

    /// Assigns nodes in turn, which spreads pods as evenly as the scheduler would; a pod of a
    /// DaemonSet is bound to its own node.
    pub(super) fn pick_host(&mut self, id: PodId) -> Option<Host> {
        let nodes = self.roster.nodes();
        let index = match self.replacing.bound(id) {
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

    fn sync(&mut self, id: PodId, moment: Moment<'_>) {
        self.change(id, |pod| {
            pod.start = Some(moment.now);
            pod.observed = pod.generation;
            for flip in [
                &mut pod.sandbox,
                &mut pod.initialized,
                &mut pod.ready,
                &mut pod.containers_ready,
            ] {
                *flip = Flip::no(moment.now);
            }
            pod.settle(moment.now);
        });
        self.publish(id, moment);
        self.plan_step(id, Step::Sandbox, moment.now, (300, 1_100));
    }

    fn sandbox(&mut self, id: PodId, moment: Moment<'_>) {
        self.change(id, |pod| pod.sandbox.set(true, moment.now));
        self.publish(id, moment);
        // The runtime has assigned the address; the next status update contains it.
        self.change(id, |pod| pod.ip = Some(pod_ip(pod)));
        self.plan_step(id, Step::Fetch(0), moment.now, (10, 80));
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

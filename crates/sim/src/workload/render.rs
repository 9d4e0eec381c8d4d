//! Pods as JSON, field for field as from a real API server (except `managedFields`).
//!
//! A pod is written about ten times during its lifecycle, and a busy cluster writes thousands a
//! second: they are written directly as text, with members in the order of their names.

use std::collections::BTreeMap;

use kubevitals_model::Timestamp;
use serde_json::Value;

use super::compiled_template::{ContainerTexts, write_labels};
use super::nodes::topology_labels;
use super::pod::{ConditionState, Container, ContainerState, Part, Phase, Pod, Termination};
use crate::json::{Items, Members, push_display};
use crate::objects::{ObjectText, Resource};

/// Image ID of every container.
const IMAGE_ID: &str = "sha256:5116da950d5162b8735bbe0a781676adc35b855e36117782c7053a1931ba0009";

/// Reason and message of a condition.
type Reason<'a> = Option<(&'a str, Option<&'a str>)>;

/// Returns the whole object, without `resourceVersion`, as a tree.
pub(crate) fn pod_value(pod: &Pod) -> Value {
    let mut text = ObjectText::default();
    self::pod(pod, &mut text);
    text.value(Resource::Pods)
}

/// A time in the format of a status.
pub(crate) fn time(at: Timestamp) -> Value {
    at.rfc3339_seconds().as_str().into()
}

/// Writes the whole object, without `resourceVersion`.
pub(crate) fn pod(pod: &Pod, out: &mut ObjectText) {
    out.begin(&pod.namespace, &pod.name);
    metadata(pod, out);
    out.end_metadata();
    out.members()
        .object("spec", |members| spec(pod, members))
        .object("status", |members| status(pod, members));
    out.end();
    fields(pod, out);
}

fn metadata(pod: &Pod, out: &mut ObjectText) {
    let texts = &pod.compiled.texts;
    let mut members = out.members();
    members
        .ready(&texts.annotations)
        .time("creationTimestamp", pod.created);
    if let Some(deletion) = pod.deletion {
        members
            .bare("deletionGracePeriodSeconds", deletion.grace_seconds)
            .time("deletionTimestamp", deletion.at);
    }
    if pod.tracked {
        members.json("finalizers", r#"["batch.kubernetes.io/job-tracking"]"#);
    }
    members
        .ready(&texts.generate_name)
        .bare("generation", pod.generation);
    labels(pod, out);
    out.members()
        .text("name", &pod.name)
        .text("namespace", &pod.namespace)
        .ready(&texts.owner_references)
        .uid("uid", pod.uid);
}

fn labels(pod: &Pod, out: &mut ObjectText) {
    let topology = pod.host.as_ref().map(|host| topology_labels(host.index));
    let Some(ordinal) = pod.ordinal else {
        let [before, after] = &pod.compiled.texts.labels;
        if topology.is_none() && before.members.is_empty() && after.members.is_empty() {
            return;
        }
        out.members().object("labels", |members| {
            members.ready(&before.members);
            for (key, value) in topology.iter().flatten() {
                members.text(key, value);
            }
            members.ready(&after.members);
        });
        out.labels.push_str(&before.packed);
        for (key, value) in topology.iter().flatten() {
            out.label(key, value);
        }
        out.labels.push_str(&after.packed);
        out.has_nul |= before.has_nul || after.has_nul;
        return;
    };
    let ordinal = ordinal.to_string();
    let common = pod.compiled.labels.iter();
    let mut labels: BTreeMap<&str, &str> = common.map(|(key, value)| (&**key, &**value)).collect();
    labels.insert("apps.kubernetes.io/pod-index", &ordinal);
    labels.insert("statefulset.kubernetes.io/pod-name", &pod.name);
    labels.extend(topology.iter().flatten().copied());
    write_labels(&mut out.members(), "labels", &labels);
    for (key, value) in labels {
        out.label(key, value);
    }
}

fn spec(pod: &Pod, members: &mut Members<'_>) {
    let template = pod.template();
    pod.compiled
        .spec
        .write(members, |name, members| match name {
            "hostname" if template.subdomain.is_some() => {
                members.text(name, &pod.name);
            }
            "nodeName" => {
                if let Some(host) = &pod.host {
                    members.text(name, &host.name);
                }
            }
            "schedulingGates" => {
                if let (true, Some((gate, _))) = (pod.gated, &template.scheduling_gate) {
                    members.list(name, |items| {
                        items.object(|members| {
                            members.text("name", gate);
                        });
                    });
                }
            }
            "subdomain" => {
                if let Some(subdomain) = &template.subdomain {
                    members.text(name, subdomain);
                }
            }
            _ => {}
        });
}

fn status(pod: &Pod, members: &mut Members<'_>) {
    let texts = &pod.compiled.texts;
    let placed = pod.host.as_ref().zip(pod.start);
    if placed.is_some() {
        members.ready(&texts.allocated);
    }
    if pod.scheduled.is_some() || is_gated(pod) {
        members.list("conditions", |items| conditions(pod, items));
    }
    if let Some((host, _)) = placed {
        members.list("containerStatuses", |items| containers(pod, items, false));
        address(members, "hostIP", "hostIPs", host.ip);
        if !pod.template().init.is_empty() {
            members.list("initContainerStatuses", |items| {
                containers(pod, items, true);
            });
        }
    }
    if let Some(eviction) = &pod.reason {
        members.text("message", &eviction.message);
    }
    if placed.is_some() {
        members.bare("observedGeneration", pod.observed);
    }
    members.text("phase", pod.phase.text());
    if let (Some(_), Some(ip)) = (placed, pod.ip) {
        address(members, "podIP", "podIPs", ip);
    }
    members.text("qosClass", pod.template().qos_class());
    if pod.reason.is_some() {
        members.text("reason", "Evicted");
    }
    if let Some((_, start)) = placed {
        members.ready(&texts.resources).time("startTime", start);
    }
}

/// The selectable fields, in the order of `ResourceInfo::fields`.
fn fields(pod: &Pod, out: &mut ObjectText) {
    out.field(pod.host.as_ref().map_or("", |host| &*host.name));
    out.field(pod.template().restart.text());
    out.field("default-scheduler");
    out.field("");
    out.field("false");
    out.field(pod.phase.text());
    if let (Some(_), Some(_), Some(ip)) = (&pod.host, pod.start, pod.ip) {
        push_display(&mut out.fields, ip);
    }
    out.field("");
    out.field("");
}

/// Writes an address, and the list with only that address.
fn address(members: &mut Members<'_>, one: &str, all: &str, ip: std::net::Ipv4Addr) {
    members.display(one, ip).list(all, |items| {
        items.object(|members| {
            members.display("ip", ip);
        });
    });
}

fn containers(pod: &Pod, items: &mut Items<'_>, init: bool) {
    for (part, texts) in pod.parts().zip(&pod.compiled.containers) {
        if part.init == init {
            items.object(|members| container(pod, &part, texts, members));
        }
    }
}

fn container(pod: &Pod, part: &Part<'_>, texts: &ContainerTexts, members: &mut Members<'_>) {
    let Container {
        state,
        last,
        restarts,
        ready,
        started,
        ..
    } = part.container;
    let ran = match state {
        ContainerState::Running { .. } => Some(*restarts),
        ContainerState::Terminated(ended) => Some(ended.run),
        ContainerState::Waiting { .. } | ContainerState::Lost => {
            last.as_ref().map(|ended| ended.run)
        }
    };
    if let Some(run) = ran {
        members
            .ready(&texts.allocated)
            .pushed("containerID", |out| {
                pod.push_container_id(part.index, run, out);
            });
    }
    members
        .ready(&texts.image)
        .text("imageID", if ran.is_some() { IMAGE_ID } else { "" })
        .object("lastState", |members| {
            if let Some(ended) = last {
                terminated(pod, part.index, ended, members);
            }
        })
        .ready(&texts.name)
        .flag("ready", *ready);
    if ran.is_some() {
        members.ready(&texts.resources);
    }
    members
        .bare("restartCount", restarts)
        .flag("started", *started)
        .object("state", |members| self::state(pod, part, state, members));
}

fn state(pod: &Pod, part: &Part<'_>, state: &ContainerState, members: &mut Members<'_>) {
    match state {
        ContainerState::Waiting { reason, message } => {
            members.object("waiting", |members| {
                if let Some(message) = message {
                    members.text("message", message);
                }
                members.text("reason", reason);
            });
        }
        ContainerState::Running { since } => {
            members.object("running", |members| {
                members.time("startedAt", *since);
            });
        }
        ContainerState::Terminated(ended) => terminated(pod, part.index, ended, members),
        ContainerState::Lost => {
            let message = "The container could not be located when the pod was terminated";
            members.object("terminated", |members| {
                members
                    .bare("exitCode", 137)
                    .null("finishedAt")
                    .text("message", message)
                    .text("reason", "ContainerStatusUnknown")
                    .null("startedAt");
            });
        }
    }
}

fn terminated(pod: &Pod, index: usize, ended: &Termination, members: &mut Members<'_>) {
    members.object("terminated", |members| {
        members
            .pushed("containerID", |out| {
                pod.push_container_id(index, ended.run, out);
            })
            .bare("exitCode", ended.exit_code)
            .time("finishedAt", ended.finished)
            .text("reason", ended.reason())
            .time("startedAt", ended.started);
    });
}

/// Whether the pod is scheduling-gated.
fn is_gated(pod: &Pod) -> bool {
    pod.gated && pod.template().scheduling_gate.is_some()
}

/// Conditions in the order of a kubelet: those of other components first, then its own five.
fn conditions(pod: &Pod, items: &mut Items<'_>) {
    let mut list = |kind: &str, state: ConditionState, reason: Reason<'_>, observed: bool| {
        items.object(|members| condition(pod, kind, state, reason, observed, members));
    };
    let Some(scheduled) = pod.scheduled else {
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        let reason = Some(("SchedulingGated", Some(message)));
        list(
            "PodScheduled",
            ConditionState::false_since(pod.created),
            reason,
            true,
        );
        return;
    };
    if !scheduled.holds {
        let message = super::messages::unschedulable(pod);
        let reason = Some(("Unschedulable", Some(message.as_str())));
        list("PodScheduled", scheduled, reason, true);
        return;
    }
    let synced = pod.start.is_some();
    if let (Some((gate, _)), Some(since)) = (&pod.template().readiness_gate, pod.gate_open) {
        list(gate, ConditionState { holds: true, since }, None, false);
    }
    if let Some(eviction) = &pod.reason {
        let state = ConditionState {
            holds: true,
            since: eviction.at,
        };
        let reason = Some(("TerminationByKubelet", Some(eviction.message.as_str())));
        list("DisruptionTarget", state, reason, true);
    }
    if synced {
        let own = super::messages::conditions(pod);
        for (kind, state, reason) in [
            ("PodReadyToStartContainers", pod.sandbox, &own.sandbox),
            ("Initialized", pod.initialized, &own.initialized),
            ("Ready", pod.ready, &own.ready),
            ("ContainersReady", pod.containers_ready, &own.containers),
        ] {
            let reason = reason.as_ref();
            let reason = reason.map(|(reason, message)| (*reason, message.as_deref()));
            list(kind, state, reason, true);
        }
    }
    list("PodScheduled", scheduled, None, synced);
}

fn condition(
    pod: &Pod,
    kind: &str,
    state: ConditionState,
    reason: Reason<'_>,
    observed: bool,
    members: &mut Members<'_>,
) {
    members
        .null("lastProbeTime")
        .time("lastTransitionTime", state.since);
    if let Some((_, Some(message))) = reason {
        members.text("message", message);
    }
    if observed {
        members.bare("observedGeneration", pod.observed.max(1));
    }
    if let Some((reason, _)) = reason {
        members.text("reason", reason);
    }
    members
        .text("status", if state.holds { "True" } else { "False" })
        .text("type", kind);
}

impl Phase {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

#[cfg(test)]
pub(in crate::workload) mod tests;

//! A pod as JSON, field for field as a real API server shows it (but for `managedFields`).

use kubevitals_model::Timestamp;
use serde_json::{Map, Value, json};

use super::pod::{Container, Ended, Flip, Part, Phase, Pod, State};

/// What the image of every container resolves to.
const IMAGE_ID: &str = "sha256:5116da950d5162b8735bbe0a781676adc35b855e36117782c7053a1931ba0009";

/// The whole object, without `resourceVersion`.
pub(crate) fn pod(pod: &Pod) -> Value {
    object([
        ("kind", "Pod".into()),
        ("apiVersion", "v1".into()),
        ("metadata", metadata(pod)),
        ("spec", spec(pod)),
        ("status", status(pod)),
    ])
}

/// An object of these fields. Unlike `json!` it moves them, which halves the cost of large ones.
pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.map(|(name, value)| (name.to_owned(), value));
    Value::Object(fields.into_iter().collect())
}

/// The form of a time in a status.
pub(crate) fn time(at: Timestamp) -> Value {
    at.rfc3339_seconds().as_str().into()
}

pub(crate) fn metadata(pod: &Pod) -> Value {
    let kind = &pod.kind;
    let mut fields = Map::new();
    fields.insert("name".into(), (*pod.name).into());
    fields.insert("namespace".into(), (*pod.namespace).into());
    fields.insert("uid".into(), pod.uid.to_string().into());
    fields.insert("generation".into(), pod.generation.into());
    fields.insert("creationTimestamp".into(), time(pod.created));
    if let Some(prefix) = &kind.generate_name {
        fields.insert("generateName".into(), (**prefix).into());
    }
    let mut labels: Map<String, Value> = kind
        .template
        .labels
        .iter()
        .chain(&kind.owner_labels)
        .map(|(key, value)| ((**key).to_owned(), (**value).into()))
        .collect();
    if let Some(ordinal) = pod.ordinal {
        labels.insert(
            "apps.kubernetes.io/pod-index".into(),
            ordinal.to_string().into(),
        );
        labels.insert(
            "statefulset.kubernetes.io/pod-name".into(),
            (*pod.name).into(),
        );
    }
    if !labels.is_empty() {
        fields.insert("labels".into(), labels.into());
    }
    if !kind.template.annotations.is_empty() {
        let annotations: Map<String, Value> = kind
            .template
            .annotations
            .iter()
            .map(|(key, value)| ((**key).to_owned(), (**value).into()))
            .collect();
        fields.insert("annotations".into(), annotations.into());
    }
    if let Some(owner) = &kind.owner {
        fields.insert(
            "ownerReferences".into(),
            json!([{
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": &*owner.name,
                "uid": owner.uid.to_string(),
                "controller": true,
                "blockOwnerDeletion": true,
            }]),
        );
    }
    if pod.tracked {
        fields.insert(
            "finalizers".into(),
            json!(["batch.kubernetes.io/job-tracking"]),
        );
    }
    if let Some(deletion) = pod.deletion {
        fields.insert("deletionTimestamp".into(), time(deletion.at));
        fields.insert(
            "deletionGracePeriodSeconds".into(),
            deletion.grace_seconds.into(),
        );
    }
    fields.into()
}

fn spec(pod: &Pod) -> Value {
    let mut spec = pod.kind.spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        if let Some(host) = &pod.host {
            fields.insert("nodeName".into(), (*host.name).into());
        }
        if let (true, Some((gate, _))) = (pod.gated, &pod.template().scheduling_gate) {
            fields.insert("schedulingGates".into(), json!([{"name": &**gate}]));
        }
        if let Some(subdomain) = &pod.template().subdomain {
            fields.insert("hostname".into(), (*pod.name).into());
            fields.insert("subdomain".into(), (**subdomain).into());
        }
    }
    spec
}

pub(crate) fn status(pod: &Pod) -> Value {
    let mut fields = Map::new();
    fields.insert("phase".into(), pod.phase.text().into());
    fields.insert("qosClass".into(), pod.template().qos_class().into());
    if let Some(eviction) = &pod.reason {
        fields.insert("reason".into(), "Evicted".into());
        fields.insert("message".into(), eviction.message.as_str().into());
    }
    let conditions = conditions(pod);
    if !conditions.is_empty() {
        fields.insert("conditions".into(), conditions.into());
    }
    let (Some(host), Some(start)) = (&pod.host, pod.start) else {
        return fields.into();
    };
    fields.insert("observedGeneration".into(), pod.observed.into());
    fields.insert("hostIP".into(), host.ip.to_string().into());
    fields.insert("hostIPs".into(), json!([{"ip": host.ip.to_string()}]));
    fields.insert("startTime".into(), time(start));
    if let Some(ip) = pod.ip {
        fields.insert("podIP".into(), ip.to_string().into());
        fields.insert("podIPs".into(), json!([{"ip": ip.to_string()}]));
    }
    let (mut init, mut main) = (Vec::new(), Vec::new());
    for part in pod.parts() {
        let list = if part.init { &mut init } else { &mut main };
        list.push(container(pod, &part));
    }
    if !init.is_empty() {
        fields.insert("initContainerStatuses".into(), init.into());
    }
    fields.insert("containerStatuses".into(), main.into());
    let total = pod.template().total();
    let requests = total.requests();
    if !requests.is_empty() {
        fields.insert("allocatedResources".into(), requests.into());
    }
    fields.insert("resources".into(), total.spec());
    fields.into()
}

fn container(pod: &Pod, part: &Part<'_>) -> Value {
    let Container {
        state,
        last,
        restarts,
        ready,
        started,
        ..
    } = part.container;
    let template = pod.template().at(part.index);
    let image = template.map_or("", |t| &*t.image);
    let mut fields = Map::new();
    fields.insert("name".into(), (**part.name).into());
    fields.insert("state".into(), self::state(pod, part, state));
    fields.insert(
        "lastState".into(),
        match last {
            Some(ended) => object([("terminated", terminated(pod, part.index, ended))]),
            None => Value::Object(Map::new()),
        },
    );
    fields.insert("ready".into(), (*ready).into());
    fields.insert("restartCount".into(), (*restarts).into());
    fields.insert("image".into(), image.into());
    fields.insert("started".into(), (*started).into());
    let ran = match state {
        State::Running { .. } => Some(*restarts),
        State::Ended(ended) => Some(ended.run),
        State::Waiting { .. } | State::Lost => last.as_ref().map(|ended| ended.run),
    };
    fields.insert(
        "imageID".into(),
        if ran.is_some() { IMAGE_ID } else { "" }.into(),
    );
    if let Some(run) = ran {
        let id = pod.container_id(part.index, run);
        fields.insert("containerID".into(), id.into());
        let resources = template.map(|t| t.resources).unwrap_or_default();
        let requests = resources.requests();
        if !requests.is_empty() {
            fields.insert("allocatedResources".into(), requests.into());
        }
        fields.insert("resources".into(), resources.spec());
    }
    fields.into()
}

fn state(pod: &Pod, part: &Part<'_>, state: &State) -> Value {
    match state {
        State::Waiting { reason, message } => match message {
            Some(message) => json!({"waiting": {"reason": reason, "message": &**message}}),
            None => json!({"waiting": {"reason": reason}}),
        },
        State::Running { since } => object([("running", object([("startedAt", time(*since))]))]),
        State::Ended(ended) => object([("terminated", terminated(pod, part.index, ended))]),
        State::Lost => json!({"terminated": {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
            "startedAt": null,
            "finishedAt": null,
        }}),
    }
}

fn terminated(pod: &Pod, index: usize, ended: &Ended) -> Value {
    object([
        ("exitCode", ended.exit_code.into()),
        ("reason", ended.reason().into()),
        ("startedAt", time(ended.started)),
        ("finishedAt", time(ended.finished)),
        ("containerID", pod.container_id(index, ended.run).into()),
    ])
}

/// Conditions in the order of a kubelet: those of others first, then its own five.
fn conditions(pod: &Pod) -> Vec<Value> {
    let mut list = Vec::with_capacity(6);
    let Some(scheduled) = pod.scheduled else {
        if let (true, Some(_)) = (pod.gated, &pod.template().scheduling_gate) {
            let message = "Scheduling is blocked due to non-empty scheduling gates";
            let reason = Some(("SchedulingGated", Some(message.to_owned())));
            list.push(condition(
                pod,
                "PodScheduled",
                Flip::no(pod.created),
                reason,
                true,
            ));
        }
        return list;
    };
    if !scheduled.holds {
        let reason = Some(("Unschedulable", Some(super::messages::unschedulable(pod))));
        list.push(condition(pod, "PodScheduled", scheduled, reason, true));
        return list;
    }
    let seen = pod.start.is_some();
    if let (Some((gate, _)), Some(since)) = (&pod.template().readiness_gate, pod.gate_open) {
        list.push(json!({
            "type": &**gate,
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": time(since),
        }));
    }
    if let Some(eviction) = &pod.reason {
        let flip = Flip {
            holds: true,
            since: eviction.at,
        };
        let reason = Some(("TerminationByKubelet", Some(eviction.message.clone())));
        list.push(condition(pod, "DisruptionTarget", flip, reason, true));
    }
    if seen {
        let own = super::messages::conditions(pod);
        list.push(condition(
            pod,
            "PodReadyToStartContainers",
            pod.sandbox,
            own.sandbox,
            true,
        ));
        list.push(condition(
            pod,
            "Initialized",
            pod.initialized,
            own.initialized,
            true,
        ));
        list.push(condition(pod, "Ready", pod.ready, own.ready, true));
        list.push(condition(
            pod,
            "ContainersReady",
            pod.containers_ready,
            own.containers,
            true,
        ));
    }
    list.push(condition(pod, "PodScheduled", scheduled, None, seen));
    list
}

fn condition(
    pod: &Pod,
    kind: &str,
    flip: Flip,
    reason: Option<(&str, Option<String>)>,
    observed: bool,
) -> Value {
    let mut fields = Map::new();
    fields.insert("type".into(), kind.into());
    if observed {
        let generation = if pod.observed == 0 { 1 } else { pod.observed };
        fields.insert("observedGeneration".into(), generation.into());
    }
    let status = if flip.holds { "True" } else { "False" };
    fields.insert("status".into(), status.into());
    fields.insert("lastProbeTime".into(), Value::Null);
    fields.insert("lastTransitionTime".into(), time(flip.since));
    if let Some((reason, message)) = reason {
        fields.insert("reason".into(), reason.into());
        if let Some(message) = message {
            fields.insert("message".into(), message.into());
        }
    }
    fields.into()
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

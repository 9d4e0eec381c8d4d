//! Objects rendered as text equal those built as trees of values, byte for byte.
//!
//! The trees are built in the simplest way, member by member.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use serde_json::{Map, json};

use super::*;
use crate::api::resources;
use crate::node_set::NodeSet;
use crate::objects::{ObjectWriter, WriteError};
use crate::seed::Seed;
use crate::store::{Content, HistoryLimits, Store};
use crate::workload::{
    ChurnRate, ContainerTemplate, Manifest, PodTemplate, Scenario, ScenarioMix, Workload,
    WorkloadConfig,
};

const START: i64 = 1_780_000_000_000;

/// A writer that records the keys of the objects written last.
struct RecordingWriter {
    store: Store,
    written: Mutex<BTreeSet<(Resource, String)>>,
}

impl ObjectWriter for RecordingWriter {
    fn create(&self, resource: Resource, object: Value) -> Result<u64, WriteError> {
        self.store.create(resource, object)
    }

    fn replace(&self, resource: Resource, object: Value) -> Result<u64, WriteError> {
        self.store.replace(resource, object)
    }

    fn create_text(&self, resource: Resource, object: &ObjectText) -> Result<u64, WriteError> {
        self.remember(resource, object);
        self.store.create_text(resource, object)
    }

    fn replace_text(&self, resource: Resource, object: &ObjectText) -> Result<u64, WriteError> {
        self.remember(resource, object);
        self.store.replace_text(resource, object)
    }

    fn delete(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<u64, WriteError> {
        self.store.delete(resource, namespace, name)
    }
}

impl RecordingWriter {
    fn remember(&self, resource: Resource, object: &ObjectText) {
        let key = (resource, object.key.clone());
        self.written.lock().insert(key);
    }
}

/// Runs every scenario and calls back after every transition, with the keys of the written objects.
pub(in crate::workload) fn every_transition(
    mut look: impl FnMut(&Workload, &BTreeSet<(Resource, String)>),
) {
    for scenario in Scenario::ALL {
        let start = Timestamp::from_unix_millis(START);
        let at = |seconds: i64| Timestamp::from_unix_millis(START + seconds * 1_000);
        let clock = kubevitals_model::Clock::system();
        let writer = RecordingWriter {
            store: Store::new(HistoryLimits::default(), clock, 1),
            written: Mutex::default(),
        };
        let config = WorkloadConfig {
            pods_per_node: 3,
            churn: ChurnRate::per_second(1),
            mix: ScenarioMix::of([(scenario, 1)]),
            leases: false,
            ..WorkloadConfig::default()
        };
        let node_set = NodeSet::new(2, "node", Seed::new(1));
        let mut workload = Workload::new(config, node_set, Seed::new(7));
        workload.populate(start, &writer);
        let odd = ContainerTemplate::new("odd", &["/bin/echo", "a \"quoted\" \\ line\n"]);
        let mut template = PodTemplate::new(vec![odd]).label("odd \"key\"", "odd\tvalue");
        template.annotations = vec![("z".into(), "last".into()), ("a\\".into(), "\u{1}".into())];
        let manifest = Manifest::Pod {
            name: "odd".to_owned(),
            template,
        };
        workload.launch("default", manifest, start, &writer);
        let mut until = |workload: &mut Workload, end| {
            loop {
                let more = workload.step_some(end, &writer, 1);
                let written = std::mem::take(&mut *writer.written.lock());
                look(workload, &written);
                if !more {
                    return;
                }
            }
        };
        until(&mut workload, at(30));
        workload.set_churn(ChurnRate::NONE, at(30));
        until(&mut workload, at(150));
        assert_eq!(workload.rejected_writes(), 0, "{scenario:?}");
    }
}

/// Checks that a text equals what is stored of a tree: the object, its labels and its fields.
pub(in crate::workload) fn assert_same(resource: Resource, text: &ObjectText, tree: &Value) {
    assert_eq!(text.value(resource), *tree);
    let tree = Content::encode(resources::info(resource), tree.as_object().unwrap()).unwrap();
    assert_eq!(
        format!("{:?}", Content::of_text(text)),
        format!("{tree:?}"),
        "{resource:?}"
    );
}

#[test]
fn text_and_tree_of_a_pod_are_equal_at_every_step_of_every_scenario() {
    let mut shown = vec![
        "\"schedulingGates\":[{\"name\":\"example.com/quota\"}]",
        "SchedulingGated",
        "Unschedulable",
        "PodInitializing",
        "\"initContainerStatuses\"",
        "ImagePullBackOff",
        "CrashLoopBackOff",
        "OOMKilled",
        "ContainerStatusUnknown",
        "\"reason\":\"Evicted\"",
        "DisruptionTarget",
        "ReadinessGatesNotReady",
        "\"type\":\"example.com/registered\"",
        "job-tracking",
        "\"phase\":\"Succeeded\"",
        "\"deletionGracePeriodSeconds\":0",
        "apps.kubernetes.io/pod-index",
        "\"subdomain\":\"db-",
        "\"ownerReferences\"",
        "\"a\\\\\":\"\\u0001\",\"z\":\"last\"",
    ];
    let mut text = ObjectText::default();
    every_transition(|workload, written| {
        for entry in workload.pods.values() {
            let pod = &*entry.pod;
            let key = format!("{}/{}", pod.namespace, pod.name);
            if written.contains(&(Resource::Pods, key)) {
                super::pod(pod, &mut text);
                assert_same(Resource::Pods, &text, &tree(pod));
                assert_eq!(pod_value(pod), tree(pod));
                shown.retain(|part| !text.text.contains(part));
            }
        }
    });
    assert_eq!(shown, Vec::<&str>::new(), "not covered by any scenario");
}

/// Builds the whole object as a tree.
fn tree(pod: &Pod) -> Value {
    object([
        ("kind", "Pod".into()),
        ("apiVersion", "v1".into()),
        ("metadata", metadata(pod)),
        ("spec", spec(pod)),
        ("status", status(pod)),
    ])
}

pub(in crate::workload) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.map(|(name, value)| (name.to_owned(), value));
    Value::Object(fields.into_iter().collect())
}

fn metadata(pod: &Pod) -> Value {
    let compiled = &pod.compiled;
    let mut fields = Map::new();
    fields.insert("name".into(), (*pod.name).into());
    fields.insert("namespace".into(), (*pod.namespace).into());
    fields.insert("uid".into(), pod.uid.to_string().into());
    fields.insert("generation".into(), pod.generation.into());
    fields.insert("creationTimestamp".into(), time(pod.created));
    if let Some(prefix) = &compiled.generate_name {
        fields.insert("generateName".into(), (**prefix).into());
    }
    let mut labels: Map<String, Value> = compiled
        .labels
        .iter()
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
    if let Some(host) = &pod.host {
        let zone = ["local-1a", "local-1b", "local-1c"][host.index % 3];
        labels.insert("topology.kubernetes.io/region".into(), "local-1".into());
        labels.insert("topology.kubernetes.io/zone".into(), zone.into());
    }
    if !labels.is_empty() {
        fields.insert("labels".into(), labels.into());
    }
    if !compiled.template.annotations.is_empty() {
        let annotations: Map<String, Value> = compiled
            .template
            .annotations
            .iter()
            .map(|(key, value)| ((**key).to_owned(), (**value).into()))
            .collect();
        fields.insert("annotations".into(), annotations.into());
    }
    if let Some(owner) = &compiled.owner {
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
    let mut spec = pod.template().spec();
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

fn status(pod: &Pod) -> Value {
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
        ContainerState::Running { .. } => Some(*restarts),
        ContainerState::Terminated(ended) => Some(ended.run),
        ContainerState::Waiting { .. } | ContainerState::Lost => {
            last.as_ref().map(|ended| ended.run)
        }
    };
    fields.insert(
        "imageID".into(),
        if ran.is_some() { IMAGE_ID } else { "" }.into(),
    );
    if let Some(run) = ran {
        let id = container_id(pod, part.index, run);
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

fn state(pod: &Pod, part: &Part<'_>, state: &ContainerState) -> Value {
    match state {
        ContainerState::Waiting { reason, message } => match message {
            Some(message) => json!({"waiting": {"reason": reason, "message": &**message}}),
            None => json!({"waiting": {"reason": reason}}),
        },
        ContainerState::Running { since } => {
            object([("running", object([("startedAt", time(*since))]))])
        }
        ContainerState::Terminated(ended) => {
            object([("terminated", terminated(pod, part.index, ended))])
        }
        ContainerState::Lost => json!({"terminated": {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
            "startedAt": null,
            "finishedAt": null,
        }}),
    }
}

fn terminated(pod: &Pod, index: usize, ended: &Termination) -> Value {
    object([
        ("exitCode", ended.exit_code.into()),
        ("reason", ended.reason().into()),
        ("startedAt", time(ended.started)),
        ("finishedAt", time(ended.finished)),
        ("containerID", container_id(pod, index, ended.run).into()),
    ])
}

/// Conditions in the order of a kubelet: those of other components first, then its own five.
fn conditions(pod: &Pod) -> Vec<Value> {
    let mut list = Vec::with_capacity(6);
    let Some(scheduled) = pod.scheduled else {
        if let (true, Some(_)) = (pod.gated, &pod.template().scheduling_gate) {
            let message = "Scheduling is blocked due to non-empty scheduling gates";
            let reason = Some(("SchedulingGated", Some(message.to_owned())));
            list.push(condition(
                pod,
                "PodScheduled",
                ConditionState::false_since(pod.created),
                reason,
                true,
            ));
        }
        return list;
    };
    if !scheduled.holds {
        let reason = Some((
            "Unschedulable",
            Some(crate::workload::messages::unschedulable(pod)),
        ));
        list.push(condition(pod, "PodScheduled", scheduled, reason, true));
        return list;
    }
    let synced = pod.start.is_some();
    if let (Some((gate, _)), Some(since)) = (&pod.template().readiness_gate, pod.gate_open) {
        list.push(json!({
            "type": &**gate,
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": time(since),
        }));
    }
    if let Some(eviction) = &pod.reason {
        let state = ConditionState {
            holds: true,
            since: eviction.at,
        };
        let reason = Some(("TerminationByKubelet", Some(eviction.message.clone())));
        list.push(condition(pod, "DisruptionTarget", state, reason, true));
    }
    if synced {
        let own = crate::workload::messages::conditions(pod);
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
    list.push(condition(pod, "PodScheduled", scheduled, None, synced));
    list
}

fn condition(
    pod: &Pod,
    kind: &str,
    state: ConditionState,
    reason: Option<(&str, Option<String>)>,
    observed: bool,
) -> Value {
    let mut fields = Map::new();
    fields.insert("type".into(), kind.into());
    if observed {
        let generation = if pod.observed == 0 { 1 } else { pod.observed };
        fields.insert("observedGeneration".into(), generation.into());
    }
    let status = if state.holds { "True" } else { "False" };
    fields.insert("status".into(), status.into());
    fields.insert("lastProbeTime".into(), Value::Null);
    fields.insert("lastTransitionTime".into(), time(state.since));
    if let Some((reason, message)) = reason {
        fields.insert("reason".into(), reason.into());
        if let Some(message) = message {
            fields.insert("message".into(), message.into());
        }
    }
    fields.into()
}

fn container_id(pod: &Pod, index: usize, run: u32) -> String {
    let id = pod.container_seed(index).derive(u64::from(run)).hex64();
    format!("containerd://{id}")
}

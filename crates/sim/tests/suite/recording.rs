//! Compares simulated lifecycles with those recorded from a real cluster: the same versions of the
//! same pods, field by field, and the same events.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_sim::node_set::NodeSet;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::seed::Seed;
use kubevitals_sim::workload::{Manifest, Scenario, Workload, WorkloadConfig};
use serde_json::Value;

use crate::node_support::{START, Store, at, fixture};

/// The versions of each pod, and the events of each object.
struct Timeline {
    pods: BTreeMap<String, Vec<Value>>,
    events: BTreeMap<String, Vec<String>>,
}

/// The recorded cluster had no DNS configured, and pods of an earlier run were still terminating.
fn is_noise(event: &Value) -> bool {
    let message = event["message"].as_str().unwrap();
    event["reason"] == "MissingClusterDNS" || message.contains("CONTAINER_EXITED")
}

fn recorded() -> Timeline {
    let lines = |name| -> Vec<(String, Value)> {
        fixture(name)
            .lines()
            .map(|line| {
                let mut change: Value = serde_json::from_str(line).unwrap();
                let kind = change["type"].as_str().unwrap().to_owned();
                (kind, change["object"].take())
            })
            .collect()
    };
    let pods = lines("pods.watch.jsonl");
    // Of pods of the earlier run, only the end was recorded.
    let started: Vec<String> = pods
        .iter()
        .filter(|(kind, _)| kind == "ADDED")
        .map(|(_, pod)| name(pod))
        .collect();
    let pods = pods
        .into_iter()
        .filter(|(_, pod)| started.contains(&name(pod)));
    timeline(pods, lines("events.watch.jsonl").into_iter())
}

fn simulated() -> Timeline {
    let store = Store::default();
    let node_set = NodeSet::new(1, "real", Seed::new(11));
    let mut workload = Workload::new(WorkloadConfig::default(), node_set, Seed::new(7));
    let start = at(START);
    for kind in [
        Scenario::Rollout,
        Scenario::Job,
        Scenario::StatefulSet,
        Scenario::CrashLoop,
        Scenario::NeverReady,
        Scenario::NoImage,
        Scenario::Unschedulable,
    ] {
        let mut manifest = kind.manifest(kind.name().to_owned(), Seed::new(1));
        match &mut manifest {
            Manifest::Deployment { replicas, .. } => *replicas = 3,
            Manifest::Job { ttl_seconds, .. } => *ttl_seconds = None,
            Manifest::Pod { template, .. } => template.grace_seconds = 30,
            Manifest::StatefulSet { .. } => {}
        }
        workload.launch("default", manifest, start, &store);
    }
    // Deleted as in the recording: after two failed pulls, and after the fourth exit of the
    // crashing container.
    let mut now = START;
    let mut waiting = vec!["crashy", "no-image"];
    while !waiting.is_empty() {
        now = workload.next_due().unwrap().unix_millis();
        assert!(now < START + 200_000, "{waiting:?} took too long");
        workload.step(at(now), &store);
        waiting.retain(|pod| {
            let due = is_due(&store, pod);
            if due {
                assert!(workload.delete_pod("default", pod, Some(1), at(now), &store));
            }
            !due
        });
    }
    assert!(workload.delete_pod("default", "never-ready", Some(1), at(now), &store));
    for name in ["quick", "db", "unschedulable", "web"] {
        assert!(workload.remove_workload("default", name, at(now), &store));
    }
    workload.step(at(now + 60_000), &store);
    assert_eq!(workload.pods(), 0);
    assert_eq!(workload.rejected_writes(), 0);
    let changes = |resource| {
        let changes = store.changes(resource).into_iter();
        changes.map(|change| (change.kind.to_owned(), change.object))
    };
    timeline(changes(Resource::Pods), changes(Resource::Events))
}

/// Whether a pod is in the state in which it was deleted in the recording.
fn is_due(store: &Store, pod: &str) -> bool {
    let count = |predicate: &dyn Fn(&Value) -> bool| {
        store.count(Resource::Pods, |version| {
            name(version) == pod && predicate(&version["status"]["containerStatuses"][0]["state"])
        })
    };
    match pod {
        "crashy" => count(&|state| state["terminated"].is_object()) == 4,
        _ => count(&|state| state["waiting"]["reason"] == "ImagePullBackOff") == 2,
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// `web-fbb586dc9-x888m` is one of `web`.
fn family(name: &str) -> String {
    let families = ["web", "quick", "db-0", "db-1"];
    let found = families.iter().find(|family| name.starts_with(*family));
    found.map_or(name.to_owned(), |family| (*family).to_owned())
}

fn timeline(
    pods: impl Iterator<Item = (String, Value)>,
    events: impl Iterator<Item = (String, Value)>,
) -> Timeline {
    let mut timeline = Timeline {
        pods: BTreeMap::new(),
        events: BTreeMap::new(),
    };
    let mut chosen: BTreeMap<String, String> = BTreeMap::new();
    let mut names: Vec<(String, String)> = Vec::new();
    for (kind, mut pod) in pods {
        let name = name(&pod);
        // Of pods with the same template, the first represents all.
        let first = chosen.entry(family(&name)).or_insert_with(|| name.clone());
        let chosen = *first == name;
        if kind == "ADDED" {
            names.extend(identities(&pod));
            // The longest first: a hash is part of a name.
            names.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        }
        if !chosen {
            continue;
        }
        normalise(&mut pod, &names);
        pod["watch"] = kind.into();
        let versions = timeline.pods.entry(family(&name)).or_default();
        if versions.last() != Some(&pod) {
            versions.push(pod);
        }
    }
    for (_, mut event) in events.filter(|(_, event)| !is_noise(event)) {
        let about = event["involvedObject"]["name"].as_str().unwrap().to_owned();
        let kind = event["involvedObject"]["kind"].as_str().unwrap().to_owned();
        if kind == "Pod" && !chosen.values().any(|name| *name == about) {
            continue;
        }
        normalise(&mut event, &names);
        let text = outline(&event);
        let subject = format!("{kind} {}", family(&about));
        let events = timeline.events.entry(subject).or_default();
        if !events.contains(&text) {
            events.push(text);
        }
    }
    timeline
}

/// Returns the random parts of a pod, and their replacements.
fn identities(pod: &Value) -> Vec<(String, String)> {
    let metadata = &pod["metadata"];
    let mut list = vec![
        (name(pod), "POD".to_owned()),
        (
            metadata["uid"].as_str().unwrap().to_owned(),
            "UID".to_owned(),
        ),
    ];
    if let Some(owner) = metadata["ownerReferences"].get(0) {
        list.push((
            owner["uid"].as_str().unwrap().to_owned(),
            "OWNER-UID".to_owned(),
        ));
    }
    for label in ["pod-template-hash", "controller-revision-hash"] {
        if let Some(hash) = metadata["labels"][label].as_str() {
            list.push((hash.to_owned(), "HASH".to_owned()));
        }
    }
    list
}

fn normalise(object: &mut Value, names: &[(String, String)]) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("annotations");
    }
    // The node of the recording has no topology labels.
    if let Some(labels) = object
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.retain(|key, _| !key.starts_with("topology.kubernetes.io/"));
        if labels.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("labels");
        }
    }
    // The value of a cgroup without limit when it is read back; only with hybrid cgroups.
    if let Some(limits) = object
        .pointer_mut("/status/resources")
        .and_then(Value::as_object_mut)
    {
        limits.remove("limits");
    }
    walk(object, names);
}

fn walk(value: &mut Value, names: &[(String, String)]) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| walk(value, names)),
        Value::Array(list) => list.iter_mut().for_each(|value| walk(value, names)),
        Value::String(text) => *text = plain(text, names),
        _ => {}
    }
}

fn plain(text: &str, names: &[(String, String)]) -> String {
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    if text.len() >= 20 && text.ends_with('Z') && digits(text) >= 14 && text.contains('T') {
        return "TIME".to_owned();
    }
    if text.starts_with("containerd://") {
        return "CONTAINER".to_owned();
    }
    if text.parse::<std::net::Ipv4Addr>().is_ok() {
        return "IP".to_owned();
    }
    let mut text = text.replace("real-00000", "real-1");
    for (from, to) in names {
        text = text.replace(from, to);
    }
    // The source port of the DNS request.
    if let (Some(from), Some(to)) = (text.find("read udp "), text.find("->")) {
        text.replace_range(from + 9..to, "SOCKET");
    }
    text
}

/// An event's fields without times and counts.
fn outline(event: &Value) -> String {
    let mut keys: Vec<&String> = event.as_object().unwrap().keys().collect();
    keys.sort();
    let mut involved: Vec<&String> = event["involvedObject"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    involved.sort();
    let instance = event["reportingInstance"].as_str().unwrap();
    let instance = instance.trim_end_matches("-vm").trim_end_matches("-sim");
    let times = ["firstTimestamp", "lastTimestamp", "eventTime"].map(|key| event[key].is_null());
    format!(
        "{} {} {:?} | {} | {} {} {instance} {} | {keys:?} {involved:?} {times:?}",
        event["type"],
        event["reason"],
        event["involvedObject"]["fieldPath"],
        event["message"],
        event["source"],
        event["reportingComponent"],
        event["action"],
    )
}

#[test]
fn pod_versions_match_the_recording() {
    let (recorded, simulated) = (recorded(), simulated());
    let names: Vec<_> = recorded.pods.keys().collect();
    assert_eq!(names, simulated.pods.keys().collect::<Vec<_>>());
    for (name, versions) in &recorded.pods {
        let ours = &simulated.pods[name];
        for (at, (theirs, ours)) in versions.iter().zip(ours).enumerate() {
            let (theirs, ours) = (outline_of(theirs), outline_of(ours));
            assert_eq!(theirs, ours, "version {at} of {name}");
        }
        // The recording ends before the grace period of `web` does.
        if name != "web" {
            assert_eq!(versions.len(), ours.len(), "versions of {name}");
        }
    }
}

/// Pretty-printed, for readable differences.
fn outline_of(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[test]
fn events_match_the_recording() {
    let (recorded, simulated) = (recorded(), simulated());
    for (subject, events) in &recorded.events {
        if subject.starts_with("Node") {
            continue;
        }
        let ours = simulated.events.get(subject);
        let ours = ours.unwrap_or_else(|| panic!("no events about {subject}"));
        assert_eq!(events, ours, "events about {subject}");
    }
}

#[test]
fn conditions_come_in_the_recorded_order() {
    let order = |timeline: &Timeline| -> Vec<Vec<String>> {
        let mut orders = Vec::new();
        for version in timeline.pods.values().flatten() {
            let types = version["status"]["conditions"].as_array();
            let types: Vec<String> = types
                .map(|list| list.iter().map(|c| c["type"].to_string()).collect())
                .unwrap_or_default();
            if !orders.contains(&types) {
                orders.push(types);
            }
        }
        orders.sort();
        orders
    };
    assert_eq!(order(&recorded()), order(&simulated()));
}

#[test]
fn a_node_has_the_recorded_fields() {
    let store = Store::default();
    let node_set = NodeSet::new(1, "real", Seed::new(11));
    let mut workload = Workload::new(
        WorkloadConfig::default(),
        Arc::clone(&node_set),
        Seed::new(7),
    );
    workload.populate(at(START), &store);
    let ours = store.list(Resource::Nodes).remove(0);
    let theirs: Value = serde_json::from_str(&fixture("node.json")).unwrap();
    let mut missing = Vec::new();
    paths(&theirs, &ours, "", &mut missing);
    missing.retain(|path| {
        // Set by the store; features that these kubelets do not have.
        path != ".metadata.resourceVersion" && !path.starts_with(".status.declaredFeatures")
    });
    assert_eq!(missing, Vec::<String>::new());
    let conditions = |node: &Value| -> Vec<[String; 4]> {
        let list = node["status"]["conditions"].as_array().unwrap().iter();
        list.map(|c| ["type", "status", "reason", "message"].map(|key| c[key].to_string()))
            .collect()
    };
    assert_eq!(conditions(&ours), conditions(&theirs));
}

/// Collects the paths that `expected` has and `actual` lacks.
pub(crate) fn paths(expected: &Value, actual: &Value, at: &str, missing: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (key, value) in expected {
                let path = format!("{at}.{key}");
                match actual.get(key) {
                    Some(actual) => paths(value, actual, &path, missing),
                    None => missing.push(path),
                }
            }
        }
        (Value::Array(expected), Value::Array(actual)) => {
            if let (Some(expected), Some(actual)) = (expected.first(), actual.first()) {
                paths(expected, actual, &format!("{at}[]"), missing);
            } else if !expected.is_empty() {
                missing.push(format!("{at}[]"));
            }
        }
        _ if std::mem::discriminant(expected) != std::mem::discriminant(actual) => {
            missing.push(format!("{at} (of another type)"));
        }
        _ => {}
    }
}

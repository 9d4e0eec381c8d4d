//! The cells of an object's row.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::workloads;
use crate::objects::Resource;

/// Returns the cells of an object, one for each column of its resource.
pub(super) fn cells(resource: Resource, object: &Value, now: SystemTime) -> Vec<Value> {
    let name = text(object, "/metadata/name");
    let age = age(object, "/metadata/creationTimestamp", now);
    match resource {
        Resource::Nodes => node(object, name, age),
        Resource::Pods => workloads::pod(object, name, age, now),
        Resource::Events => event(object, &name, now),
        Resource::Namespaces => texts([name, text(object, "/status/phase"), age]),
        Resource::Services => service(object, name, age),
        Resource::Endpoints => texts([name, endpoints(object), age]),
        Resource::EndpointSlices => endpoint_slice(object, name, age),
        Resource::ConfigMaps => {
            let count = members(object, "/data") + members(object, "/binaryData");
            vec![json!(name), json!(count), json!(age)]
        }
        Resource::Secrets => {
            vec![
                json!(name),
                json!(text(object, "/type")),
                json!(members(object, "/data")),
                json!(age),
            ]
        }
        Resource::DaemonSets
        | Resource::Deployments
        | Resource::ReplicaSets
        | Resource::ReplicationControllers
        | Resource::StatefulSets => workloads::replicated(resource, object, &name, &age),
        Resource::Jobs => workloads::job(object, name, age, now),
        Resource::Leases => texts([name, text(object, "/spec/holderIdentity"), age]),
        Resource::ApiServices => api_service(object, name, age),
        Resource::CronJobs => {
            let suspended = flag(object, "/spec/suspend").to_string();
            texts([
                name,
                text(object, "/spec/schedule"),
                capitalized(&suspended),
                age,
            ])
        }
        Resource::PersistentVolumeClaims => texts([
            name,
            text(object, "/status/phase"),
            text(object, "/spec/volumeName"),
            age,
        ]),
        Resource::PersistentVolumes => texts([
            name,
            text(object, "/spec/persistentVolumeReclaimPolicy"),
            text(object, "/status/phase"),
            age,
        ]),
        Resource::ServiceAccounts | Resource::ResourceQuotas | Resource::LimitRanges => {
            texts([name, age])
        }
    }
}

fn node(object: &Value, name: String, age: String) -> Vec<Value> {
    let mut status = vec![match condition(object, "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if flag(object, "/spec/unschedulable") {
        status.push("SchedulingDisabled");
    }
    let mut roles: Vec<&str> = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) if !role.is_empty() => Some(role),
                _ if key == "kubernetes.io/role" => value.as_str().filter(|role| !role.is_empty()),
                _ => None,
            },
        )
        .collect();
    roles.sort_unstable();
    let address = |kind: &str| {
        list(object, "/status/addresses")
            .find(|address| address["type"] == kind)
            .map(|address| text(address, "/address"))
            .unwrap_or_default()
    };
    let info = |member: &str| text(object, &format!("/status/nodeInfo/{member}"));
    let mut kernel = or(info("kernelVersion"), "<unknown>");
    let architecture = info("architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    texts([
        name,
        status.join(","),
        or(roles.join(","), "<none>"),
        age,
        info("kubeletVersion"),
        or(address("InternalIP"), "<none>"),
        or(address("ExternalIP"), "<none>"),
        or(info("osImage"), "<unknown>"),
        kernel,
        or(info("containerRuntimeVersion"), "<unknown>"),
    ])
}

fn event(object: &Value, name: &str, now: SystemTime) -> Vec<Value> {
    let mut first = age(object, "/firstTimestamp", now);
    if first == UNKNOWN {
        first = age(object, "/eventTime", now);
    }
    let mut last = age(object, "/lastTimestamp", now);
    if last == UNKNOWN {
        last.clone_from(&first);
    }
    let mut count = integer(object, "/count").max(1);
    if object.get("series").is_some_and(Value::is_object) {
        last = age(object, "/series/lastObservedTime", now);
        count = integer(object, "/series/count");
    }
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let involved = text(object, "/involvedObject/name");
    let target = if involved.is_empty() {
        kind
    } else {
        format!("{kind}/{involved}")
    };
    let component = or(
        text(object, "/source/component"),
        &text(object, "/reportingComponent"),
    );
    let instance = or(
        text(object, "/source/host"),
        &text(object, "/reportingInstance"),
    );
    let source = if instance.is_empty() {
        component
    } else {
        format!("{component}, {instance}")
    };
    vec![
        json!(last),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(target),
        json!(text(object, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(object, "/message").trim()),
        json!(first),
        json!(count),
        json!(name),
    ]
}

fn service(object: &Value, name: String, age: String) -> Vec<Value> {
    let ports: Vec<String> = list(object, "/spec/ports")
        .map(|port| {
            let protocol = or(text(port, "/protocol"), "TCP");
            match integer(port, "/nodePort") {
                0 => format!("{}/{protocol}", integer(port, "/port")),
                node_port => format!("{}:{node_port}/{protocol}", integer(port, "/port")),
            }
        })
        .collect();
    let kind = or(text(object, "/spec/type"), "ClusterIP");
    let mut external: Vec<String> = list(object, "/spec/externalIPs")
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    if kind == "LoadBalancer" {
        external.extend(
            list(object, "/status/loadBalancer/ingress")
                .map(|ingress| or(text(ingress, "/ip"), &text(ingress, "/hostname"))),
        );
        if external.is_empty() {
            external.push("<pending>".to_owned());
        }
    } else if kind == "ExternalName" {
        external = vec![text(object, "/spec/externalName")];
    }
    texts([
        name,
        kind,
        or(text(object, "/spec/clusterIP"), "<none>"),
        or(external.join(","), "<none>"),
        or(ports.join(","), "<none>"),
        age,
        labels(object, "/spec/selector"),
    ])
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        let ports: Vec<i64> = list(subset, "/ports")
            .map(|port| integer(port, "/port"))
            .collect();
        for address in list(subset, "/addresses") {
            let address = text(address, "/ip");
            if ports.is_empty() {
                all.push(address.clone());
            }
            all.extend(ports.iter().map(|port| format!("{address}:{port}")));
        }
    }
    some_of(&all, "<none>")
}

fn endpoint_slice(object: &Value, name: String, age: String) -> Vec<Value> {
    let ports: Vec<String> = list(object, "/ports")
        .map(|port| integer(port, "/port").to_string())
        .collect();
    let addresses: Vec<String> = list(object, "/endpoints")
        .flat_map(|endpoint| list(endpoint, "/addresses"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    texts([
        name,
        text(object, "/addressType"),
        some_of(&ports, "<unset>"),
        some_of(&addresses, "<unset>"),
        age,
    ])
}

fn api_service(object: &Value, name: String, age: String) -> Vec<Value> {
    let service = match object.pointer("/spec/service") {
        Some(service) if service.is_object() => {
            format!("{}/{}", text(service, "/namespace"), text(service, "/name"))
        }
        _ => "Local".to_owned(),
    };
    let available = list(object, "/status/conditions")
        .find(|condition| condition["type"] == "Available")
        .map_or_else(
            || "Unknown".to_owned(),
            |condition| match text(condition, "/status").as_str() {
                "True" => "True".to_owned(),
                status => format!("{status} ({})", text(condition, "/reason")),
            },
        );
    texts([name, service, available, age])
}

/// Printed if there is no time to compute an age from.
const UNKNOWN: &str = "<unknown>";

/// Returns the age of a time in an object.
pub(super) fn age(object: &Value, pointer: &str, now: SystemTime) -> String {
    match time(object, pointer) {
        None => UNKNOWN.to_owned(),
        Some(then) => now
            .duration_since(then)
            .map_or_else(|error| future(error.duration()), human_duration),
    }
}

/// Returns a time in an object.
pub(super) fn time(object: &Value, pointer: &str) -> Option<SystemTime> {
    let text = object.pointer(pointer)?.as_str()?;
    text.parse::<jiff::Timestamp>().ok().map(SystemTime::from)
}

fn future(ahead: Duration) -> String {
    if ahead.as_secs() > 1 {
        "<invalid>".to_owned()
    } else {
        "0s".to_owned()
    }
}

/// Formats a duration with two or three significant figures.
pub(super) fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |whole: u64, unit: &str, rest: u64, small: &str| {
        if rest == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{rest}{small}")
        }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// Returns the status of a condition.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    list(object, "/status/conditions")
        .find(|condition| condition["type"] == kind)
        .and_then(|condition| condition["status"].as_str())
}

pub(super) fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

pub(super) fn integer(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    object
        .pointer(pointer)
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

pub(super) fn or(text: String, default: &str) -> String {
    if text.is_empty() {
        default.to_owned()
    } else {
        text
    }
}

/// Formats `key=value` pairs.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let pairs: Vec<String> = object
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or(pairs.join(","), "<none>")
}

pub(super) fn texts<const N: usize>(cells: [String; N]) -> Vec<Value> {
    cells.into_iter().map(Value::String).collect()
}

fn members(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

/// Lists the first three, and the number of the others.
fn some_of(all: &[String], none: &str) -> String {
    const SHOWN: usize = 3;
    match all {
        [] => none.to_owned(),
        [a, b, c, rest @ ..] if !rest.is_empty() => {
            format!("{a},{b},{c} + {} more...", all.len() - SHOWN)
        }
        all => all.join(","),
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

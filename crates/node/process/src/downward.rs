//! The downward API: fields of the pod and resources of its containers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::str::FromStr as _;

use k8s_openapi::api::core::v1::{Pod, ResourceFieldSelector};
use kubevitals_model::Quantity;

use crate::config::ProcessConfig;
use crate::error::ProcessError;
use crate::resources::{bytes, milli_cpu};
use crate::state::container;

/// The value of a field; unsupported paths are an error.
pub(crate) fn field(pod: &Pod, path: &str, config: &ProcessConfig) -> Result<String, ProcessError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let addresses = |all: &[IpAddr]| {
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        all.join(",")
    };
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return Err(unsupported(path)),
        };
        return Ok(text(map.and_then(|map| map.get(key))));
    }
    Ok(match path {
        "metadata.name" => text(meta.name.as_ref()),
        "metadata.namespace" => text(meta.namespace.as_ref()),
        "metadata.uid" => text(meta.uid.as_ref()),
        "metadata.labels" => format_map(meta.labels.as_ref()),
        "metadata.annotations" => format_map(meta.annotations.as_ref()),
        "spec.nodeName" => config.node_name.clone(),
        "spec.serviceAccountName" => text(spec.and_then(|one| one.service_account_name.as_ref())),
        "status.hostIP" | "status.podIP" => config
            .node_ips
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
        "status.hostIPs" | "status.podIPs" => addresses(&config.node_ips),
        _ => return Err(unsupported(path)),
    })
}

/// The value of a resource, divided and rounded up.
pub(crate) fn resource(
    pod: &Pod,
    own_container: &str,
    selector: &ResourceFieldSelector,
    config: &ProcessConfig,
) -> Result<String, ProcessError> {
    let name = selector.container_name.as_deref().unwrap_or(own_container);
    let Some((_, container)) = container(pod, name) else {
        let message = format!("container {name:?} not found");
        return Err(ProcessError::Config(message));
    };
    // In thousandths, so that CPU and bytes divide alike.
    let milli = match selector.resource.as_str() {
        "limits.cpu" => u128::from(milli_cpu(container, true).unwrap_or(config.cpu_milli)),
        "requests.cpu" => u128::from(milli_cpu(container, false).unwrap_or(0)),
        "limits.memory" => u128::from(bytes(container, true).unwrap_or(config.memory_bytes)) * 1000,
        "requests.memory" => u128::from(bytes(container, false).unwrap_or(0)) * 1000,
        other => {
            let message = format!("unsupported container resource: {other}");
            return Err(ProcessError::Config(message));
        }
    };
    let divisor = selector.divisor.as_ref().map_or("0", |one| one.0.as_str());
    let divisor = Quantity::from_str(divisor)
        .ok()
        .and_then(Quantity::milli_value)
        .and_then(|one| u128::try_from(one).ok())
        .filter(|one| *one > 0)
        .unwrap_or(1000);
    Ok(milli.div_ceil(divisor).to_string())
}

/// `metadata.labels['key']` in its parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// One line for each pair, in order.
fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let mut out = String::new();
    for (index, (key, value)) in map.into_iter().flatten().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        // Writing to a String does not fail.
        let _ = write!(out, "{key}={value:?}");
    }
    out
}

fn unsupported(path: &str) -> ProcessError {
    ProcessError::Config(format!("unsupported fieldPath: {path}"))
}

//! Prepares an object of a client for the store: names, identity, and fields that it may not
//! change.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

use serde_json::{Map, Value, json};

use super::context::ApiContext;
use super::list::{namespace, parse_version};
use super::request::Target;
use super::resources::{self, ResourceInfo};
use super::status::ApiError;
use crate::objects::{Resource, TOPOLOGY_REGION, TOPOLOGY_ZONE};
use crate::store::{Precondition, Store};

/// Prepares a new object.
pub(crate) fn for_creation(
    context: &ApiContext,
    info: &ResourceInfo,
    target: &Target,
    object: Map<String, Value>,
) -> Result<Value, ApiError> {
    check_kind(info, &object)?;
    let mut object = Value::Object(object);
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let namespace = namespace(info, target);
    let metadata = &mut object["metadata"];
    if !metadata["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let given = metadata["namespace"].as_str().unwrap_or_default();
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(NAMESPACE_MISMATCH));
    }
    if info.namespaced {
        let namespaces = resources::info(Resource::Namespaces);
        if context.store.get(Resource::Namespaces, namespace).is_none() {
            return Err(ApiError::not_found(namespaces, namespace));
        }
        metadata["namespace"] = json!(namespace);
    }
    if metadata["name"].as_str().unwrap_or_default().is_empty() {
        let base = metadata["generateName"].as_str().unwrap_or_default();
        if base.is_empty() {
            let problem = "metadata.name: Required value: name or generateName is required";
            return Err(ApiError::invalid(info, "", problem));
        }
        metadata["name"] = json!(context.store.generate_name(base));
    }
    check_name(info, metadata["name"].as_str().unwrap_or_default())?;
    if let Some(metadata) = metadata.as_object_mut() {
        for stamped in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "generation",
        ] {
            metadata.remove(stamped);
        }
        if info.has_generation {
            metadata.insert("generation".to_owned(), json!(1));
        }
    }
    match info.resource {
        Resource::Pods => {
            object["status"] = json!({"phase": "Pending"});
            copy_topology_labels(&context.store, &mut object);
        }
        Resource::Namespaces => {
            object["spec"] = json!({"finalizers": []});
            object["status"] = json!({"phase": "Active"});
        }
        // A kubelet creates its node with a status.
        Resource::Nodes => {}
        _ if info.has_status => object["status"] = json!({}),
        _ => {}
    }
    Ok(object)
}

/// Copies the topology labels of its node to a pod, as the admission plugin `PodTopologyLabels`
/// does since Kubernetes 1.35. Nothing is copied if the pod is not bound or the node does not
/// exist.
pub(crate) fn copy_topology_labels(store: &Store, pod: &mut Value) {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let Some(node) = store.get(Resource::Nodes, node) else {
        return;
    };
    let labels = &mut pod["metadata"]["labels"];
    if labels.is_null() {
        *labels = json!({});
    }
    for key in [TOPOLOGY_REGION, TOPOLOGY_ZONE] {
        if let (Some(labels), Some(value)) = (labels.as_object_mut(), node.label(key)) {
            labels.insert(key.to_owned(), json!(value));
        }
    }
}

/// Prepares an update: the object keeps its identity and the half that the path does not write.
pub(crate) fn for_update(
    info: &ResourceInfo,
    target: &Target,
    old: &Value,
    object: Map<String, Value>,
) -> Result<Value, ApiError> {
    check_names(info, target, &object)?;
    let mut new = Value::Object(object);
    let uid = new["metadata"]["uid"].as_str().unwrap_or_default();
    let old_uid = old["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != old_uid {
        return Err(ApiError::conflict(
            info,
            &target.name,
            &uid_mismatch(uid, old_uid),
        ));
    }
    for kept in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "managedFields",
    ] {
        match old["metadata"].get(kept) {
            Some(value) => new["metadata"][kept] = value.clone(),
            None => {
                if let Some(metadata) = new["metadata"].as_object_mut() {
                    metadata.remove(kept);
                }
            }
        }
    }
    if target.subresource == "status" {
        let status = new.get("status").cloned();
        let metadata = new["metadata"].take();
        new = old.clone();
        new["metadata"] = metadata;
        if let Some(status) = status {
            new["status"] = status;
        }
    } else if info.has_status {
        match old.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => {
                if let Some(new) = new.as_object_mut() {
                    new.remove("status");
                }
            }
        }
    }
    if info.has_generation && new.get("spec") != old.get("spec") {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
        new["metadata"]["generation"] = json!(generation + 1);
    }
    Ok(new)
}

/// Returns the version that an update expects to replace.
pub(crate) fn precondition(
    info: &ResourceInfo,
    name: &str,
    object: &Map<String, Value>,
) -> Result<Precondition, ApiError> {
    let version = object
        .get("metadata")
        .and_then(|metadata| metadata.get("resourceVersion"))
        .and_then(Value::as_str)
        .unwrap_or_default();
    match parse_version(version)? {
        Some(version) if version > 0 => Ok(Precondition::Version(version)),
        _ if info.resource == Resource::Leases => Err(ApiError::invalid(
            info,
            name,
            "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        )),
        _ => Ok(Precondition::Present),
    }
}

/// Checks the preconditions of a deletion.
pub(crate) fn check_preconditions(
    info: &ResourceInfo,
    name: &str,
    object: &Value,
    preconditions: &Value,
) -> Result<(), ApiError> {
    let metadata = &object["metadata"];
    if let Some(uid) = preconditions["uid"].as_str()
        && metadata["uid"] != uid
    {
        let problem = uid_mismatch(uid, metadata["uid"].as_str().unwrap_or_default());
        return Err(ApiError::conflict(info, name, &problem));
    }
    if let Some(version) = preconditions["resourceVersion"].as_str()
        && metadata["resourceVersion"] != version
    {
        let problem = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            metadata["resourceVersion"].as_str().unwrap_or_default()
        );
        return Err(ApiError::conflict(info, name, &problem));
    }
    Ok(())
}

/// Checks that an object matches the name and namespace of its path.
pub(crate) fn check_names(
    info: &ResourceInfo,
    target: &Target,
    object: &Map<String, Value>,
) -> Result<(), ApiError> {
    check_kind(info, object)?;
    let member = |name: &str| {
        object
            .get("metadata")
            .and_then(|metadata| metadata.get(name))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let name = member("name");
    if !name.is_empty() && name != target.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let given = member("namespace");
    if !given.is_empty() && given != namespace(info, target) {
        return Err(ApiError::bad_request(NAMESPACE_MISMATCH));
    }
    Ok(())
}

const NAMESPACE_MISMATCH: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

/// Checks that the parts that later code writes to are objects.
pub(crate) fn check_shape(object: &Map<String, Value>) -> Result<(), ApiError> {
    for part in ["metadata", "spec", "status"] {
        if object
            .get(part)
            .is_some_and(|value| !value.is_object() && !value.is_null())
        {
            return Err(ApiError::bad_request(format!("{part} is not an object")));
        }
    }
    Ok(())
}

fn check_kind(info: &ResourceInfo, object: &Map<String, Value>) -> Result<(), ApiError> {
    check_shape(object)?;
    let is = |member: &str, expected: &str| {
        object
            .get(member)
            .and_then(Value::as_str)
            .is_none_or(|given| given.is_empty() || given == expected)
    };
    let api_version = info.api_version();
    if is("kind", info.kind) && is("apiVersion", &api_version) {
        return Ok(());
    }
    let text = |member: &str| {
        object
            .get(member)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Err(ApiError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: the path is for {api_version}",
        text("kind"),
        text("apiVersion"),
        info.kind
    )))
}

/// Checks for a DNS subdomain; kinds with other rules are not distinguished.
fn check_name(info: &ResourceInfo, name: &str) -> Result<(), ApiError> {
    let is_good = name.len() <= 253
        && name.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        });
    if is_good {
        return Ok(());
    }
    Err(ApiError::invalid(
        info,
        name,
        &format!(
            "metadata.name: Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        ),
    ))
}

fn uid_mismatch(expected: &str, found: &str) -> String {
    format!("Precondition failed: UID in precondition: {expected}, UID in object meta: {found}")
}

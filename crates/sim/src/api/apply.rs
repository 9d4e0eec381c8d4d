//! Server-side apply for the kinds that clients of the simulator apply: field ownership and
//! conflicts.
//!
//! Ownership is tracked for [`Manager`]s that write through the API. Objects that a simulated
//! controller writes directly have no owner, so that applying to them causes no conflict. A list is
//! one field, except for those that Kubernetes merges by key (conditions, addresses, owners).

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

mod fields;

use std::time::SystemTime;

use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

use self::fields::{FieldSet, Path};
use super::request::Target;
use super::resources::ResourceInfo;
use super::status::ApiError;
use crate::objects::Resource;
use crate::store::timestamp;

/// A field manager, and the subresource that it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manager {
    name: String,
    subresource: String,
}

impl Manager {
    /// Returns the manager that a request names, or else the program that sends it.
    pub(crate) fn of(parameter: &str, headers: &HeaderMap, target: &Target) -> Self {
        let agent = headers
            .get(USER_AGENT)
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default();
        let program = agent.split('/').next().unwrap_or_default();
        let name = if parameter.is_empty() {
            program
        } else {
            parameter
        };
        Self {
            name: name.to_owned(),
            subresource: target.subresource.clone(),
        }
    }

    fn is(&self, entry: &Value, operation: &str) -> bool {
        entry["manager"] == self.name.as_str()
            && entry["operation"] == operation
            && entry["subresource"].as_str().unwrap_or_default() == self.subresource
    }

    fn entry(&self, operation: &str, api_version: &str, now: SystemTime, set: &FieldSet) -> Value {
        let mut entry = json!({
            "manager": self.name, "operation": operation, "apiVersion": api_version,
            "time": timestamp(now), "fieldsType": "FieldsV1", "fieldsV1": set.to_value(),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }
}

/// Whether ownership of fields is tracked for a resource.
fn is_tracked(info: &ResourceInfo) -> bool {
    matches!(
        info.resource,
        Resource::Nodes
            | Resource::Pods
            | Resource::Leases
            | Resource::ConfigMaps
            | Resource::Secrets
            | Resource::ApiServices
    )
}

/// Updates the owners after an ordinary write.
pub(crate) fn track(
    info: &ResourceInfo,
    old: Option<&Value>,
    new: &mut Value,
    manager: &Manager,
    now: SystemTime,
) {
    if !is_tracked(info) {
        return;
    }
    let after = FieldSet::of(new);
    let before = old.map(FieldSet::of).unwrap_or_default();
    let mut changed = FieldSet::default();
    for path in after.iter() {
        if old.and_then(|old| fields::get(old, path)) != fields::get(new, path) {
            changed.insert(path.clone());
        }
    }
    let gone: Vec<Path> = before
        .iter()
        .filter(|path| !after.contains(path))
        .cloned()
        .collect();
    if changed.is_empty() && gone.is_empty() {
        return;
    }
    let mut entries = managed(new);
    let mut own = FieldSet::default();
    entries.retain_mut(|entry| {
        let mut set = FieldSet::parse(&entry["fieldsV1"]);
        set.retain(|path| !gone.contains(path));
        if manager.is(entry, "Update") {
            own = set;
            return false;
        }
        set.retain(|path| !changed.contains(path));
        entry["fieldsV1"] = set.to_value();
        !set.is_empty()
    });
    for path in changed.iter() {
        own.insert(path.clone());
    }
    if !own.is_empty() {
        entries.push(manager.entry("Update", &info.api_version(), now, &own));
    }
    set_managed(new, entries);
}

/// Returns the object after an apply, with its new owners.
pub(crate) fn apply(
    info: &ResourceInfo,
    old: Option<&Value>,
    applied: &Map<String, Value>,
    manager: &Manager,
    force: bool,
    now: SystemTime,
) -> Result<Map<String, Value>, ApiError> {
    if !is_tracked(info) {
        return Err(ApiError::unsupported_media_type(
            "application/json-patch+json, application/merge-patch+json (this kind cannot be applied to the simulated API server)",
        ));
    }
    let applied = Value::Object(applied.clone());
    let name = applied["metadata"]["name"].as_str().unwrap_or_default();
    if applied["metadata"]["managedFields"]
        .as_array()
        .is_some_and(|list| !list.is_empty())
    {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if let (Some(version), Some(old)) = (applied["metadata"]["resourceVersion"].as_str(), old)
        && old["metadata"]["resourceVersion"] != version
    {
        return Err(ApiError::conflict(info, name, super::status::MODIFIED));
    }
    let mut applied_fields = FieldSet::of(&applied);
    // The main resource and the status subresource each write their own half of the object.
    let other_half = match (manager.subresource.as_str(), info.has_status) {
        ("status", _) => Some("f:spec"),
        (_, true) => Some("f:status"),
        _ => None,
    };
    applied_fields
        .retain(|path| path.first().map(String::as_str) != other_half || other_half.is_none());

    let mut new = old
        .cloned()
        .unwrap_or_else(|| json!({"metadata": applied["metadata"].clone()}));
    let mut entries = managed(&new);
    let mut mine = FieldSet::default();
    let mut mine_before = None;
    entries.retain(|entry| {
        let is_mine = manager.is(entry, "Apply");
        if is_mine {
            mine = FieldSet::parse(&entry["fieldsV1"]);
            mine_before = Some(entry.clone());
        }
        !is_mine
    });
    let conflicts = conflicts(&new, &applied, &applied_fields, &entries);
    if !conflicts.is_empty() {
        if !force {
            return Err(conflict_error(&conflicts));
        }
        entries.retain_mut(|entry| {
            let mut set = FieldSet::parse(&entry["fieldsV1"]);
            set.retain(|path| {
                !conflicts
                    .iter()
                    .any(|conflict| fields::overlap(path, &conflict.path))
            });
            entry["fieldsV1"] = set.to_value();
            !set.is_empty()
        });
    }
    let others: Vec<FieldSet> = entries
        .iter()
        .map(|entry| FieldSet::parse(&entry["fieldsV1"]))
        .collect();
    for path in mine.iter().filter(|path| !applied_fields.contains(path)) {
        if !others
            .iter()
            .any(|set| set.iter().any(|other| fields::is_shared(path, other)))
        {
            fields::remove(&mut new, path);
        }
    }
    for path in applied_fields.iter() {
        if let Some(value) = fields::get(&applied, path) {
            fields::set(&mut new, path, value.clone());
        }
    }
    // Applying the same configuration again must change nothing, not even a timestamp.
    entries.push(match mine_before {
        Some(before) if mine == applied_fields && old.is_some_and(|old| same_fields(old, &new)) => {
            before
        }
        _ => manager.entry("Apply", &info.api_version(), now, &applied_fields),
    });
    set_managed(&mut new, entries);
    match new {
        Value::Object(new) => Ok(new),
        _ => Ok(Map::new()),
    }
}

struct Conflict {
    manager: String,
    api_version: String,
    path: Path,
}

/// Fields that another manager owns and that would change.
fn conflicts(
    current: &Value,
    applied: &Value,
    applied_fields: &FieldSet,
    entries: &[Value],
) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    for entry in entries {
        let theirs = FieldSet::parse(&entry["fieldsV1"]);
        for path in applied_fields.iter() {
            let is_theirs = theirs.iter().any(|other| fields::overlap(path, other));
            let differs = fields::get(current, path) != fields::get(applied, path);
            if is_theirs && differs {
                conflicts.push(Conflict {
                    manager: entry["manager"].as_str().unwrap_or_default().to_owned(),
                    api_version: entry["apiVersion"].as_str().unwrap_or_default().to_owned(),
                    path: path.clone(),
                });
            }
        }
    }
    conflicts
}

fn conflict_error(conflicts: &[Conflict]) -> ApiError {
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {:?} using {}", conflict.manager, conflict.api_version),
                "field": fields::display(&conflict.path),
            })
        })
        .collect();
    let lines: Vec<String> = conflicts
        .iter()
        .map(|conflict| {
            format!(
                "conflict with {:?} using {}: {}",
                conflict.manager,
                conflict.api_version,
                fields::display(&conflict.path)
            )
        })
        .collect();
    let plural = if conflicts.len() == 1 {
        "conflict"
    } else {
        "conflicts"
    };
    let message = format!(
        "Apply failed with {} {plural}: {}",
        conflicts.len(),
        lines.join("\n")
    );
    ApiError::new(StatusCode::CONFLICT, "Conflict", message).causes(json!(causes))
}

fn same_fields(old: &Value, new: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        object
    };
    bare(old) == bare(new)
}

fn managed(object: &Value) -> Vec<Value> {
    object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

fn set_managed(object: &mut Value, entries: Vec<Value>) {
    object["metadata"]["managedFields"] = Value::Array(entries);
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::api::resources;

    fn manager(name: &str) -> Manager {
        Manager {
            name: name.to_owned(),
            subresource: "status".to_owned(),
        }
    }

    fn apply_status(
        old: &Value,
        applied: &Value,
        name: &str,
        force: bool,
    ) -> Result<Value, ApiError> {
        let info = resources::info(Resource::Nodes);
        apply(
            info,
            Some(old),
            applied.as_object().unwrap(),
            &manager(name),
            force,
            UNIX_EPOCH,
        )
        .map(Value::Object)
    }

    fn ready(status: &str) -> Value {
        json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": status}]}})
    }

    #[test]
    fn managers_own_their_conditions() {
        let node = json!({"metadata": {"name": "n"}, "status": {"phase": "x"}});
        let node = apply_status(&node, &ready("True"), "kubelet", false).unwrap();
        let other = json!({"status": {"conditions": [{"type": "Disk", "status": "False"}]}});
        let node = apply_status(&node, &other, "prober", false).unwrap();
        assert_eq!(node["status"]["conditions"].as_array().unwrap().len(), 2);
        assert_eq!(node["status"]["phase"], "x");
        // The same value is shared ownership, another value is a conflict.
        apply_status(&node, &ready("True"), "prober2", false).unwrap();
        let error = apply_status(&node, &ready("False"), "prober2", false).unwrap_err();
        assert_eq!(error.code, 409);
        assert_eq!(
            error.message(),
            "Apply failed with 1 conflict: conflict with \"kubelet\" using v1: .status.conditions[type=\"Ready\"].status"
        );
        let node = apply_status(&node, &ready("False"), "prober2", true).unwrap();
        assert_eq!(node["status"]["conditions"][0]["status"], "False");
        // The former owner has lost the field and now gets a conflict itself.
        assert_eq!(
            apply_status(&node, &ready("True"), "kubelet", false)
                .unwrap_err()
                .code,
            409
        );
    }

    #[test]
    fn fields_no_longer_applied_are_removed() {
        let node = json!({"metadata": {"name": "n"}, "status": {"phase": "x"}});
        let first = json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}], "capacity": {"cpu": "1"}}});
        let node = apply_status(&node, &first, "m", false).unwrap();
        let second = json!({"status": {"conditions": [{"type": "B", "status": "True"}]}});
        let node = apply_status(&node, &second, "m", false).unwrap();
        assert_eq!(
            node["status"]["conditions"],
            json!([{"type": "B", "status": "True"}])
        );
        assert_eq!(node["status"]["capacity"].get("cpu"), None);
        assert_eq!(node["status"]["phase"], "x");
    }

    #[test]
    fn applying_the_same_again_changes_nothing() {
        let node = json!({"metadata": {"name": "n"}});
        let once = apply_status(&node, &ready("True"), "m", false).unwrap();
        let info = resources::info(Resource::Nodes);
        let later = UNIX_EPOCH + std::time::Duration::from_mins(1);
        let twice = apply(
            info,
            Some(&once),
            ready("True").as_object().unwrap(),
            &manager("m"),
            false,
            later,
        )
        .unwrap();
        assert_eq!(Value::Object(twice), once);
    }

    #[test]
    fn an_update_takes_over_fields() {
        let info = resources::info(Resource::Nodes);
        let node = apply_status(
            &json!({"metadata": {"name": "n"}}),
            &ready("True"),
            "m",
            false,
        )
        .unwrap();
        let mut updated = node.clone();
        updated["status"]["conditions"][0]["status"] = json!("Unknown");
        track(
            info,
            Some(&node),
            &mut updated,
            &manager("controller"),
            UNIX_EPOCH,
        );
        let error = apply_status(&updated, &ready("True"), "m", false).unwrap_err();
        assert!(
            error.message().contains("controller"),
            "{}",
            error.message()
        );
    }
}

//! Merge patches and JSON patches.

use serde_json::{Map, Value};

use super::status::ApiError;
use http::StatusCode;

/// Limit of operations in a JSON patch, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;

/// The format of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    StrategicMerge,
    Apply,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Patch {
    Merge(Value),
    Json(Vec<Value>),
}

impl PatchKind {
    pub(crate) fn of(media_type: &str) -> Result<Self, ApiError> {
        match media_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::StrategicMerge),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(ApiError::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }
}

impl Patch {
    /// Parses a patch. A strategic merge patch is accepted if it is equivalent to a merge patch,
    /// that is, if it has no lists and no directives.
    pub(crate) fn parse(kind: PatchKind, bytes: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
        match (kind, value) {
            (PatchKind::Json, Value::Array(operations)) if operations.len() <= MAX_OPERATIONS => {
                Ok(Self::Json(operations))
            }
            (PatchKind::StrategicMerge, patch) if !is_plain(&patch) => {
                Err(ApiError::unsupported_media_type(
                    "application/json-patch+json, application/merge-patch+json (strategic merge patches with lists or directives are not understood by the simulated API server)",
                ))
            }
            (PatchKind::Merge | PatchKind::StrategicMerge, patch @ Value::Object(_)) => {
                Ok(Self::Merge(patch))
            }
            _ => Err(ApiError::bad_request(
                "error decoding patch: it has not the form of its kind",
            )),
        }
    }

    /// Returns the patched object.
    pub(crate) fn apply(&self, object: &Value) -> Result<Value, ApiError> {
        let mut object = object.clone();
        match self {
            Self::Merge(patch) => merge(&mut object, patch),
            Self::Json(operations) => {
                for operation in operations {
                    operate(&mut object, operation).map_err(|problem| {
                        ApiError::new(
                            StatusCode::UNPROCESSABLE_ENTITY,
                            "Invalid",
                            format!("the server rejected our request due to an error in our request: {problem}"),
                        )
                    })?;
                }
            }
        }
        Ok(object)
    }

    /// Whether the patch names a resource version.
    pub(crate) fn names_version(&self) -> bool {
        match self {
            Self::Merge(patch) => patch
                .pointer("/metadata/resourceVersion")
                .is_some_and(Value::is_string),
            Self::Json(operations) => operations.iter().any(|operation| {
                operation["path"] == "/metadata/resourceVersion" && operation["op"] != "test"
            }),
        }
    }
}

/// Whether a strategic merge patch is equivalent to a merge patch.
fn is_plain(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => false,
        Value::Object(members) => members
            .iter()
            .all(|(name, value)| !name.starts_with('$') && is_plain(value)),
        _ => true,
    }
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Some(members) = target.as_object_mut() {
        for (name, value) in patch {
            if value.is_null() {
                members.remove(name);
            } else {
                merge(members.entry(name).or_insert(Value::Null), value);
            }
        }
    }
}

/// RFC 6902.
fn operate(object: &mut Value, operation: &Value) -> Result<(), String> {
    let member = |name: &str| {
        operation[name]
            .as_str()
            .ok_or_else(|| format!("an operation lacks {name:?}"))
    };
    let value = || {
        operation
            .get("value")
            .cloned()
            .ok_or_else(|| "an operation lacks \"value\"".to_owned())
    };
    let path = member("path")?;
    match member("op")? {
        "add" => add(object, path, value()?),
        "remove" => remove(object, path).map(drop),
        "replace" => {
            let slot = object.pointer_mut(path).ok_or_else(|| missing(path))?;
            *slot = value()?;
            Ok(())
        }
        "move" => {
            let from = member("from")?;
            if path.starts_with(&format!("{from}/")) {
                return Err(format!("{from:?} cannot be moved into itself"));
            }
            let moved = remove(object, from)?;
            add(object, path, moved)
        }
        "copy" => {
            let from = member("from")?;
            let copied = object.pointer(from).cloned().ok_or_else(|| missing(from))?;
            add(object, path, copied)
        }
        "test" => {
            let found = object.pointer(path).unwrap_or(&Value::Null);
            if *found == value()? {
                Ok(())
            } else {
                Err(format!("testing value {path} failed"))
            }
        }
        other => Err(format!("unknown operation {other:?}")),
    }
}

fn missing(path: &str) -> String {
    format!("nothing is at {path:?}")
}

fn split(path: &str) -> Result<(&str, String), String> {
    let (parent, last) = path
        .rsplit_once('/')
        .ok_or_else(|| format!("{path:?} is no path"))?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *object = value;
        return Ok(());
    }
    let (parent, last) = split(path)?;
    match object.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.insert(last, value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let index = if last == "-" {
                items.len()
            } else {
                index(&last)
                    .filter(|index| *index <= items.len())
                    .ok_or_else(|| missing(path))?
            };
            items.insert(index, value);
            Ok(())
        }
        _ => Err(missing(parent)),
    }
}

fn remove(object: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, last) = split(path)?;
    match object.pointer_mut(parent) {
        Some(Value::Object(members)) => members.remove(&last).ok_or_else(|| missing(path)),
        Some(Value::Array(items)) => match index(&last).filter(|index| *index < items.len()) {
            Some(index) => Ok(items.remove(index)),
            None => Err(missing(path)),
        },
        _ => Err(missing(parent)),
    }
}

/// Parses an array index: no leading zeros, no sign.
fn index(text: &str) -> Option<usize> {
    let is_number =
        text == "0" || !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patched(kind: PatchKind, object: &Value, patch: &Value) -> Result<Value, ApiError> {
        Patch::parse(kind, patch.to_string().as_bytes())?.apply(object)
    }

    #[test]
    fn merging_follows_the_examples_of_the_rfc() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": "foo"}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ];
        for (object, patch, expected) in cases {
            assert_eq!(patched(PatchKind::Merge, &object, &patch), Ok(expected));
        }
    }

    #[test]
    fn operations_follow_the_rfc() {
        let object = json!({"a": {"b": 1}, "list": [1, 2], "x/y": 0});
        let cases = [
            (
                json!([{"op": "add", "path": "/list/1", "value": 9}]),
                "/list",
                json!([1, 9, 2]),
            ),
            (
                json!([{"op": "add", "path": "/list/-", "value": 9}]),
                "/list",
                json!([1, 2, 9]),
            ),
            (
                json!([{"op": "remove", "path": "/list/0"}]),
                "/list",
                json!([2]),
            ),
            (
                json!([{"op": "replace", "path": "/x~1y", "value": 3}]),
                "/x~1y",
                json!(3),
            ),
            (
                json!([{"op": "move", "from": "/a/b", "path": "/c"}]),
                "/c",
                json!(1),
            ),
            (
                json!([{"op": "copy", "from": "/a", "path": "/d"}]),
                "/d",
                json!({"b": 1}),
            ),
            (
                json!([{"op": "test", "path": "/a/b", "value": 1}, {"op": "add", "path": "/e", "value": 0}]),
                "/e",
                json!(0),
            ),
        ];
        for (patch, pointer, expected) in cases {
            let result = patched(PatchKind::Json, &object, &patch).unwrap();
            assert_eq!(result.pointer(pointer), Some(&expected), "{patch}");
        }
        for patch in [
            json!([{"op": "test", "path": "/a/b", "value": 2}]),
            json!([{"op": "remove", "path": "/none"}]),
            json!([{"op": "add", "path": "/list/7", "value": 0}]),
            json!([{"op": "replace", "path": "/none", "value": 0}]),
            json!([{"op": "move", "from": "/a", "path": "/a/b"}]),
            json!([{"op": "fly", "path": "/a"}]),
        ] {
            assert_eq!(
                patched(PatchKind::Json, &object, &patch).unwrap_err().code,
                422,
                "{patch}"
            );
        }
    }

    #[test]
    fn a_strategic_patch_is_accepted_only_if_it_is_a_merge_patch() {
        let object = json!({"metadata": {"labels": {"a": "1"}}});
        let plain = json!({"metadata": {"labels": {"a": null, "b": "2"}}});
        let expected = json!({"metadata": {"labels": {"b": "2"}}});
        assert_eq!(
            patched(PatchKind::StrategicMerge, &object, &plain),
            Ok(expected)
        );
        for patch in [
            json!({"status": {"conditions": [{"type": "Ready"}]}}),
            json!({"metadata": {"$patch": "replace"}}),
            json!({"spec": {"$retainKeys": ["a"]}}),
        ] {
            assert_eq!(
                patched(PatchKind::StrategicMerge, &object, &patch)
                    .unwrap_err()
                    .code,
                415
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn odd_paths_never_panic(path in "[/~01a-]{0,8}", op in "add|remove|replace|test|move|copy") {
            let patch = json!([{"op": op, "path": path, "from": path, "value": 1}]);
            let _ = patched(PatchKind::Json, &json!({"a": [1, {"0": 2}], "0": {}}), &patch);
        }
    }
}

//! Field sets, in the format of `managedFields`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Path of a field: `f:name` for a member, `k:{…}` for an item of a keyed list; a final `.` is the
/// item itself.
pub(super) type Path = Vec<String>;

/// A set of owned fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FieldSet(BTreeSet<Path>);

/// Members of `metadata` whose ownership is not tracked.
const UNOWNED: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
];

impl FieldSet {
    /// Returns all fields of an object.
    pub(super) fn of(object: &Value) -> Self {
        let mut set = Self::default();
        let Some(members) = object.as_object() else {
            return set;
        };
        for (name, value) in members {
            match name.as_str() {
                "kind" | "apiVersion" => {}
                "metadata" => {
                    for (name, value) in value.as_object().into_iter().flatten() {
                        if !UNOWNED.contains(&name.as_str()) {
                            let path = vec!["f:metadata".to_owned(), format!("f:{name}")];
                            set.collect(path, value);
                        }
                    }
                }
                _ => set.collect(vec![format!("f:{name}")], value),
            }
        }
        set
    }

    /// Parses a `fieldsV1`.
    pub(super) fn parse(fields: &Value) -> Self {
        let mut set = Self::default();
        set.read(&mut Vec::new(), fields);
        set
    }

    /// Formats a `fieldsV1`.
    pub(super) fn to_value(&self) -> Value {
        let mut root = json!({});
        for path in &self.0 {
            let mut node = &mut root;
            for segment in path {
                node = &mut node[segment.as_str()];
                if node.is_null() {
                    *node = json!({});
                }
            }
        }
        root
    }

    pub(super) fn insert(&mut self, path: Path) {
        self.0.insert(path);
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.0.contains(path)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter()
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Path) -> bool) {
        self.0.retain(keep);
    }

    fn collect(&mut self, path: Path, value: &Value) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                for (name, value) in members {
                    self.collect(join(&path, format!("f:{name}")), value);
                }
            }
            Value::Array(items) if list_key(&path).is_some() => {
                let key = list_key(&path).unwrap_or_default();
                for item in items {
                    let item_path = join(&path, item_segment(key, item));
                    self.0.insert(join(&item_path, ".".to_owned()));
                    for (name, value) in item.as_object().into_iter().flatten() {
                        self.collect(join(&item_path, format!("f:{name}")), value);
                    }
                }
            }
            _ => {
                self.0.insert(path);
            }
        }
    }

    fn read(&mut self, path: &mut Path, node: &Value) {
        let empty = Map::new();
        let members = node.as_object().unwrap_or(&empty);
        if members.is_empty() && !path.is_empty() {
            self.0.insert(path.clone());
        }
        for (segment, node) in members {
            path.push(segment.clone());
            self.read(path, node);
            path.pop();
        }
    }
}

/// Returns the key member of a list that is merged by key; other lists are one field.
fn list_key(path: &[String]) -> Option<&'static str> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["f:status", "f:conditions" | "f:addresses"] => Some("type"),
        ["f:metadata", "f:ownerReferences"] => Some("uid"),
        _ => None,
    }
}

/// Whether the paths are equal or one is a prefix of the other.
pub(super) fn overlap(a: &[String], b: &[String]) -> bool {
    // The existence of an item is independent of its members.
    if a.last() != b.last()
        && [a, b]
            .iter()
            .any(|path| path.last().is_some_and(|last| last == "."))
    {
        return false;
    }
    a.starts_with(b) || b.starts_with(a)
}

/// Whether removing the first path would remove a field of the second one's owner.
pub(super) fn is_shared(path: &[String], other: &[String]) -> bool {
    match path.split_last() {
        // Removing an item removes its members.
        Some((last, item)) if last == "." => other.starts_with(item) || item.starts_with(other),
        _ => overlap(path, other),
    }
}

/// Formats a path as in error messages.
pub(super) fn display(path: &[String]) -> String {
    let mut text = String::new();
    for segment in path {
        if let Some(name) = segment.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(key) = segment.strip_prefix("k:") {
            let key: Value = serde_json::from_str(key).unwrap_or_default();
            for (name, value) in key.as_object().into_iter().flatten() {
                text.extend(["[", name, "=", &value.to_string(), "]"]);
            }
        }
    }
    text
}

/// Returns the value of a field.
pub(super) fn get<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    let mut node = object;
    for segment in path {
        node = if let Some(name) = segment.strip_prefix("f:") {
            node.get(name)?
        } else if let Some(key) = segment.strip_prefix("k:") {
            let index = find(node.as_array()?, key)?;
            node.get(index)?
        } else {
            // Only the existence of the item is owned.
            return Some(&Value::Null);
        };
    }
    Some(node)
}

/// Sets a field and creates its parents.
pub(super) fn set(object: &mut Value, path: &[String], value: Value) {
    let mut node = object;
    for segment in path {
        if let Some(name) = segment.strip_prefix("f:") {
            if !node.is_object() {
                *node = json!({});
            }
            node = &mut node[name];
        } else if let Some(key) = segment.strip_prefix("k:") {
            if !node.is_array() {
                *node = json!([]);
            }
            let Some(items) = node.as_array_mut() else {
                return;
            };
            let index = find(items, key).unwrap_or_else(|| {
                items.push(serde_json::from_str(key).unwrap_or_default());
                items.len() - 1
            });
            let Some(item) = items.get_mut(index) else {
                return;
            };
            node = item;
        } else {
            return;
        }
    }
    *node = value;
}

/// Removes a field if it exists.
pub(super) fn remove(object: &mut Value, path: &[String]) {
    let Some((last, parent)) = path.split_last() else {
        return;
    };
    // `.` removes the item, every other segment removes a member.
    let (last, parent) = match (last.as_str(), parent.split_last()) {
        (".", Some((item, list))) => (item, list),
        _ => (last, parent),
    };
    let mut node = object;
    for segment in parent {
        let next = if let Some(name) = segment.strip_prefix("f:") {
            node.get_mut(name)
        } else {
            let key = segment.strip_prefix("k:").unwrap_or_default();
            match node.as_array().and_then(|items| find(items, key)) {
                Some(index) => node.get_mut(index),
                None => None,
            }
        };
        match next {
            Some(next) => node = next,
            None => return,
        }
    }
    match node {
        Value::Object(members) => {
            members.remove(last.strip_prefix("f:").unwrap_or_default());
        }
        Value::Array(items) => {
            if let Some(index) = find(items, last.strip_prefix("k:").unwrap_or_default()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

fn item_segment(key: &str, item: &Value) -> String {
    let mut segment = Map::new();
    segment.insert(key.to_owned(), item[key].clone());
    format!("k:{}", Value::Object(segment))
}

fn find(items: &[Value], key: &str) -> Option<usize> {
    let key: Map<String, Value> = serde_json::from_str(key).ok()?;
    items.iter().position(|item| {
        key.iter()
            .all(|(name, value)| item[name.as_str()] == *value)
    })
}

fn join(path: &[String], segment: String) -> Path {
    let mut path = path.to_vec();
    path.push(segment);
    path
}

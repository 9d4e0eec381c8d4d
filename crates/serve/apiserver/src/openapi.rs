//! OpenAPI documents, generated from the schemas of the resources, for `kubectl explain` and code
//! generators.

mod common;
mod paths;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::api_groups::ApiGroups;
use crate::discovery::Document;
use crate::error::ApiServerError;
use crate::resource::{ApiGroup, ResourceInfo};

/// All documents.
pub(crate) struct OpenApi {
    pub(crate) v2: Document,
    pub(crate) v3_root: Document,
    /// By `apis/GROUP/VERSION`.
    pub(crate) v3: Vec<(String, Document)>,
}

/// One version of one group, with its resources and schemas.
struct Part {
    group: &'static str,
    version: &'static str,
    paths: Map<String, Value>,
    schemas: BTreeMap<String, Value>,
}

/// The names of the schemas of one resource in one version.
pub(super) struct SchemaNames {
    pub(super) object: String,
    pub(super) list: String,
}

impl OpenApi {
    pub(crate) fn new(
        groups: &ApiGroups,
        title: &str,
        version: &str,
    ) -> Result<Self, ApiServerError> {
        let version = if version.is_empty() {
            "unversioned"
        } else {
            version
        };
        let info = json!({"title": title, "version": version});
        let mut parts = Vec::new();
        for group in groups.groups() {
            for version in group.versions {
                parts.push(Part::new(group, version)?);
            }
        }
        let v3: Vec<(String, Document)> = parts
            .iter()
            .map(|part| {
                let document = json!({
                    "openapi": "3.0.0",
                    "info": info,
                    "paths": part.paths,
                    "components": {"schemas": part.schemas},
                });
                (
                    format!("apis/{}/{}", part.group, part.version),
                    Document::new(&document),
                )
            })
            .collect();
        let root: Map<String, Value> = v3
            .iter()
            .map(|(path, document)| {
                let url = format!("/openapi/v3/{path}?hash={}", document.hash);
                (path.clone(), json!({"serverRelativeURL": url}))
            })
            .collect();
        Ok(Self {
            v2: Document::new(&second(&parts, &info)),
            v3_root: Document::new(&json!({"paths": root})),
            v3,
        })
    }
}

impl Part {
    fn new(group: &ApiGroup, version: &'static str) -> Result<Self, ApiServerError> {
        let mut all = common::schemas();
        let mut wanted = Vec::new();
        let mut paths = Map::new();
        for resource in &group.resources {
            let resource = resource.info();
            let own = read_schemas(group.name, resource)?;
            let names = SchemaNames {
                object: find_schema(&own, group, version, resource, resource.kind)?,
                list: find_schema(&own, group, version, resource, resource.list_kind)?,
            };
            all.extend(own);
            for (name, kind) in [
                (&names.object, resource.kind),
                (&names.list, resource.list_kind),
            ] {
                if let Some(schema) = all.get_mut(name).and_then(Value::as_object_mut) {
                    schema.insert(
                        String::from("x-kubernetes-group-version-kind"),
                        json!([{"group": group.name, "version": version, "kind": kind}]),
                    );
                }
            }
            paths.extend(paths::of_resource(group.name, version, resource, &names));
            wanted.extend([names.object, names.list]);
        }
        Ok(Self {
            group: group.name,
            version,
            paths,
            schemas: reachable(&all, wanted),
        })
    }
}

fn read_schemas(
    group: &str,
    resource: &ResourceInfo,
) -> Result<BTreeMap<String, Value>, ApiServerError> {
    serde_json::from_str(resource.schemas).map_err(|source| ApiServerError::Schemas {
        resource: format!("{}.{group}", resource.plural),
        source,
    })
}

/// The schema of a kind: `….VERSION.KIND`, or the only `….KIND`.
fn find_schema(
    schemas: &BTreeMap<String, Value>,
    group: &ApiGroup,
    version: &str,
    resource: &ResourceInfo,
    kind: &str,
) -> Result<String, ApiServerError> {
    let versioned = format!(".{version}.{kind}");
    let ending = format!(".{kind}");
    if let Some(name) = schemas.keys().find(|name| name.ends_with(&versioned)) {
        return Ok(name.clone());
    }
    let mut candidates = schemas
        .keys()
        .filter(|name| name.ends_with(&ending) || *name == kind);
    match (candidates.next(), candidates.next()) {
        (Some(name), None) => Ok(name.clone()),
        (found, _) => Err(ApiServerError::SchemaOfKind {
            resource: format!("{}.{}", resource.plural, group.name),
            reason: format!(
                "there is {} schema of {kind} for version {version}",
                if found.is_some() {
                    "more than one"
                } else {
                    "no"
                }
            ),
        }),
    }
}

/// Returns the given schemas, and all that they refer to.
fn reachable(all: &BTreeMap<String, Value>, mut wanted: Vec<String>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if found.contains_key(&name) {
            continue;
        }
        if let Some(schema) = all.get(&name) {
            let mut names = BTreeSet::new();
            references(schema, &mut names);
            wanted.extend(names);
            found.insert(name, schema.clone());
        }
    }
    found
}

fn references(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref")
                && let Some(name) = reference.strip_prefix("#/components/schemas/")
            {
                names.insert(name.to_owned());
            }
            map.values().for_each(|value| references(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, names)),
        _ => {}
    }
}

/// OpenAPI v2: one document for everything.
fn second(parts: &[Part], info: &Value) -> Value {
    let mut definitions: BTreeMap<String, Value> = BTreeMap::new();
    let mut paths = Map::new();
    for part in parts {
        for (name, schema) in &part.schemas {
            let mut schema = lowered(schema);
            if let Some(kinds) = schema.get_mut("x-kubernetes-group-version-kind")
                && let Some(known) = definitions
                    .get(name)
                    .and_then(|known| known.get("x-kubernetes-group-version-kind"))
                && let (Some(kinds), Some(known)) = (kinds.as_array_mut(), known.as_array())
            {
                // Versions may share a schema.
                kinds.extend(known.iter().cloned());
                kinds.sort_by_key(ToString::to_string);
                kinds.dedup();
            }
            definitions.insert(name.clone(), schema);
        }
        paths.extend(
            part.paths
                .iter()
                .map(|(path, item)| (path.clone(), paths::lowered(item))),
        );
    }
    json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions})
}

/// Converts a schema of OpenAPI v3 to v2.
pub(super) fn lowered(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            // OpenAPI v3 wraps a reference with a default.
            if let Some([only]) = map
                .get("allOf")
                .and_then(Value::as_array)
                .map(Vec::as_slice)
            {
                let mut merged = lowered(only);
                if let (Some(target), Some(text)) = (merged.as_object_mut(), map.get("description"))
                {
                    target.insert(String::from("description"), text.clone());
                }
                return merged;
            }
            let mut out = Map::new();
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("nullable", _) => {}
                    // String or number: clients write strings.
                    ("oneOf" | "anyOf", _) => {
                        out.insert(String::from("type"), json!("string"));
                    }
                    ("$ref", Value::String(reference)) => {
                        let name = reference.replace("#/components/schemas/", "#/definitions/");
                        out.insert(key.clone(), json!(name));
                    }
                    _ => {
                        out.insert(key.clone(), lowered(value));
                    }
                }
            }
            Value::Object(out)
        }
        Value::Array(list) => list.iter().map(lowered).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_converted_to_v2() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": {"allOf": [{"$ref": "#/components/schemas/x.Y"}], "default": {}, "description": "d"},
                "q": {"oneOf": [{"type": "string"}, {"type": "number"}]},
                "n": {"type": "string", "nullable": true},
            },
        });
        assert_eq!(
            lowered(&schema),
            json!({
                "type": "object",
                "properties": {
                    "a": {"$ref": "#/definitions/x.Y", "description": "d"},
                    "q": {"type": "string"},
                    "n": {"type": "string"},
                },
            })
        );
    }

    #[test]
    fn only_referenced_schemas_are_included() {
        let all: BTreeMap<String, Value> = serde_json::from_value(json!({
            "a": {"items": [{"$ref": "#/components/schemas/b"}]},
            "b": {"$ref": "#/components/schemas/a"},
            "c": {},
        }))
        .unwrap();
        let found = reachable(&all, vec![String::from("a")]);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}

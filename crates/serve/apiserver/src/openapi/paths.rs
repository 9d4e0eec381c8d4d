//! The paths of a resource, and their responses.

use serde_json::{Map, Value, json};

use super::SchemaNames;
use crate::resource::ResourceInfo;

const OBJECT_TYPES: [&str; 3] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
];
const STREAM_TYPES: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// Returns the paths of a resource in OpenAPI v3.
pub(super) fn of_resource(
    group: &str,
    version: &str,
    resource: &ResourceInfo,
    names: &SchemaNames,
) -> Map<String, Value> {
    let root = format!("/apis/{group}/{version}");
    let plural = resource.plural;
    let tag = format!("{}_{version}", group.split('.').next().unwrap_or_default());
    let kind = json!({"group": group, "version": version, "kind": resource.kind});
    let operation = |action: &str, scope: &str, schema: &str, types: &[&str]| {
        let content: Map<String, Value> = types
            .iter()
            .map(|media| {
                let schema = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
                ((*media).to_owned(), schema)
            })
            .collect();
        let description = match action {
            "list" => format!("list objects of kind {}", resource.kind),
            _ => format!("read the specified {}", resource.kind),
        };
        let verb = if action == "list" { "list" } else { "read" };
        json!({
            "tags": [tag],
            "description": description,
            "operationId": format!("{verb}{}{scope}{}", camel(&tag), resource.kind),
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        })
    };
    let mut list_types = OBJECT_TYPES.to_vec();
    if resource.watchable {
        list_types.extend(STREAM_TYPES);
    }
    let list = |scope: &str, namespaced: bool| {
        let mut parameters = list_parameters();
        if namespaced {
            parameters.push(namespace_parameter());
        }
        json!({"get": operation("list", scope, &names.list, &list_types), "parameters": parameters})
    };
    let one = |scope: &str, namespaced: bool| {
        let mut parameters = vec![path_parameter(
            "name",
            &format!("name of the {}", resource.kind),
        )];
        if namespaced {
            parameters.push(namespace_parameter());
        }
        json!({"get": operation("get", scope, &names.object, &OBJECT_TYPES), "parameters": parameters})
    };
    let mut paths = Map::new();
    if resource.namespaced {
        let within = format!("{root}/namespaces/{{namespace}}/{plural}");
        paths.insert(format!("{within}/{{name}}"), one("Namespaced", true));
        paths.insert(within, list("Namespaced", true));
        paths.insert(format!("{root}/{plural}"), list("ForAllNamespaces", false));
    } else {
        paths.insert(format!("{root}/{plural}/{{name}}"), one("", false));
        paths.insert(format!("{root}/{plural}"), list("", false));
    }
    paths
}

/// Converts a path to OpenAPI v2.
pub(super) fn lowered(item: &Value) -> Value {
    let mut item = super::lowered(item);
    if let Some(parameters) = item.get_mut("parameters").and_then(Value::as_array_mut) {
        for parameter in parameters.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(Value::Object(schema)) = parameter.remove("schema") {
                parameter.extend(schema);
            }
        }
    }
    if let Some(get) = item.get_mut("get").and_then(Value::as_object_mut) {
        let mut types = Vec::new();
        if let Some(response) = get
            .get_mut("responses")
            .and_then(|responses| responses.get_mut("200"))
            .and_then(Value::as_object_mut)
            && let Some(Value::Object(content)) = response.remove("content")
        {
            types.extend(content.keys().cloned());
            let schema = content
                .values()
                .next()
                .and_then(|media| media.get("schema"));
            response.insert(String::from("schema"), schema.cloned().unwrap_or_default());
        }
        get.insert(String::from("consumes"), json!(["*/*"]));
        get.insert(String::from("produces"), json!(types));
        get.insert(String::from("schemes"), json!(["https"]));
    }
    item
}

fn list_parameters() -> Vec<Value> {
    let parameter = |name: &str, kind: &str, description: &str| {
        json!({
            "name": name,
            "in": "query",
            "description": description,
            "schema": {"type": kind, "uniqueItems": true},
        })
    };
    vec![
        parameter(
            "allowWatchBookmarks",
            "boolean",
            "Whether a watch may send bookmarks.",
        ),
        parameter(
            "fieldSelector",
            "string",
            "Restricts the objects by their fields.",
        ),
        parameter(
            "labelSelector",
            "string",
            "Restricts the objects by their labels.",
        ),
        parameter("pretty", "string", "Whether the response is indented."),
        parameter(
            "resourceVersion",
            "string",
            "The resource version to start a watch from.",
        ),
        parameter(
            "sendInitialEvents",
            "boolean",
            "Whether a watch begins with all existing objects.",
        ),
        parameter(
            "timeoutSeconds",
            "integer",
            "Maximum duration of a watch in seconds.",
        ),
        parameter(
            "watch",
            "boolean",
            "Whether to stream changes instead of returning a list.",
        ),
    ]
}

fn namespace_parameter() -> Value {
    path_parameter("namespace", "namespace of the objects")
}

fn path_parameter(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "description": description,
        "required": true,
        "schema": {"type": "string", "uniqueItems": true},
    })
}

/// `MetricsV1beta1` of `metrics_v1beta1`.
fn camel(tag: &str) -> String {
    tag.split(['_', '-'])
        .map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        })
        .collect()
}

//! Schemas that all APIs share; a resource may have its own of the same name.

use std::collections::BTreeMap;

use serde_json::{Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// By component name.
pub(super) fn schemas() -> BTreeMap<String, Value> {
    let time = json!({"$ref": format!("#/components/schemas/{META}.Time")});
    let text = |description: &str| json!({"type": "string", "description": description});
    let map = |description: &str| {
        json!({
            "type": "object",
            "description": description,
            "additionalProperties": {"type": "string", "default": ""},
        })
    };
    [
        (
            format!("{META}.ObjectMeta"),
            json!({
                "type": "object",
                "description": "Metadata that all objects have.",
                "properties": {
                    "name": text("Name of the object; unique within its namespace."),
                    "namespace": text("Namespace of the object; empty for objects of the cluster."),
                    "uid": text("Tells this object from others of its name, at other times."),
                    "resourceVersion": text("Version of the object; only to be compared for equality."),
                    "creationTimestamp": {"allOf": [time], "default": {}, "description": "When the object was made."},
                    "labels": map("Labels that objects are selected by."),
                    "annotations": map("Further remarks, by key."),
                },
            }),
        ),
        (
            format!("{META}.ListMeta"),
            json!({
                "type": "object",
                "description": "Metadata that all lists have.",
                "properties": {
                    "continue": text("Where to go on if the list was cut; empty if it is whole."),
                    "remainingItemCount": {
                        "type": "integer", "format": "int64",
                        "description": "How many objects are missing of a list that was cut.",
                    },
                    "resourceVersion": text("Version of the list, from which a watch can go on."),
                    "selfLink": text("No longer set."),
                },
            }),
        ),
        (
            format!("{META}.Time"),
            json!({"type": "string", "format": "date-time", "description": "A time in RFC 3339."}),
        ),
        (
            format!("{META}.Duration"),
            json!({"type": "string", "description": "A duration in Go's form, such as 1m30s."}),
        ),
        (
            String::from("io.k8s.apimachinery.pkg.api.resource.Quantity"),
            json!({
                "oneOf": [{"type": "string"}, {"type": "number"}],
                "description": "A quantity with a suffix, such as 250m or 12Mi.",
            }),
        ),
    ]
    .into()
}

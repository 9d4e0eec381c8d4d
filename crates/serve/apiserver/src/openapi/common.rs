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
                    "namespace": text("Namespace of the object; empty for cluster-scoped objects."),
                    "uid": text("Unique identifier of the object, also among those of the same name."),
                    "resourceVersion": text("Version of the object; compare it for equality only."),
                    "creationTimestamp": {"allOf": [time], "default": {}, "description": "Creation time of the object."},
                    "labels": map("Labels that objects are selected by."),
                    "annotations": map("Annotations of the object."),
                },
            }),
        ),
        (
            format!("{META}.ListMeta"),
            json!({
                "type": "object",
                "description": "Metadata that all lists have.",
                "properties": {
                    "continue": text("Token for the rest of a paged list; empty if the list is complete."),
                    "remainingItemCount": {
                        "type": "integer", "format": "int64",
                        "description": "Number of objects in the rest of a paged list.",
                    },
                    "resourceVersion": text("Version of the list, from which a watch can start."),
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

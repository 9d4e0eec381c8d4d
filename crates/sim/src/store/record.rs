//! Stored objects: JSON text, labels and selectable fields.
//!
//! The text starts after `"metadata":{"resourceVersion":"N",`. An object can therefore be rendered
//! with any resourceVersion (a deletion has its own), as a list item (which has no kind), or as
//! `PartialObjectMetadata` without parsing it again; and 150,000 pods cost little more than their
//! text.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::api::resources::ResourceInfo;
use crate::objects::{ObjectText, Resource, WriteError};

/// A stored object.
#[derive(Debug)]
pub(crate) struct Record {
    key: Arc<str>,
    version: u64,
    content: Content,
}

/// The contents of an object without its resourceVersion.
#[derive(Debug)]
pub(crate) struct Content {
    /// Three texts in one allocation of exactly their size: the object from the second member of
    /// `metadata` on; its labels as `key NUL value NUL …`; the values of the selectable fields in
    /// the order of `ResourceInfo::fields`, each terminated by NUL.
    text: Box<str>,
    /// Length of the `metadata` part, with its closing brace.
    metadata_len: usize,
    /// End of the object and start of the labels.
    object_len: usize,
    /// End of the labels and start of the fields.
    labels_end: usize,
}

/// The representation of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// With kind and apiVersion.
    Object,
    /// Without them, as inside a list.
    Item,
    /// As `PartialObjectMetadata`.
    Metadata,
}

impl Content {
    /// Encodes an object. Kind and apiVersion are those of the resource, whatever the object says,
    /// and its resourceVersion is omitted.
    pub(crate) fn encode(
        info: &ResourceInfo,
        object: &Map<String, Value>,
    ) -> Result<Self, WriteError> {
        let invalid = |reason: &str| WriteError::Invalid {
            resource: info.resource,
            reason: reason.to_owned(),
        };
        let Some(Value::Object(metadata)) = object.get("metadata") else {
            return Err(invalid("metadata is missing"));
        };
        for part in ["spec", "status"] {
            if object
                .get(part)
                .is_some_and(|value| !value.is_object() && !value.is_null())
            {
                return Err(invalid("spec or status is not an object"));
            }
        }
        let mut text = Vec::with_capacity(4096);
        let members = metadata
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "resourceVersion" | "selfLink"));
        write_members(&mut text, members);
        if text.is_empty() {
            return Err(invalid("metadata is empty"));
        }
        text.push(b'}');
        let metadata_len = text.len();
        text.push(b',');
        let others = object
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "metadata" | "kind" | "apiVersion"));
        write_members(&mut text, others);
        if text.last() == Some(&b',') {
            text.pop();
        }
        text.push(b'}');
        let text = std::str::from_utf8(&text).expect("JSON is text");
        let labels = pack_labels(metadata).ok_or_else(|| invalid("a label contains a NUL"))?;
        let fields = pack_fields(info, object).ok_or_else(|| invalid("a field contains a NUL"))?;
        Ok(Self::join(text, metadata_len, &labels, &fields))
    }

    /// Encodes an object that is already text.
    pub(crate) fn of_text(object: &ObjectText) -> Self {
        let ObjectText {
            text,
            metadata_len,
            labels,
            fields,
            ..
        } = object;
        Self::join(text, *metadata_len, labels, fields)
    }

    fn join(object: &str, metadata_len: usize, labels: &str, fields: &str) -> Self {
        let object_len = object.len();
        let labels_end = object_len + labels.len();
        // Exactly the required size: spare capacity of 150,000 objects would be half of the memory.
        let mut text = String::with_capacity(labels_end + fields.len());
        for part in [object, labels, fields] {
            text.push_str(part);
        }
        Self {
            text: text.into_boxed_str(),
            metadata_len,
            object_len,
            labels_end,
        }
    }

    /// Whether both contents are equal, so that storing the other one changes nothing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.text == other.text
    }

    fn object(&self) -> &str {
        self.part(0, self.object_len)
    }

    fn metadata(&self) -> &str {
        self.part(0, self.metadata_len)
    }

    fn labels(&self) -> &str {
        self.part(self.object_len, self.labels_end)
    }

    fn fields(&self) -> &str {
        self.part(self.labels_end, self.text.len())
    }

    fn part(&self, from: usize, to: usize) -> &str {
        self.text.get(from..to).unwrap_or_default()
    }
}

impl Record {
    pub(crate) fn new(key: Arc<str>, version: u64, content: Content) -> Self {
        Self {
            key,
            version,
            content,
        }
    }

    /// `namespace/name`, or the name.
    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The resourceVersion of the last write.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    pub(crate) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// Empty for objects without a namespace.
    pub(crate) fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// Approximate memory size.
    pub(crate) fn size(&self) -> usize {
        self.content.text.len() + self.key.len() + size_of::<Self>()
    }

    /// The value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let mut parts = self.content.labels().split_terminator('\0');
        while let Some(found) = parts.next() {
            let value = parts.next()?;
            if found == key {
                return Some(value);
            }
        }
        None
    }

    /// The value of the selectable field at an index of `ResourceInfo::fields`.
    pub(crate) fn field(&self, index: usize) -> &str {
        self.content.fields().split('\0').nth(index).unwrap_or("")
    }

    /// Renders the object with its own version.
    pub(crate) fn write(&self, out: &mut Vec<u8>, info: &ResourceInfo, form: Form) {
        self.write_at(out, info, form, self.version);
    }

    /// Renders the object with a given resourceVersion.
    pub(crate) fn write_at(
        &self,
        out: &mut Vec<u8>,
        info: &ResourceInfo,
        form: Form,
        version: u64,
    ) {
        out.push(b'{');
        match form {
            Form::Object => {
                out.extend_from_slice(b"\"kind\":\"");
                out.extend_from_slice(info.kind.as_bytes());
                out.extend_from_slice(b"\",\"apiVersion\":\"");
                out.extend_from_slice(info.api_version().as_bytes());
                out.extend_from_slice(b"\",");
            }
            Form::Item => {}
            Form::Metadata => out.extend_from_slice(
                b"\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",",
            ),
        }
        out.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
        out.extend_from_slice(version.to_string().as_bytes());
        out.extend_from_slice(b"\",");
        if form == Form::Metadata {
            out.extend_from_slice(self.content.metadata().as_bytes());
            out.push(b'}');
        } else {
            out.extend_from_slice(self.content.object().as_bytes());
        }
    }

    /// Returns the whole object as a tree, with kind, apiVersion and resourceVersion.
    pub(crate) fn value(&self, info: &ResourceInfo) -> Value {
        let mut text = Vec::with_capacity(self.content.object_len + 128);
        self.write(&mut text, info, Form::Object);
        serde_json::from_slice(&text).expect("the text was written by this module")
    }

    /// Returns `metadata` alone as a tree.
    pub(crate) fn metadata(&self, info: &ResourceInfo) -> Map<String, Value> {
        let mut text = Vec::with_capacity(self.content.metadata_len + 128);
        self.write(&mut text, info, Form::Metadata);
        match serde_json::from_slice(&text) {
            Ok(Value::Object(mut partial)) => match partial.remove("metadata") {
                Some(Value::Object(metadata)) => metadata,
                _ => Map::new(),
            },
            _ => Map::new(),
        }
    }
}

fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, name).expect("writing to memory does not fail");
        out.push(b':');
        serde_json::to_writer(&mut *out, value).expect("writing to memory does not fail");
    }
}

fn pack_labels(metadata: &Map<String, Value>) -> Option<String> {
    let mut packed = String::new();
    if let Some(Value::Object(labels)) = metadata.get("labels") {
        for (key, value) in labels {
            let value = value.as_str().unwrap_or_default();
            if key.contains('\0') || value.contains('\0') {
                return None;
            }
            packed.push_str(key);
            packed.push('\0');
            packed.push_str(value);
            packed.push('\0');
        }
    }
    Some(packed)
}

fn pack_fields(info: &ResourceInfo, object: &Map<String, Value>) -> Option<String> {
    let mut packed = String::new();
    for path in info.fields {
        let value = field_value(info.resource, path, object);
        if value.contains('\0') {
            return None;
        }
        packed.push_str(&value);
        packed.push('\0');
    }
    Some(packed)
}

/// Returns the value of a selectable field, with the defaults of the typed API server.
fn field_value(resource: Resource, path: &str, object: &Map<String, Value>) -> String {
    let path = match (resource, path) {
        (Resource::Jobs, "status.successful") => "status.succeeded",
        (Resource::Events, "source") => "source.component",
        (_, path) => path,
    };
    let mut parts = path.split('.');
    let found = parts
        .next()
        .and_then(|first| object.get(first))
        .and_then(|value| parts.try_fold(value, |value, part| value.get(part)));
    match (found, path) {
        (Some(Value::String(text)), _) => text.clone(),
        (Some(Value::Bool(flag)), _) => flag.to_string(),
        (Some(Value::Number(number)), _) => number.to_string(),
        (_, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        (_, "status.replicas" | "status.succeeded") => "0".to_owned(),
        (_, "source.component") => object
            .get("reportingComponent")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::resources;

    fn record(resource: Resource, object: &Value) -> Record {
        let info = resources::info(resource);
        let content = Content::encode(info, object.as_object().unwrap()).unwrap();
        Record::new(Arc::from("default/web"), 7, content)
    }

    #[test]
    fn every_representation_is_valid_json() {
        let info = resources::info(Resource::Pods);
        let pod = record(
            Resource::Pods,
            &json!({
                "kind": "Nonsense",
                "metadata": {"name": "web", "namespace": "default", "resourceVersion": "3",
                             "labels": {"app": "web", "tier": "front"}},
                "spec": {"nodeName": "n1"},
                "status": {"phase": "Running"},
            }),
        );
        let render = |form, version| {
            let mut out = Vec::new();
            pod.write_at(&mut out, info, form, version);
            serde_json::from_slice::<Value>(&out).unwrap()
        };
        let object = render(Form::Object, 7);
        assert_eq!(object["kind"], "Pod");
        assert_eq!(object["apiVersion"], "v1");
        assert_eq!(object["metadata"]["resourceVersion"], "7");
        assert_eq!(object["status"]["phase"], "Running");
        let item = render(Form::Item, 9);
        assert_eq!(item.get("kind"), None);
        assert_eq!(item["metadata"]["resourceVersion"], "9");
        let partial = render(Form::Metadata, 7);
        assert_eq!(partial["kind"], "PartialObjectMetadata");
        assert_eq!(partial["metadata"]["labels"]["tier"], "front");
        assert_eq!(partial.get("spec"), None);
        assert_eq!(pod.value(info), object);
        assert_eq!(pod.label("tier"), Some("front"));
        assert_eq!(pod.label("web"), None);
        assert_eq!((pod.field(0), pod.field(5)), ("n1", "Running"));
        assert_eq!((pod.namespace(), pod.name()), ("default", "web"));
    }

    #[test]
    fn an_object_with_metadata_only_is_valid_json() {
        let info = resources::info(Resource::Nodes);
        let node = record(Resource::Nodes, &json!({"metadata": {"name": "n1"}}));
        assert_eq!(node.value(info)["metadata"]["name"], "n1");
        assert_eq!(node.field(0), "false");
    }
}

//! Objects as text, with the labels and fields that the store indexes.

use serde_json::{Map, Value};

use super::Resource;
use crate::api::resources;
use crate::json::{Members, close};

/// An object written directly as JSON text, in a reusable buffer.
///
/// It has a uid and a creationTimestamp, and members in the order of their names.
#[derive(Debug, Default)]
pub struct ObjectText {
    /// `namespace/name`.
    pub(crate) key: String,
    /// The text from the first member of `metadata` on, with the closing brace of the object.
    pub(crate) text: String,
    /// Length of the `metadata` part of `text`, with its closing brace.
    pub(crate) metadata_len: usize,
    /// `key NUL value NUL …`.
    pub(crate) labels: String,
    /// Values of the selectable fields in the order of `ResourceInfo::fields`, each terminated by
    /// NUL.
    pub(crate) fields: String,
    /// Whether a label or field contains a NUL, so that the object cannot be stored.
    pub(crate) has_nul: bool,
}

impl ObjectText {
    /// Starts an object in a namespace.
    pub(crate) fn begin(&mut self, namespace: &str, name: &str) {
        for part in [
            &mut self.key,
            &mut self.text,
            &mut self.labels,
            &mut self.fields,
        ] {
            part.clear();
        }
        self.metadata_len = 0;
        self.has_nul = false;
        self.key.push_str(namespace);
        self.key.push('/');
        self.key.push_str(name);
    }

    /// Returns a writer of the next members: those of `metadata` first, then the others.
    pub(crate) fn members(&mut self) -> Members<'_> {
        Members::new(&mut self.text)
    }

    /// Ends `metadata`.
    pub(crate) fn end_metadata(&mut self) {
        close(&mut self.text, '}');
        self.metadata_len = self.text.len();
        self.text.push(',');
    }

    /// Ends the object.
    pub(crate) fn end(&mut self) {
        close(&mut self.text, '}');
    }

    /// Adds a label for selectors.
    pub(crate) fn label(&mut self, key: &str, value: &str) {
        for part in [key, value] {
            self.has_nul |= part.contains('\0');
            self.labels.push_str(part);
            self.labels.push('\0');
        }
    }

    /// Adds the value of the next selectable field.
    pub(crate) fn field(&mut self, value: &str) {
        self.has_nul |= value.contains('\0');
        self.fields.push_str(value);
        self.fields.push('\0');
    }

    /// Returns the object as a tree. An empty buffer gives one without `metadata`, which no store
    /// accepts.
    pub fn value(&self, resource: Resource) -> Value {
        let info = resources::info(resource);
        let text = format!("{{\"metadata\":{{{}", self.text);
        let mut object: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
        object.insert("kind".to_owned(), info.kind.into());
        object.insert("apiVersion".to_owned(), info.api_version().into());
        object.into()
    }
}

//! The encodings of objects.
//!
//! An object is stored once, as the protobuf message that autoscalers request all the time, which
//! is also the smallest form. JSON, tables and partial metadata are encoded straight from it.

pub(crate) mod json;
mod label_cache;
mod layout;
pub(crate) mod proto;
mod reader;
pub(crate) mod table;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Node,
    Pod,
}

/// The `apiVersion` and `kind` of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypeMeta {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
}

impl Kind {
    /// Returns the type of one object in a version of the group.
    pub(crate) fn object(self, api_version: &'static str) -> TypeMeta {
        let kind = match self {
            Self::Node => "NodeMetrics",
            Self::Pod => "PodMetrics",
        };
        TypeMeta { api_version, kind }
    }

    /// Returns the type of a list in a version of the group.
    pub(crate) fn list(self, api_version: &'static str) -> TypeMeta {
        let kind = match self {
            Self::Node => "NodeMetricsList",
            Self::Pod => "PodMetricsList",
        };
        TypeMeta { api_version, kind }
    }
}

//! What is kept of an object, and what is made of it when somebody asks.
//!
//! An object is kept once, as the protobuf message that autoscalers ask for all the time. It holds
//! everything, and in the smallest form: JSON, tables and bare metadata are written straight from
//! it, without anything in between.

pub(crate) mod json;
pub(crate) mod message;
pub(crate) mod proto;
mod recent;
pub(crate) mod table;

/// Which objects.
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
    /// Of one object, in a version of the group.
    pub(crate) fn object(self, api_version: &'static str) -> TypeMeta {
        let kind = match self {
            Self::Node => "NodeMetrics",
            Self::Pod => "PodMetrics",
        };
        TypeMeta { api_version, kind }
    }

    /// Of a list, in a version of the group.
    pub(crate) fn list(self, api_version: &'static str) -> TypeMeta {
        let kind = match self {
            Self::Node => "NodeMetricsList",
            Self::Pod => "PodMetricsList",
        };
        TypeMeta { api_version, kind }
    }
}

//! The errors of this crate.

use std::error::Error;

use crate::decode::EventType;

/// An event, object or list that could not be decoded. Only the affected object is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The object cannot be decoded, but its metadata can.
    #[error("failed to decode object {namespace}/{name}: {source}")]
    Object {
        /// `None` in a list.
        event: Option<EventType>,
        /// Empty for cluster-scoped objects.
        namespace: Box<str>,
        name: Box<str>,
        source: serde_json::Error,
    },
    /// Not even the metadata can be decoded.
    #[error("failed to decode {what}: {source}")]
    Json {
        what: &'static str,
        source: serde_json::Error,
    },
    /// The message does not follow the rules of protobuf, or a string is not UTF-8.
    #[error("failed to decode {what}: malformed protobuf")]
    Protobuf { what: &'static str },
    /// An event has no type or no object, an object no name, or a list no version.
    #[error("response has no {0}")]
    Incomplete(&'static str),
    /// A line exceeded the limit and was skipped.
    #[error("watch event of {length} bytes exceeds the limit of {limit} bytes")]
    TooLong { length: usize, limit: usize },
}

/// A request without a response, or a response without an end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    #[error("request failed: {0}")]
    Request(#[source] Box<dyn Error + Send + Sync>),
    #[error("connection lost while reading the response: {0}")]
    Body(#[source] Box<dyn Error + Send + Sync>),
}

/// A watch that cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    #[error("failed to build the Kubernetes client: {0}")]
    Client(#[source] Box<kube_client_metrics::Error>),
    #[error("failed to build the Kubernetes client: {0}")]
    Config(#[source] Box<kube::Error>),
    #[error("tls-server-name of the kubeconfig is not a name of a server: {0}")]
    ServerName(#[source] Box<dyn Error + Send + Sync>),
}

impl DecodeError {
    /// Whether it was not even an object, so that the whole response may be invalid.
    pub fn is_invalid_response(&self) -> bool {
        !matches!(self, Self::Object { .. })
    }
}

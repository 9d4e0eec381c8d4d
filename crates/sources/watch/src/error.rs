//! What can go wrong.

use std::error::Error;

use crate::decode::EventType;

/// Bytes that could not be read as what they should have been. Costs the object it happened to,
/// nothing else.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The object of an event or of a list cannot be read, though its metadata can.
    #[error("object {namespace}/{name} cannot be read: {source}")]
    Object {
        /// What the event said happened to it; none in a list.
        event: Option<EventType>,
        /// Its namespace; empty if it has none.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
        /// What was wrong.
        source: serde_json::Error,
    },
    /// Not even the metadata can be read.
    #[error("{what} cannot be read: {source}")]
    Json {
        /// What it should have been.
        what: &'static str,
        /// What was wrong.
        source: serde_json::Error,
    },
    /// An event has no type or no object, or a list no version.
    #[error("answer has no {0}")]
    Incomplete(&'static str),
    /// A line was longer than the bound, and was skipped.
    #[error("watch event of {length} bytes is longer than the {limit} bytes allowed")]
    TooLong {
        /// Its length.
        length: usize,
        /// The bound.
        limit: usize,
    },
}

/// A request that got no answer, or an answer that broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No answer came.
    #[error("request failed: {0}")]
    Request(#[source] Box<dyn Error + Send + Sync>),
    /// The answer broke off.
    #[error("response broke off: {0}")]
    Body(#[source] Box<dyn Error + Send + Sync>),
}

/// A stream that cannot be set up as asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The client cannot be built from its configuration.
    #[error("Kubernetes client cannot be built: {0}")]
    Client(#[source] Box<kube_client_metrics::Error>),
}

impl DecodeError {
    /// Whether it was not even an object, so that the stream itself may be garbage.
    pub fn is_garbage(&self) -> bool {
        !matches!(self, Self::Object { .. })
    }
}

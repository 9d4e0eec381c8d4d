//! Spans, as far as this program has them.

use std::borrow::Cow;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use crate::id::{SpanId, TraceId};

/// A span with a beginning and an end that are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    /// `None` for the root.
    pub parent: Option<SpanId>,
    /// One of few: values belong to attributes.
    pub name: &'static str,
    pub start: Timestamp,
    pub end: Timestamp,
    pub attributes: Vec<Attribute>,
    pub events: Vec<SpanEvent>,
    pub status: Status,
}

/// Something that happened during a span, at a known time.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    pub name: &'static str,
    pub time: Timestamp,
    pub attributes: Vec<Attribute>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    pub key: Cow<'static, str>,
    pub value: Value,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(Arc<str>),
    Texts(Vec<Arc<str>>),
    Integer(i64),
    Bool(bool),
}

/// The status of a span.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Status {
    #[default]
    Unset,
    Error(String),
}

impl Attribute {
    pub fn new(key: &'static str, value: impl Into<Value>) -> Self {
        Self {
            key: Cow::Borrowed(key),
            value: value.into(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&Arc<str>> for Value {
    fn from(text: &Arc<str>) -> Self {
        Self::Text(Arc::clone(text))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

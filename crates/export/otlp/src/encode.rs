//! Encodes spans as OTLP's protobuf messages, with fields in the order of their numbers.
//!
//! By hand: generated types would be built from our spans and then copied into the same bytes, and
//! come with a second protobuf library.

use kubevitals_model::Timestamp;
use kubevitals_protobuf::{put_bytes, put_fixed64, put_int, put_message, put_str, put_uint};

use crate::resource::Resource;
use crate::span::{Attribute, Span, SpanEvent, Status, Value};

/// Field numbers of the messages of opentelemetry-proto.
mod field {
    pub(super) const REQUEST_RESOURCE_SPANS: u32 = 1;
    pub(super) const RESOURCE: u32 = 1;
    pub(super) const RESOURCE_ATTRIBUTES: u32 = 1;
    pub(super) const SCOPE_SPANS: u32 = 2;
    pub(super) const SCOPE: u32 = 1;
    pub(super) const SCOPE_NAME: u32 = 1;
    pub(super) const SCOPE_VERSION: u32 = 2;
    pub(super) const SPANS: u32 = 2;
    pub(super) const SCHEMA_URL: u32 = 3;
    pub(super) const TRACE_ID: u32 = 1;
    pub(super) const SPAN_ID: u32 = 2;
    pub(super) const PARENT_SPAN_ID: u32 = 4;
    pub(super) const NAME: u32 = 5;
    pub(super) const KIND: u32 = 6;
    pub(super) const START: u32 = 7;
    pub(super) const END: u32 = 8;
    pub(super) const ATTRIBUTES: u32 = 9;
    pub(super) const EVENTS: u32 = 11;
    pub(super) const STATUS: u32 = 15;
    pub(super) const EVENT_TIME: u32 = 1;
    pub(super) const EVENT_NAME: u32 = 2;
    pub(super) const EVENT_ATTRIBUTES: u32 = 3;
    pub(super) const STATUS_MESSAGE: u32 = 2;
    pub(super) const STATUS_CODE: u32 = 3;
    pub(super) const KEY: u32 = 1;
    pub(super) const VALUE: u32 = 2;
    pub(super) const VALUE_STRING: u32 = 1;
    pub(super) const VALUE_BOOL: u32 = 2;
    pub(super) const VALUE_INT: u32 = 3;
    pub(super) const VALUE_ARRAY: u32 = 5;
    pub(super) const ARRAY_VALUES: u32 = 1;
}

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u64 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;
/// The version of the semantic conventions whose names are used.
pub(crate) const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// Appends spans as fields of a `ScopeSpans`: the bytes of several calls can follow one another.
pub fn encode_spans(out: &mut Vec<u8>, spans: &[Span]) {
    for span in spans {
        put_message(out, field::SPANS, |out| put_span(out, span));
    }
}

/// Returns an `ExportTraceServiceRequest` with spans that [`encode_spans`] encoded.
pub fn request<'s>(resource: &Resource, spans: impl Iterator<Item = &'s [u8]> + Clone) -> Vec<u8> {
    request_of_version(env!("CARGO_PKG_VERSION"), resource, spans)
}

fn request_of_version<'s>(
    version: &str,
    resource: &Resource,
    spans: impl Iterator<Item = &'s [u8]> + Clone,
) -> Vec<u8> {
    let size: usize = spans.clone().map(<[u8]>::len).sum();
    let mut out = Vec::with_capacity(size + 1024);
    put_message(&mut out, field::REQUEST_RESOURCE_SPANS, |out| {
        put_message(out, field::RESOURCE, |out| {
            put_attributes(out, field::RESOURCE_ATTRIBUTES, resource.attributes());
        });
        put_message(out, field::SCOPE_SPANS, |out| {
            put_message(out, field::SCOPE, |out| {
                put_str(out, field::SCOPE_NAME, "kubevitals.transitions");
                put_str(out, field::SCOPE_VERSION, version);
            });
            for encoded in spans {
                out.extend_from_slice(encoded);
            }
            put_str(out, field::SCHEMA_URL, SCHEMA);
        });
        put_str(out, field::SCHEMA_URL, SCHEMA);
    });
    out
}

fn put_span(out: &mut Vec<u8>, span: &Span) {
    put_bytes(out, field::TRACE_ID, span.trace.as_bytes());
    put_bytes(out, field::SPAN_ID, span.id.as_bytes());
    if let Some(parent) = &span.parent {
        put_bytes(out, field::PARENT_SPAN_ID, parent.as_bytes());
    }
    put_str(out, field::NAME, span.name);
    put_uint(out, field::KIND, INTERNAL);
    put_fixed64(out, field::START, nanoseconds(span.start));
    put_fixed64(out, field::END, nanoseconds(span.end));
    put_attributes(out, field::ATTRIBUTES, &span.attributes);
    for event in &span.events {
        put_message(out, field::EVENTS, |out| put_event(out, event));
    }
    if let Status::Error(message) = &span.status {
        put_message(out, field::STATUS, |out| {
            put_str(out, field::STATUS_MESSAGE, message);
            put_uint(out, field::STATUS_CODE, ERROR);
        });
    }
}

fn put_event(out: &mut Vec<u8>, event: &SpanEvent) {
    put_fixed64(out, field::EVENT_TIME, nanoseconds(event.time));
    put_str(out, field::EVENT_NAME, event.name);
    put_attributes(out, field::EVENT_ATTRIBUTES, &event.attributes);
}

pub(crate) fn put_attributes(out: &mut Vec<u8>, number: u32, attributes: &[Attribute]) {
    for Attribute { key, value } in attributes {
        put_message(out, number, |out| {
            put_str(out, field::KEY, key);
            put_message(out, field::VALUE, |out| put_value(out, value));
        });
    }
}

/// Appends an attribute with a text.
pub(crate) fn put_attribute(out: &mut Vec<u8>, number: u32, key: &str, text: &str) {
    put_message(out, number, |out| {
        put_str(out, field::KEY, key);
        put_message(out, field::VALUE, |out| {
            put_str(out, field::VALUE_STRING, text);
        });
    });
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => put_str(out, field::VALUE_STRING, text),
        Value::Bool(value) => put_uint(out, field::VALUE_BOOL, (*value).into()),
        Value::Integer(number) => put_int(out, field::VALUE_INT, *number),
        Value::Texts(texts) => put_message(out, field::VALUE_ARRAY, |out| {
            for text in texts {
                put_message(out, field::ARRAY_VALUES, |out| {
                    put_str(out, field::VALUE_STRING, text);
                });
            }
        }),
    }
}

pub(crate) fn nanoseconds(time: Timestamp) -> u64 {
    let millis = u64::try_from(time.unix_millis()).unwrap_or_default();
    millis.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests;

//! Reads `ExportTraceServiceRequest`, by the field numbers of opentelemetry-proto.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kubevitals_protobuf::{Field, Value, fields};
use serde_json::{Value as Json, json};

/// A span as a receiver sees it. IDs are in hexadecimal.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReceivedSpan {
    pub resource: BTreeMap<String, Json>,
    pub scope: String,
    pub trace_id: String,
    pub span_id: String,
    /// Empty for a root.
    pub parent_span_id: String,
    pub name: String,
    pub kind: u64,
    pub start_unix_nano: u64,
    pub end_unix_nano: u64,
    pub attributes: BTreeMap<String, Json>,
    pub events: Vec<ReceivedEvent>,
    pub status_code: u64,
    pub status_message: String,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReceivedEvent {
    pub name: String,
    pub time_unix_nano: u64,
    pub attributes: BTreeMap<String, Json>,
}

/// Returns the spans of a request; `None` if it is malformed.
pub fn decode_request(message: &[u8]) -> Option<Vec<ReceivedSpan>> {
    let mut spans = Vec::new();
    for resource_spans in messages(message, 1)? {
        let resource = match messages(resource_spans, 1)?.last() {
            Some(resource) => attributes(&fields(resource)?, 1)?,
            None => BTreeMap::new(),
        };
        for scope_spans in messages(resource_spans, 2)? {
            let scope = match messages(scope_spans, 1)?.last() {
                Some(scope) => text(&fields(scope)?, 1)?,
                None => String::new(),
            };
            for span in messages(scope_spans, 2)? {
                spans.push(ReceivedSpan {
                    resource: resource.clone(),
                    scope: scope.clone(),
                    ..decode_span(span)?
                });
            }
        }
    }
    Some(spans)
}

fn decode_span(message: &[u8]) -> Option<ReceivedSpan> {
    let all = fields(message)?;
    let status = of(&all, 15).last().map(|status| fields(status.bytes()?));
    let status = match status {
        Some(status) => status?,
        None => Vec::new(),
    };
    let events = of(&all, 11).map(|event| {
        let event = fields(event.bytes()?)?;
        Some(ReceivedEvent {
            name: text(&event, 2)?,
            time_unix_nano: fixed(&event, 1)?,
            attributes: attributes(&event, 3)?,
        })
    });
    Some(ReceivedSpan {
        trace_id: id(&all, 1, 16)?,
        span_id: id(&all, 2, 8)?,
        parent_span_id: match of(&all, 4).last() {
            Some(_) => id(&all, 4, 8)?,
            None => String::new(),
        },
        name: text(&all, 5)?,
        kind: number(&all, 6)?,
        start_unix_nano: fixed(&all, 7)?,
        end_unix_nano: fixed(&all, 8)?,
        attributes: attributes(&all, 9)?,
        events: events.collect::<Option<_>>()?,
        status_code: number(&status, 3)?,
        status_message: text(&status, 2)?,
        ..ReceivedSpan::default()
    })
}

pub(super) fn of<'f, 'm>(
    all: &'f [Field<'m>],
    number: u32,
) -> impl Iterator<Item = Value<'m>> + 'f {
    let found = all.iter().filter(move |field| field.number == number);
    found.map(|field| field.value)
}

pub(super) fn messages(message: &[u8], number: u32) -> Option<Vec<&[u8]>> {
    let all = fields(message)?;
    of(&all, number).map(Value::bytes).collect()
}

/// The default of a field that is absent is empty or zero, as in protobuf.
pub(super) fn text(all: &[Field<'_>], number: u32) -> Option<String> {
    match of(all, number).last() {
        Some(value) => value.text().map(str::to_owned),
        None => Some(String::new()),
    }
}

pub(super) fn number(all: &[Field<'_>], number: u32) -> Option<u64> {
    of(all, number).last().map_or(Some(0), Value::uint)
}

pub(super) fn fixed(all: &[Field<'_>], number: u32) -> Option<u64> {
    match of(all, number).last() {
        Some(Value::Fixed64(value)) => Some(value),
        Some(_) => None,
        None => Some(0),
    }
}

/// An ID of the right length that is not zero, as receivers require.
fn id(all: &[Field<'_>], number: u32, length: usize) -> Option<String> {
    let bytes = of(all, number).last()?.bytes()?;
    let is_valid = bytes.len() == length && bytes.iter().any(|byte| *byte != 0);
    is_valid.then(|| hex(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn attributes(all: &[Field<'_>], number: u32) -> Option<BTreeMap<String, Json>> {
    let mut found = BTreeMap::new();
    for pair in of(all, number) {
        let pair = fields(pair.bytes()?)?;
        let value = of(&pair, 2).last()?.bytes()?;
        // Keys are unique by the specification.
        if found.insert(text(&pair, 1)?, any_value(value)?).is_some() {
            return None;
        }
    }
    Some(found)
}

fn any_value(message: &[u8]) -> Option<Json> {
    let all = fields(message)?;
    let field = all.last()?;
    Some(match field.number {
        1 => json!(field.value.text()?),
        2 => json!(field.value.uint()? != 0),
        3 => json!(field.value.int()?),
        4 => json!(field.value.double()?),
        5 => {
            let values = fields(field.value.bytes()?)?;
            let texts = of(&values, 1).map(|value| {
                let value = fields(value.bytes()?)?;
                of(&value, 1).last()?.text().map(str::to_owned)
            });
            json!(texts.collect::<Option<Vec<String>>>()?)
        }
        _ => return None,
    })
}

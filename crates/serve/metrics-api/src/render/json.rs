//! JSON as Go's encoder writes it, from the messages that are kept.

use kubevitals_model::{GoDuration, Timestamp};

use super::message::{Fields, Object, Value, amounts, pair};
use super::{Kind, TypeMeta};

/// Appends an object. `kind` stands in front where it is not clear from around it.
pub(crate) fn put_object(
    out: &mut Vec<u8>,
    kind: Kind,
    type_meta: Option<TypeMeta>,
    message: &[u8],
    resource_version: &str,
) {
    let object = Object::read(message);
    out.push(b'{');
    if let Some(type_meta) = type_meta {
        put_type_meta(out, type_meta);
        out.push(b',');
    }
    out.extend_from_slice(b"\"metadata\":");
    put_metadata(out, object.metadata, resource_version);
    out.extend_from_slice(b",\"timestamp\":");
    put_time(out, object.timestamp);
    out.extend_from_slice(b",\"window\":\"");
    GoDuration::from_nanos(object.window).write_to(out);
    match kind {
        Kind::Node => {
            out.extend_from_slice(b"\",\"usage\":");
            put_amounts(out, object.rest, 4);
        }
        Kind::Pod => {
            out.extend_from_slice(b"\",\"containers\":[");
            for (at, (_, container)) in Fields::new(object.rest).enumerate() {
                put_comma(out, at);
                put_container(out, container);
            }
            out.push(b']');
        }
    }
    out.push(b'}');
}

/// Appends a `PartialObjectMetadata`.
pub(crate) fn put_partial(
    out: &mut Vec<u8>,
    api_version: &'static str,
    message: &[u8],
    resource_version: &str,
) {
    out.push(b'{');
    let kind = "PartialObjectMetadata";
    put_type_meta(out, TypeMeta { api_version, kind });
    out.extend_from_slice(b",\"metadata\":");
    put_metadata(out, Object::read(message).metadata, resource_version);
    out.push(b'}');
}

/// Appends the fields that say what something is.
pub(crate) fn put_type_meta(out: &mut Vec<u8>, type_meta: TypeMeta) {
    out.extend_from_slice(b"\"kind\":\"");
    out.extend_from_slice(type_meta.kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(type_meta.api_version.as_bytes());
    out.push(b'"');
}

/// Appends the metadata of a list.
pub(crate) fn put_list_meta(out: &mut Vec<u8>, resource_version: &str) {
    if resource_version.is_empty() {
        out.extend_from_slice(b"{}");
        return;
    }
    out.extend_from_slice(b"{\"resourceVersion\":\"");
    out.extend_from_slice(resource_version.as_bytes());
    out.extend_from_slice(b"\"}");
}

/// Appends a string with the escapes of Go's encoder, which are also safe inside of HTML.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    if text.bytes().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
    } else {
        put_escaped(out, text);
    }
    out.push(b'"');
}

/// Appends a comma before all but the first.
pub(crate) fn put_comma(out: &mut Vec<u8>, at: usize) {
    if at > 0 {
        out.push(b',');
    }
}

fn put_metadata(out: &mut Vec<u8>, metadata: &[u8], resource_version: &str) {
    out.push(b'{');
    let mut fields = 0;
    // The map that is open, and how many entries it has.
    let mut map = (0, 0);
    let mut put_key = |out: &mut Vec<u8>, key: &[u8]| {
        put_comma(out, fields);
        fields += 1;
        out.extend_from_slice(key);
    };
    for (number, value) in Fields::new(metadata) {
        match (number, value) {
            (_, Value::Bytes([])) if number != 6 => {}
            (1, _) => {
                put_key(out, b"\"name\":");
                put_text(out, value.text());
            }
            (3, _) => {
                put_key(out, b"\"namespace\":");
                put_text(out, value.text());
            }
            (6, _) if !resource_version.is_empty() => {
                put_key(out, b"\"resourceVersion\":");
                put_text(out, resource_version);
            }
            (8, _) => {
                put_key(out, b"\"creationTimestamp\":");
                put_time(out, value.inner_number());
            }
            (11 | 12, _) => {
                if map.0 != number {
                    if map.0 != 0 {
                        out.push(b'}');
                    }
                    map = (number, 0);
                    let labels = number == 11;
                    put_key(
                        out,
                        if labels {
                            b"\"labels\":{"
                        } else {
                            b"\"annotations\":{"
                        },
                    );
                }
                put_comma(out, map.1);
                map.1 += 1;
                let (key, value) = pair(value, Value::text);
                put_text(out, key);
                out.push(b':');
                put_text(out, value);
            }
            _ => {}
        }
    }
    if map.0 != 0 {
        out.push(b'}');
    }
    out.push(b'}');
}

fn put_container(out: &mut Vec<u8>, container: Value<'_>) {
    let container = container.bytes().unwrap_or_default();
    let mut fields = Fields::new(container);
    let name = fields.next().map_or("", |(_, name)| name.text());
    out.extend_from_slice(b"{\"name\":");
    put_text(out, name);
    out.extend_from_slice(b",\"usage\":");
    put_amounts(out, fields.rest(), 2);
    out.push(b'}');
}

fn put_amounts(out: &mut Vec<u8>, message: &[u8], field: u64) {
    out.push(b'{');
    for (at, (name, amount)) in amounts(message, field).enumerate() {
        put_comma(out, at);
        put_text(out, name);
        out.push(b':');
        put_text(out, amount);
    }
    out.push(b'}');
}

fn put_time(out: &mut Vec<u8>, seconds: Option<i64>) {
    let Some(seconds) = seconds else {
        out.extend_from_slice(b"null");
        return;
    };
    out.push(b'"');
    let time = Timestamp::from_unix_millis(seconds.saturating_mul(1000));
    out.extend_from_slice(time.rfc3339_seconds().as_bytes());
    out.push(b'"');
}

/// Whether a byte stands for itself: all but controls, what JSON or HTML give a meaning, and the first byte of the two
/// line separators that JavaScript does not allow in strings.
fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2)
}

fn put_escaped(out: &mut Vec<u8>, text: &str) {
    for c in text.chars() {
        let short = match c {
            '"' | '\\' => c,
            '\u{8}' => 'b',
            '\u{c}' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '<' | '>' | '&' | '\0'..' ' | '\u{2028}' | '\u{2029}' => {
                let hex = format!("\\u{:04x}", u32::from(c));
                out.extend_from_slice(hex.as_bytes());
                continue;
            }
            _ => {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
        };
        out.push(b'\\');
        out.extend_from_slice(short.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

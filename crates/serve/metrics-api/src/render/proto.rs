//! The protobuf encoding, byte for byte that of the generated Go code of Kubernetes: fields in the
//! order of their numbers, empty strings and zeros included, maps sorted by key.

use kubevitals_model::{GoDuration, Labels, Timestamp, Usage};
use kubevitals_protobuf::{put_varint, varint_len};
use kubevitals_usage::ContainerUsage;

use super::TypeMeta;
use super::layout::{
    container, entry, envelope, event, list, meta, object, quantity, status, time,
};
use super::reader::{Fields, Object};

pub(crate) use self::list_item::ItemWriter;

mod list_item;

/// The metadata of an object.
#[derive(Clone, Copy)]
pub(crate) struct Meta<'a> {
    pub(crate) name: &'a str,
    /// Empty for nodes.
    pub(crate) namespace: &'a str,
    pub(crate) created: Timestamp,
    pub(crate) labels: &'a Labels,
}

/// Appends the body of a node: its message without the metadata.
pub(crate) fn node_body(out: &mut Vec<u8>, usage: &Usage) {
    put_timestamp_and_window(out, usage);
    put_usage(out, object::USAGE, usage);
}

/// Appends the body of a pod: its message without the metadata. Timestamp and window are those of
/// `oldest`.
pub(crate) fn pod_body(out: &mut Vec<u8>, oldest: &Usage, containers: &[ContainerUsage]) {
    put_timestamp_and_window(out, oldest);
    for own in containers {
        put_nested(out, object::CONTAINERS, |out| {
            put_bytes(out, container::NAME, own.name.as_bytes());
            put_usage(out, container::USAGE, &own.usage);
        });
    }
}

/// Appends the message of an object.
pub(crate) fn put_message(out: &mut Vec<u8>, meta: Meta<'_>, body: &[u8]) {
    put_nested(out, object::METADATA, |out| put_meta(out, meta));
    out.extend_from_slice(body);
}

/// Returns the encoded size of an object as a list item.
pub(crate) fn item_len(meta: Meta<'_>, body: &[u8]) -> usize {
    let [len] = item_lens(meta, [body.len()]);
    len
}

/// Returns the encoded sizes of list items that differ only in the length of their bodies.
pub(crate) fn item_lens<const N: usize>(meta: Meta<'_>, bodies: [usize; N]) -> [usize; N] {
    let metadata = nested_len(meta_len(meta));
    bodies.map(|body| nested_len(metadata + body))
}

/// Whether metadata with these creation timestamps has the same length.
pub(crate) fn have_same_len(a: Timestamp, b: Timestamp) -> bool {
    a == b || time_len(a) == time_len(b)
}

/// Appends the part of a body before an object of `raw` bytes: the magic bytes and the start of a
/// `runtime.Unknown`.
pub(crate) fn put_envelope(out: &mut Vec<u8>, kind: TypeMeta, raw: usize) {
    out.extend_from_slice(&envelope::MAGIC);
    let kind_len = text_len(kind.api_version) + text_len(kind.kind);
    put_tag_and_len(out, envelope::TYPE_META, kind_len);
    put_bytes(out, envelope::API_VERSION, kind.api_version.as_bytes());
    put_bytes(out, envelope::KIND, kind.kind.as_bytes());
    put_tag_and_len(out, envelope::RAW, raw);
}

/// Appends the part of a body after the object: an empty content encoding and content type.
pub(crate) fn put_envelope_end(out: &mut Vec<u8>) {
    put_bytes(out, envelope::CONTENT_ENCODING, b"");
    put_bytes(out, envelope::CONTENT_TYPE, b"");
}

/// Returns the length of the body around an object of `raw` bytes.
pub(crate) fn enveloped_len(kind: TypeMeta, raw: usize) -> usize {
    let kind_len = text_len(kind.api_version) + text_len(kind.kind);
    envelope::MAGIC.len() + nested_len(kind_len) + nested_len(raw) + 2 * EMPTY_LEN
}

/// Returns the `metadata` field of a list.
pub(crate) fn list_meta(resource_version: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    let len = 2 * EMPTY_LEN + text_len(resource_version);
    put_tag_and_len(&mut out, list::METADATA, len);
    put_bytes(&mut out, list::SELF_LINK, b"");
    put_bytes(
        &mut out,
        list::RESOURCE_VERSION,
        resource_version.as_bytes(),
    );
    put_bytes(&mut out, list::CONTINUE, b"");
    out
}

/// Returns a copy of a message with a resource version in its metadata, which is empty in stored
/// messages.
pub(crate) fn with_version(message: &[u8], resource_version: &str) -> Option<Vec<u8>> {
    let mut fields = Fields::new(message);
    let (tag, metadata) = fields.next()?;
    let metadata = metadata.bytes().filter(|_| tag == object::METADATA)?;
    let mut own = Vec::with_capacity(metadata.len() + 24);
    let mut within = Fields::new(metadata);
    loop {
        let before = within.rest().len();
        let Some((tag, _)) = within.next() else {
            break;
        };
        let start = metadata.len() - before;
        let end = metadata.len() - within.rest().len();
        if tag == meta::RESOURCE_VERSION {
            put_bytes(&mut own, tag, resource_version.as_bytes());
        } else {
            own.extend_from_slice(metadata.get(start..end)?);
        }
    }
    let mut out = Vec::with_capacity(message.len() + 24);
    put_bytes(&mut out, object::METADATA, &own);
    out.extend_from_slice(fields.rest());
    Some(out)
}

/// Returns the `PartialObjectMetadata` of a message.
pub(crate) fn partial(message: &[u8]) -> Vec<u8> {
    let metadata = Object::read(message).metadata;
    let mut out = Vec::with_capacity(metadata.len() + 12);
    put_bytes(&mut out, object::METADATA, metadata);
    out
}

/// Returns the object of a bookmark, annotated if it ends the initial events.
pub(crate) fn bookmark(ends_initial_events: bool) -> Vec<u8> {
    let mut metadata = Vec::new();
    put_bytes(&mut metadata, meta::NAME, b"");
    metadata.extend_from_slice(&meta::EMPTY_GENERATE_NAME);
    put_bytes(&mut metadata, meta::NAMESPACE, b"");
    metadata.extend_from_slice(&meta::EMPTY_SELF_LINK_TO_GENERATION);
    put_bytes(&mut metadata, meta::CREATION_TIMESTAMP, b"");
    if ends_initial_events {
        let (key, value) = ("k8s.io/initial-events-end", "true");
        put_entry(&mut metadata, meta::ANNOTATIONS, key, value);
    }
    let mut out = Vec::new();
    put_bytes(&mut out, object::METADATA, &metadata);
    put_empty_timestamp_and_window(&mut out);
    out
}

/// Returns the encoded size of an object as an item of a `PartialObjectMetadataList`.
pub(crate) fn partial_item_len(meta: Meta<'_>) -> usize {
    item_len(meta, &[])
}

/// Returns the `metav1.Status` of an expired resource version.
pub(crate) fn expired_status(message: &str) -> Vec<u8> {
    let mut out = list_meta("");
    put_bytes(&mut out, status::STATUS, b"Failure");
    put_bytes(&mut out, status::MESSAGE, message.as_bytes());
    put_bytes(&mut out, status::REASON, b"Expired");
    out.push(status::CODE);
    put_varint(&mut out, 410);
    out
}

/// Appends a frame of a watch: its length, and a `WatchEvent` around the body of an object.
pub(crate) fn put_event(out: &mut Vec<u8>, event_type: &str, kind: TypeMeta, object: &[u8]) {
    let body = enveloped_len(kind, object.len());
    let raw = nested_len(body);
    let frame = text_len(event_type) + nested_len(raw);
    out.extend_from_slice(&u32::try_from(frame).unwrap_or(u32::MAX).to_be_bytes());
    put_bytes(out, event::TYPE, event_type.as_bytes());
    put_tag_and_len(out, event::OBJECT, raw);
    put_tag_and_len(out, event::RAW, body);
    put_envelope(out, kind, object.len());
    out.extend_from_slice(object);
    put_envelope_end(out);
}

/// Returns the message of an object of which only the metadata is known.
pub(crate) fn without_usage(meta: Meta<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put_nested(&mut out, object::METADATA, |out| put_meta(out, meta));
    put_empty_timestamp_and_window(&mut out);
    out
}

/// Tag and length of an empty string, or tag and value of a zero.
const EMPTY_LEN: usize = 2;

fn put_timestamp_and_window(out: &mut Vec<u8>, usage: &Usage) {
    put_time(out, object::TIMESTAMP, usage.timestamp);
    put_nested(out, object::WINDOW, |out| {
        out.push(time::DURATION);
        put_varint(out, window(usage));
    });
}

fn put_empty_timestamp_and_window(out: &mut Vec<u8>) {
    put_bytes(out, object::TIMESTAMP, b"");
    put_bytes(out, object::WINDOW, &[time::DURATION, 0]);
}

fn put_meta(out: &mut Vec<u8>, of: Meta<'_>) {
    put_bytes(out, meta::NAME, of.name.as_bytes());
    out.extend_from_slice(&meta::EMPTY_GENERATE_NAME);
    put_bytes(out, meta::NAMESPACE, of.namespace.as_bytes());
    out.extend_from_slice(&meta::EMPTY_SELF_LINK_TO_GENERATION);
    put_time(out, meta::CREATION_TIMESTAMP, of.created);
    put_labels(out, of.labels);
}

fn put_labels(out: &mut Vec<u8>, labels: &Labels) {
    for (key, value) in labels.iter() {
        put_entry(out, meta::LABELS, key, value);
    }
}

/// Appends the entry of a map from string to string.
fn put_entry(out: &mut Vec<u8>, tag: u8, key: &str, value: &str) {
    put_nested(out, tag, |out| {
        put_bytes(out, entry::KEY, key.as_bytes());
        put_bytes(out, entry::VALUE, value.as_bytes());
    });
}

/// Returns the length of what [`put_meta`] appends.
fn meta_len(of: Meta<'_>) -> usize {
    let labels = of
        .labels
        .iter()
        .map(|(key, value)| nested_len(text_len(key) + text_len(value)));
    text_len(of.name)
        + text_len(of.namespace)
        + meta::EMPTY_GENERATE_NAME.len()
        + meta::EMPTY_SELF_LINK_TO_GENERATION.len()
        + time_len(of.created)
        + labels.sum::<usize>()
}

/// Appends a time in whole seconds: Kubernetes omits fractions here, since its JSON has none.
fn put_time(out: &mut Vec<u8>, tag: u8, timestamp: Timestamp) {
    put_nested(out, tag, |out| {
        out.push(time::SECONDS);
        put_varint(out, timestamp.unix_seconds().cast_unsigned());
        out.extend_from_slice(&[time::NANOSECONDS, 0]);
    });
}

/// Returns the length of what [`put_time`] appends.
fn time_len(timestamp: Timestamp) -> usize {
    let seconds = timestamp.unix_seconds().cast_unsigned();
    nested_len(1 + varint_len(seconds) + EMPTY_LEN)
}

fn window(usage: &Usage) -> u64 {
    GoDuration::saturating_from(usage.window)
        .as_nanos()
        .cast_unsigned()
}

/// Appends the resources of a usage, sorted by name.
fn put_usage(out: &mut Vec<u8>, tag: u8, usage: &Usage) {
    put_amount(out, tag, "cpu", |out| usage.cpu.write_to(out));
    if let Some(storage) = usage.ephemeral_storage {
        put_amount(out, tag, "ephemeral-storage", |out| {
            storage.write_to(out);
        });
    }
    put_amount(out, tag, "memory", |out| usage.memory.write_to(out));
    if let Some(swap) = usage.swap {
        put_amount(out, tag, "swap", |out| swap.write_to(out));
    }
}

/// Appends the entry of a map from resource to quantity.
#[inline]
fn put_amount(out: &mut Vec<u8>, tag: u8, name: &str, text: impl FnOnce(&mut Vec<u8>)) {
    put_nested(out, tag, |out| {
        put_bytes(out, entry::KEY, name.as_bytes());
        put_nested(out, entry::VALUE, |out| {
            put_nested(out, quantity::TEXT, text);
        });
    });
}

/// Returns the length of a field with its tag and length prefix.
const fn nested_len(content: usize) -> usize {
    1 + varint_len(content as u64) + content
}

const fn text_len(text: &str) -> usize {
    nested_len(text.len())
}

/// Appends a length-delimited field. The length is known once the content is written, and mostly
/// takes one byte.
#[inline]
fn put_nested(out: &mut Vec<u8>, tag: u8, content: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[tag, 0]);
    let start = out.len();
    content(out);
    let len = (out.len() - start) as u64;
    let Some(first) = out.get_mut(start - 1) else {
        return;
    };
    *first = (len & 0x7f) as u8;
    if len >= 0x80 {
        *first |= 0x80;
        put_rest_of_len(out, start, len >> 7);
    }
}

/// Inserts the remaining bytes of a length between its first byte and the content at `start`.
fn put_rest_of_len(out: &mut Vec<u8>, start: usize, rest: u64) {
    let end = out.len();
    put_varint(out, rest);
    let more = out.len() - end;
    if let Some(content) = out.get_mut(start..) {
        content.rotate_right(more);
    }
}

#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    put_tag_and_len(out, tag, bytes.len());
    out.extend_from_slice(bytes);
}

#[inline]
pub(crate) fn put_tag_and_len(out: &mut Vec<u8>, tag: u8, len: usize) {
    out.push(tag);
    put_varint(out, len as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_inserted_afterwards_equals_one_written_first() {
        for len in [0_usize, 1, 127, 128, 129, 16_383, 16_384, 2_097_152] {
            let content: Vec<u8> = (0..=250).cycle().take(len).collect();
            let mut expected = b"before".to_vec();
            put_bytes(&mut expected, list::ITEMS, &content);
            let mut out = b"before".to_vec();
            put_nested(&mut out, list::ITEMS, |out| out.extend_from_slice(&content));
            assert!(out == expected, "{len}");
        }
    }
}

//! Protobuf as Go's generated code of Kubernetes writes it, byte by byte: fields in the order of
//! their numbers, empty strings and zeros written out, maps in the order of their keys.

use kubevitals_model::{GoDuration, Labels, Timestamp, Usage};
use kubevitals_usage::ContainerUsage;

use super::TypeMeta;

pub(crate) use self::items::Items;

mod items;

/// Every body begins with it.
const MAGIC: [u8; 4] = *b"k8s\0";

/// What is said of an object besides its usage.
#[derive(Clone, Copy)]
pub(crate) struct Meta<'a> {
    pub(crate) name: &'a str,
    /// Empty for nodes.
    pub(crate) namespace: &'a str,
    pub(crate) created: Timestamp,
    pub(crate) labels: &'a Labels,
}

/// Appends the body of a node: all of its message that is not metadata.
pub(crate) fn node_body(out: &mut Vec<u8>, usage: &Usage) {
    put_measured(out, usage);
    put_amounts(out, tag(4, LEN), usage);
}

/// Appends the body of a pod: all of its message that is not metadata. Time and window are those of
/// `oldest`.
pub(crate) fn pod_body(out: &mut Vec<u8>, oldest: &Usage, containers: &[ContainerUsage]) {
    put_measured(out, oldest);
    for container in containers {
        put_block(out, tag(4, LEN), |out| {
            put_text(out, tag(1, LEN), container.name.as_bytes());
            put_amounts(out, tag(2, LEN), &container.usage);
        });
    }
}

/// Appends the message of an object.
pub(crate) fn put_message(out: &mut Vec<u8>, meta: Meta<'_>, body: &[u8]) {
    put_block(out, tag(1, LEN), |out| put_meta(out, meta));
    out.extend_from_slice(body);
}

/// How long an object is as the item of a list.
pub(crate) fn item_len(meta: Meta<'_>, body: &[u8]) -> usize {
    let [len] = item_lens(meta, [body.len()]);
    len
}

/// How long items are that differ in the length of their bodies alone.
pub(crate) fn item_lens<const N: usize>(meta: Meta<'_>, bodies: [usize; N]) -> [usize; N] {
    let metadata = block_len(meta_len(meta));
    bodies.map(|body| block_len(metadata + body))
}

/// Whether objects that differ in the time of their creation alone are of one length.
pub(crate) fn are_as_long(a: Timestamp, b: Timestamp) -> bool {
    a == b || time_len(a) == time_len(b)
}

/// Appends everything of a body that comes before an object of `raw` bytes: the magic bytes and the
/// start of a `runtime.Unknown`.
pub(crate) fn put_envelope(out: &mut Vec<u8>, kind: TypeMeta, raw: usize) {
    out.extend_from_slice(&MAGIC);
    let kind_len = text_len(kind.api_version) + text_len(kind.kind);
    put_tag_and_len(out, tag(1, LEN), kind_len);
    put_text(out, tag(1, LEN), kind.api_version.as_bytes());
    put_text(out, tag(2, LEN), kind.kind.as_bytes());
    put_tag_and_len(out, tag(2, LEN), raw);
}

/// Appends what comes after the object: neither its encoding nor its type is named.
pub(crate) fn put_envelope_end(out: &mut Vec<u8>) {
    put_text(out, tag(3, LEN), b"");
    put_text(out, tag(4, LEN), b"");
}

/// How long the whole body is of which the object takes `raw` bytes.
pub(crate) fn enveloped_len(kind: TypeMeta, raw: usize) -> usize {
    let kind_len = text_len(kind.api_version) + text_len(kind.kind);
    MAGIC.len() + block_len(kind_len) + block_len(raw) + 2 * EMPTY_TEXT
}

/// The `metadata` field of a list.
pub(crate) fn list_meta(resource_version: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    put_tag_and_len(
        &mut out,
        tag(1, LEN),
        2 * EMPTY_TEXT + text_len(resource_version),
    );
    put_text(&mut out, tag(1, LEN), b"");
    put_text(&mut out, tag(2, LEN), resource_version.as_bytes());
    put_text(&mut out, tag(3, LEN), b"");
    out
}

/// The message of an object with a resource version in its metadata, which kept messages have
/// empty.
pub(crate) fn with_version(message: &[u8], resource_version: &str) -> Option<Vec<u8>> {
    let mut fields = super::message::Fields::new(message);
    let (number, metadata) = fields.next()?;
    let metadata = metadata.bytes().filter(|_| number == 1)?;
    let mut own = Vec::with_capacity(metadata.len() + 24);
    let mut within = super::message::Fields::new(metadata);
    loop {
        let before = within.rest().len();
        let Some((number, _)) = within.next() else {
            break;
        };
        let start = metadata.len() - before;
        let end = metadata.len() - within.rest().len();
        if number == 6 {
            put_text(&mut own, tag(6, LEN), resource_version.as_bytes());
        } else {
            own.extend_from_slice(metadata.get(start..end)?);
        }
    }
    let mut out = Vec::with_capacity(message.len() + 24);
    put_text(&mut out, tag(1, LEN), &own);
    out.extend_from_slice(fields.rest());
    Some(out)
}

/// A `PartialObjectMetadata`: of the message of an object only its metadata.
pub(crate) fn partial(message: &[u8]) -> Vec<u8> {
    let metadata = super::message::Object::read(message).metadata;
    let mut out = Vec::with_capacity(metadata.len() + 12);
    put_text(&mut out, tag(1, LEN), metadata);
    out
}

/// The message of an object that only carries a version, and says whether it ends what was there at
/// the beginning.
pub(crate) fn bookmark(initial_end: bool) -> Vec<u8> {
    let mut metadata = Vec::new();
    for field in 1..=6 {
        put_text(&mut metadata, tag(field, LEN), b"");
    }
    metadata.extend_from_slice(&[tag(7, VARINT), 0]);
    put_text(&mut metadata, tag(8, LEN), b"");
    if initial_end {
        let (key, value) = ("k8s.io/initial-events-end", "true");
        put_tag_and_len(&mut metadata, tag(12, LEN), text_len(key) + text_len(value));
        put_text(&mut metadata, tag(1, LEN), key.as_bytes());
        put_text(&mut metadata, tag(2, LEN), value.as_bytes());
    }
    let mut out = Vec::new();
    put_text(&mut out, tag(1, LEN), &metadata);
    put_unmeasured(&mut out);
    out
}

/// How long an object is as the item of a list of `PartialObjectMetadata`, which has only its
/// metadata.
pub(crate) fn partial_item_len(meta: Meta<'_>) -> usize {
    item_len(meta, &[])
}

/// A `metav1.Status` about a version that is gone.
pub(crate) fn expired_status(message: &str) -> Vec<u8> {
    let mut out = list_meta("");
    put_text(&mut out, tag(2, LEN), b"Failure");
    put_text(&mut out, tag(3, LEN), message.as_bytes());
    put_text(&mut out, tag(4, LEN), b"Expired");
    out.push(tag(6, VARINT));
    put_varint(&mut out, 410);
    out
}

/// Appends a frame of a watch: its length, and a `WatchEvent` around the body of an object.
pub(crate) fn put_event(out: &mut Vec<u8>, event: &str, kind: TypeMeta, object: &[u8]) {
    let body = enveloped_len(kind, object.len());
    let raw = block_len(body);
    let frame = text_len(event) + block_len(raw);
    out.extend_from_slice(&u32::try_from(frame).unwrap_or(u32::MAX).to_be_bytes());
    put_text(out, tag(1, LEN), event.as_bytes());
    put_tag_and_len(out, tag(2, LEN), raw);
    put_tag_and_len(out, tag(1, LEN), body);
    put_envelope(out, kind, object.len());
    out.extend_from_slice(object);
    put_envelope_end(out);
}

/// The message of an object that is gone: of it only the metadata is left.
pub(crate) fn departed(meta: Meta<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put_block(&mut out, tag(1, LEN), |out| put_meta(out, meta));
    put_unmeasured(&mut out);
    out
}

pub(crate) const LEN: u8 = 2;
const VARINT: u8 = 0;
/// The tag of a list's items.
pub(crate) const ITEMS: u8 = tag(2, LEN);
const EMPTY_TEXT: usize = 2;
/// What stands between the name and the namespace: no beginning of a generated name.
pub(crate) const NO_GENERATED_NAME: [u8; 2] = [tag(2, LEN), 0];
/// What stands between the namespace and the creation: no link, no identity, no version, and no
/// generation.
pub(crate) const NO_LINK_TO_GENERATION: [u8; 8] = [
    tag(4, LEN),
    0,
    tag(5, LEN),
    0,
    tag(6, LEN),
    0,
    tag(7, VARINT),
    0,
];

pub(crate) const fn tag(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

/// When, and over which time.
fn put_measured(out: &mut Vec<u8>, usage: &Usage) {
    put_time(out, tag(2, LEN), usage.timestamp);
    put_block(out, tag(3, LEN), |out| {
        out.push(tag(1, VARINT));
        put_varint(out, window(usage));
    });
}

/// No time, and an empty window.
fn put_unmeasured(out: &mut Vec<u8>) {
    put_text(out, tag(2, LEN), b"");
    put_text(out, tag(3, LEN), &[tag(1, VARINT), 0]);
}

fn put_meta(out: &mut Vec<u8>, meta: Meta<'_>) {
    put_text(out, tag(1, LEN), meta.name.as_bytes());
    out.extend_from_slice(&NO_GENERATED_NAME);
    put_text(out, tag(3, LEN), meta.namespace.as_bytes());
    out.extend_from_slice(&NO_LINK_TO_GENERATION);
    put_time(out, tag(8, LEN), meta.created);
    put_labels(out, meta.labels);
}

fn put_labels(out: &mut Vec<u8>, labels: &Labels) {
    for (key, value) in labels.iter() {
        put_block(out, tag(11, LEN), |out| {
            put_text(out, tag(1, LEN), key.as_bytes());
            put_text(out, tag(2, LEN), value.as_bytes());
        });
    }
}

/// What [`put_meta`] appends.
fn meta_len(meta: Meta<'_>) -> usize {
    let labels = meta
        .labels
        .iter()
        .map(|(key, value)| block_len(text_len(key) + text_len(value)));
    text_len(meta.name)
        + text_len(meta.namespace)
        // The name's beginning, the link, the identity, the version, and the generation.
        + 5 * EMPTY_TEXT
        + time_len(meta.created)
        + labels.sum::<usize>()
}

/// Whole seconds: Kubernetes leaves out fractions here, since its JSON has none.
fn put_time(out: &mut Vec<u8>, tag_of: u8, time: Timestamp) {
    put_block(out, tag_of, |out| {
        out.push(tag(1, VARINT));
        put_varint(out, time.unix_seconds().cast_unsigned());
        out.extend_from_slice(&[tag(2, VARINT), 0]);
    });
}

/// What [`put_time`] appends.
fn time_len(time: Timestamp) -> usize {
    let seconds = time.unix_seconds().cast_unsigned();
    block_len(1 + varint_len(seconds) + EMPTY_TEXT)
}

fn window(usage: &Usage) -> u64 {
    GoDuration::saturating_from(usage.window)
        .as_nanos()
        .cast_unsigned()
}

/// Appends the amounts in the order of their names.
fn put_amounts(out: &mut Vec<u8>, tag_of: u8, usage: &Usage) {
    put_amount(out, tag_of, "cpu", |out| usage.cpu.write_to(out));
    if let Some(storage) = usage.ephemeral_storage {
        put_amount(out, tag_of, "ephemeral-storage", |out| {
            storage.write_to(out);
        });
    }
    put_amount(out, tag_of, "memory", |out| usage.memory.write_to(out));
    if let Some(swap) = usage.swap {
        put_amount(out, tag_of, "swap", |out| swap.write_to(out));
    }
}

/// Appends the entry of a map from name to quantity.
#[inline]
fn put_amount(out: &mut Vec<u8>, tag_of: u8, name: &str, text: impl FnOnce(&mut Vec<u8>)) {
    put_block(out, tag_of, |out| {
        put_text(out, tag(1, LEN), name.as_bytes());
        put_block(out, tag(2, LEN), |out| {
            put_block(out, tag(1, LEN), text);
        });
    });
}

/// Tag, length and content; all tags here are below 16, so that they take one byte.
const fn block_len(content: usize) -> usize {
    1 + varint_len(content as u64) + content
}

const fn text_len(text: &str) -> usize {
    block_len(text.len())
}

/// Appends tag, length and content of a block: the length is known once the content is written, and
/// mostly takes one byte.
#[inline]
fn put_block(out: &mut Vec<u8>, tag: u8, content: impl FnOnce(&mut Vec<u8>)) {
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

/// Puts what is left of a length between its first byte and the content, which begins at `start`.
fn put_rest_of_len(out: &mut Vec<u8>, start: usize, rest: u64) {
    let end = out.len();
    put_varint(out, rest);
    let more = out.len() - end;
    if let Some(content) = out.get_mut(start..) {
        content.rotate_right(more);
    }
}

#[inline]
pub(crate) fn put_text(out: &mut Vec<u8>, tag: u8, text: &[u8]) {
    put_tag_and_len(out, tag, text.len());
    out.extend_from_slice(text);
}

#[inline]
pub(crate) fn put_tag_and_len(out: &mut Vec<u8>, tag: u8, len: usize) {
    out.push(tag);
    put_varint(out, len as u64);
}

#[inline]
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_is_put_in_afterwards_is_the_one_that_was_known_before() {
        for len in [0_usize, 1, 127, 128, 129, 16_383, 16_384, 2_097_152] {
            let content: Vec<u8> = (0..=250).cycle().take(len).collect();
            let mut expected = b"before".to_vec();
            put_text(&mut expected, ITEMS, &content);
            let mut out = b"before".to_vec();
            put_block(&mut out, ITEMS, |out| out.extend_from_slice(&content));
            assert!(out == expected, "{len}");
        }
    }
}

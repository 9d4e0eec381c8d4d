//! Protobuf as Go's generated code of Kubernetes writes it, byte by byte: fields in the order of their numbers, empty
//! strings and zeros written out, maps in the order of their keys.

use kubevitals_model::{GoDuration, Labels, Timestamp, Usage};
use kubevitals_usage::ContainerUsage;

use super::TypeMeta;

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

/// Where the seconds of the creation are in what was written: that one may compare without them.
pub(crate) struct Written {
    pub(crate) seconds: std::ops::Range<usize>,
}

/// Appends the item of a node to a buffer.
pub(crate) fn node_item(out: &mut Vec<u8>, meta: Meta<'_>, usage: &Usage) -> Written {
    let head = head_len(meta, usage);
    let amounts = amounts_len(usage);
    put_tag_and_len(out, ITEMS, head + amounts);
    let written = put_head(out, meta, usage);
    put_amounts(out, tag(4, LEN), usage);
    written
}

/// Appends the item of a pod to a buffer. Time and window are those of `oldest`.
pub(crate) fn pod_item(
    out: &mut Vec<u8>,
    meta: Meta<'_>,
    oldest: &Usage,
    containers: &[ContainerUsage],
) -> Written {
    let own =
        |container: &ContainerUsage| text_len(&container.name) + amounts_len(&container.usage);
    let all: usize = containers
        .iter()
        .map(|container| block_len(own(container)))
        .sum();
    put_tag_and_len(out, ITEMS, head_len(meta, oldest) + all);
    let written = put_head(out, meta, oldest);
    for container in containers {
        put_tag_and_len(out, tag(4, LEN), own(container));
        put_text(out, tag(1, LEN), container.name.as_bytes());
        put_amounts(out, tag(2, LEN), &container.usage);
    }
    written
}

/// Appends everything of a body that comes before an object of `raw` bytes: the magic bytes and the start of a
/// `runtime.Unknown`.
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

/// The message of an object with a resource version in its metadata, which kept messages have empty.
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

/// The message of an object that only carries a version, and says whether it ends what was there at the beginning.
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

/// The item of a list of `PartialObjectMetadata`: of the object only its metadata.
pub(crate) fn partial_item(item: &[u8]) -> Vec<u8> {
    let metadata = super::message::Object::read(super::message::message_of(item)).metadata;
    let mut out = Vec::with_capacity(metadata.len() + 12);
    put_tag_and_len(&mut out, ITEMS, block_len(metadata.len()));
    put_text(&mut out, tag(1, LEN), metadata);
    out
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
    put_tag_and_len(&mut out, tag(1, LEN), meta_len(meta));
    put_meta(&mut out, meta);
    put_unmeasured(&mut out);
    out
}

pub(crate) const LEN: u8 = 2;
const VARINT: u8 = 0;
/// The tag of a list's items.
pub(crate) const ITEMS: u8 = tag(2, LEN);
const EMPTY_TEXT: usize = 2;

pub(crate) const fn tag(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

fn head_len(meta: Meta<'_>, usage: &Usage) -> usize {
    block_len(meta_len(meta))
        + block_len(time_len(usage.timestamp))
        + block_len(1 + varint_len(window(usage)))
}

fn put_head(out: &mut Vec<u8>, meta: Meta<'_>, usage: &Usage) -> Written {
    put_tag_and_len(out, tag(1, LEN), meta_len(meta));
    let written = put_meta(out, meta);
    put_time(out, tag(2, LEN), usage.timestamp);
    let window = window(usage);
    put_tag_and_len(out, tag(3, LEN), 1 + varint_len(window));
    out.push(tag(1, VARINT));
    put_varint(out, window);
    written
}

/// No time, and an empty window.
fn put_unmeasured(out: &mut Vec<u8>) {
    put_text(out, tag(2, LEN), b"");
    put_text(out, tag(3, LEN), &[tag(1, VARINT), 0]);
}

fn meta_len(meta: Meta<'_>) -> usize {
    let labels: usize = meta
        .labels
        .iter()
        .map(|(key, value)| block_len(text_len(key) + text_len(value)))
        .sum();
    text_len(meta.name)
        + text_len(meta.namespace)
        // The name's beginning, the link, the identity, the version, and the generation.
        + 5 * EMPTY_TEXT
        + block_len(time_len(meta.created))
        + labels
}

fn put_meta(out: &mut Vec<u8>, meta: Meta<'_>) -> Written {
    put_text(out, tag(1, LEN), meta.name.as_bytes());
    put_text(out, tag(2, LEN), b"");
    put_text(out, tag(3, LEN), meta.namespace.as_bytes());
    put_text(out, tag(4, LEN), b"");
    put_text(out, tag(5, LEN), b"");
    put_text(out, tag(6, LEN), b"");
    out.extend_from_slice(&[tag(7, VARINT), 0]);
    let start = out.len();
    put_time(out, tag(8, LEN), meta.created);
    let end = out.len();
    for (key, value) in meta.labels.iter() {
        put_tag_and_len(out, tag(11, LEN), text_len(key) + text_len(value));
        put_text(out, tag(1, LEN), key.as_bytes());
        put_text(out, tag(2, LEN), value.as_bytes());
    }
    Written {
        seconds: start..end,
    }
}

/// Whole seconds: Kubernetes leaves out fractions here, since its JSON has none.
fn put_time(out: &mut Vec<u8>, tag_of: u8, time: Timestamp) {
    put_tag_and_len(out, tag_of, time_len(time));
    out.push(tag(1, VARINT));
    put_varint(out, time.unix_seconds().cast_unsigned());
    out.extend_from_slice(&[tag(2, VARINT), 0]);
}

fn time_len(time: Timestamp) -> usize {
    1 + varint_len(time.unix_seconds().cast_unsigned()) + 2
}

fn window(usage: &Usage) -> u64 {
    GoDuration::saturating_from(usage.window)
        .as_nanos()
        .cast_unsigned()
}

/// The amounts in the order of their names, with the length of each one's text.
fn amounts(usage: &Usage) -> impl Iterator<Item = (&'static str, Amount)> {
    let bytes = |name, amount: Option<_>| amount.map(|amount| (name, Amount::Bytes(amount)));
    [
        Some(("cpu", Amount::Cpu(usage.cpu))),
        bytes("ephemeral-storage", usage.ephemeral_storage),
        bytes("memory", Some(usage.memory)),
        bytes("swap", usage.swap),
    ]
    .into_iter()
    .flatten()
}

#[derive(Clone, Copy)]
enum Amount {
    Cpu(kubevitals_model::CpuUsage),
    Bytes(kubevitals_model::Bytes),
}

impl Amount {
    fn len(self) -> usize {
        match self {
            Self::Cpu(cpu) => cpu.text_len(),
            Self::Bytes(bytes) => bytes.text_len(),
        }
    }
}

fn amount_len(name: &str, amount: Amount) -> usize {
    text_len(name) + block_len(block_len(amount.len()))
}

fn amounts_len(usage: &Usage) -> usize {
    amounts(usage)
        .map(|(name, amount)| block_len(amount_len(name, amount)))
        .sum()
}

fn put_amounts(out: &mut Vec<u8>, tag_of: u8, usage: &Usage) {
    for (name, amount) in amounts(usage) {
        put_tag_and_len(out, tag_of, amount_len(name, amount));
        put_text(out, tag(1, LEN), name.as_bytes());
        put_tag_and_len(out, tag(2, LEN), block_len(amount.len()));
        put_tag_and_len(out, tag(1, LEN), amount.len());
        match amount {
            Amount::Cpu(cpu) => cpu.write_to(out),
            Amount::Bytes(bytes) => bytes.write_to(out),
        }
    }
}

/// Tag, length and content; all tags here are below 16, so that they take one byte.
const fn block_len(content: usize) -> usize {
    1 + varint_len(content as u64) + content
}

const fn text_len(text: &str) -> usize {
    block_len(text.len())
}

pub(crate) fn put_text(out: &mut Vec<u8>, tag: u8, text: &[u8]) {
    put_tag_and_len(out, tag, text.len());
    out.extend_from_slice(text);
}

pub(crate) fn put_tag_and_len(out: &mut Vec<u8>, tag: u8, len: usize) {
    out.push(tag);
    put_varint(out, len as u64);
}

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

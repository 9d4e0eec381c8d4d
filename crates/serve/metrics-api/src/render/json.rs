//! The JSON encoding, byte for byte that of Go, from stored protobuf messages.
//!
//! A list of all pods encodes every one of them, so it is one pass over the message: strings are
//! copied as bytes unless they need escapes, constant parts are as long as possible, and formatted
//! times are cached.

use kubevitals_model::{GoDuration, Timestamp};

use self::list_item::put_common_container;
use super::label_cache::LabelCache;
use super::layout::meta;
use super::proto::{self, Meta};
use super::reader::{Fields, Object, Value, key_and_value, quantity};
use super::{Kind, TypeMeta};

mod list_item;

/// Cached times: more than there are seconds between two publications of a node.
const CACHED_TIMES: usize = 64;

/// Encodes objects. Reused for the next object, which often has the same times.
pub(crate) struct Writer {
    times: [(i64, [u8; TIME_LEN]); CACHED_TIMES],
    /// A namespace, and the encoded part between name and creation timestamp for it.
    namespace: (String, Vec<u8>),
    /// The encoded part between creation timestamp and timestamp, by labels.
    labels: LabelCache,
}

/// 0000-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
const FIRST_SECOND: i64 = -62_167_219_200;
const LAST_SECOND: i64 = 253_402_300_799;

/// The length of a time until the year 9999.
const TIME_LEN: usize = "2006-01-02T15:04:05Z".len();

impl Writer {
    pub(crate) fn new() -> Self {
        Self {
            times: [(i64::MIN, [0; TIME_LEN]); CACHED_TIMES],
            namespace: (String::new(), list_item::after_name("")),
            labels: LabelCache::default(),
        }
    }

    /// Appends an object. List items have no `type_meta`.
    pub(crate) fn put_object(
        &mut self,
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
        self.put_metadata(out, object.metadata, resource_version);
        out.extend_from_slice(b",\"timestamp\":");
        self.put_time(out, object.timestamp);
        put_window_and_usage(out, kind, object.window, object.rest);
    }

    /// Appends a `PartialObjectMetadata`.
    pub(crate) fn put_partial(
        &mut self,
        out: &mut Vec<u8>,
        api_version: &'static str,
        message: &[u8],
        resource_version: &str,
    ) {
        out.push(b'{');
        let kind = "PartialObjectMetadata";
        put_type_meta(out, TypeMeta { api_version, kind });
        out.extend_from_slice(b",\"metadata\":");
        self.put_metadata(out, Object::read(message).metadata, resource_version);
        out.push(b'}');
    }

    fn put_metadata(&mut self, out: &mut Vec<u8>, metadata: &[u8], resource_version: &str) {
        out.push(b'{');
        let start = out.len();
        // The tag of the open map: objects have labels, bookmarks annotations, none has both.
        let mut map = 0;
        let mut fields = Fields::new(metadata);
        while let Some((tag, value)) = fields.next() {
            // Fields that are empty in all objects are skipped at once.
            match tag {
                meta::NAME => fields.skip_prefix(&meta::EMPTY_GENERATE_NAME),
                meta::NAMESPACE if resource_version.is_empty() => {
                    fields.skip_prefix(&meta::EMPTY_SELF_LINK_TO_GENERATION);
                }
                _ => {}
            }
            let Value::Bytes(bytes) = value else {
                continue;
            };
            let is_version = tag == meta::RESOURCE_VERSION;
            if bytes.is_empty() && !is_version {
                continue;
            }
            if out.len() > start && (!is_version || !resource_version.is_empty()) && map != tag {
                out.push(b',');
            }
            match tag {
                meta::NAME => put_quoted(out, b"\"name\":\"", bytes),
                meta::NAMESPACE => put_quoted(out, b"\"namespace\":\"", bytes),
                meta::RESOURCE_VERSION if !resource_version.is_empty() => {
                    put_quoted(out, b"\"resourceVersion\":\"", resource_version.as_bytes());
                }
                meta::CREATION_TIMESTAMP => {
                    out.extend_from_slice(b"\"creationTimestamp\":");
                    self.put_time(out, value.inner_number());
                }
                meta::LABELS | meta::ANNOTATIONS if map == tag => put_entry(out, b",\"", bytes),
                meta::LABELS => put_entry(out, b"\"labels\":{\"", bytes),
                meta::ANNOTATIONS => put_entry(out, b"\"annotations\":{\"", bytes),
                _ => {}
            }
            if matches!(tag, meta::LABELS | meta::ANNOTATIONS) {
                map = tag;
            }
        }
        out.extend_from_slice(if map == 0 { b"}" } else { b"}}" });
    }

    fn put_time(&mut self, out: &mut Vec<u8>, seconds: Option<i64>) {
        let Some(seconds) = seconds else {
            out.extend_from_slice(b"null");
            return;
        };
        out.push(b'"');
        self.put_unquoted_time(out, seconds);
        out.push(b'"');
    }

    /// Appends a time without quotes.
    #[inline]
    fn put_unquoted_time(&mut self, out: &mut Vec<u8>, seconds: i64) {
        let index =
            usize::try_from(seconds.cast_unsigned() % CACHED_TIMES as u64).unwrap_or_default();
        match self.times.get(index) {
            Some((cached, text)) if *cached == seconds => out.extend_from_slice(text),
            _ => self.put_uncached_time(out, seconds, index),
        }
    }

    #[cold]
    fn put_uncached_time(&mut self, out: &mut Vec<u8>, seconds: i64, index: usize) {
        // Go decodes years of four digits only, and one time that it cannot decode makes a whole
        // list unreadable.
        let clamped = seconds.clamp(FIRST_SECOND, LAST_SECOND);
        let time = Timestamp::from_unix_millis(clamped * 1000);
        let text = time.rfc3339_seconds();
        out.extend_from_slice(text.as_bytes());
        if let (Some(cached), Ok(text)) = (self.times.get_mut(index), text.as_bytes().try_into()) {
            *cached = (seconds, text);
        }
    }
}

/// Appends the fields after the timestamp.
fn put_window_and_usage(out: &mut Vec<u8>, kind: Kind, window: i64, rest: &[u8]) {
    out.extend_from_slice(b",\"window\":\"");
    put_window(out, window);
    match kind {
        Kind::Node => {
            out.extend_from_slice(b"\",\"usage\":{");
            put_amounts(out, Fields::new(rest));
            out.extend_from_slice(b"}}");
        }
        Kind::Pod => {
            out.extend_from_slice(b"\",\"containers\":[");
            for (at, (_, container)) in Fields::new(rest).enumerate() {
                put_comma(out, at);
                put_container(out, container);
            }
            out.extend_from_slice(b"]}");
        }
    }
}

/// Appends a window, with a fast path for whole milliseconds of less than a minute, as kubelets
/// report them.
#[inline]
fn put_window(out: &mut Vec<u8>, nanoseconds: i64) {
    let milliseconds = match u64::try_from(nanoseconds) {
        Ok(nanoseconds) if nanoseconds % 1_000_000 == 0 => nanoseconds / 1_000_000,
        _ => 0,
    };
    if !(1_000..60_000).contains(&milliseconds) {
        GoDuration::from_nanos(nanoseconds).write_to(out);
        return;
    }
    let digit = |number: u64| b'0' + (number % 10) as u8;
    let (seconds, rest) = (milliseconds / 1_000, milliseconds % 1_000);
    let text = [
        digit(seconds / 10),
        digit(seconds),
        b'.',
        digit(rest / 100),
        digit(rest / 10),
        digit(rest),
    ];
    let from = usize::from(seconds < 10);
    // Trailing zeros are omitted, and the point if no digit follows.
    let until = match rest {
        0 => 2,
        _ if rest % 100 == 0 => 4,
        _ if rest % 10 == 0 => 5,
        _ => 6,
    };
    out.extend_from_slice(text.get(from..until).unwrap_or_default());
    out.push(b's');
}

/// Appends `kind` and `apiVersion`.
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

/// Appends a string with the escapes of Go, which are also safe in HTML.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_quoted(out, b"\"", text.as_bytes());
}

/// Appends a comma before all elements but the first.
pub(crate) fn put_comma(out: &mut Vec<u8>, at: usize) {
    if at > 0 {
        out.push(b',');
    }
}

/// Appends a prefix that ends with a quote, a string, and the closing quote.
#[inline]
fn put_quoted<const N: usize>(out: &mut Vec<u8>, before: &[u8; N], text: &[u8]) {
    out.extend_from_slice(before);
    put_unquoted(out, text);
    out.push(b'"');
}

/// Appends a string without quotes.
#[inline]
fn put_unquoted(out: &mut Vec<u8>, text: &[u8]) {
    if is_plain(text) {
        out.extend_from_slice(text);
    } else {
        put_escaped(out, text);
    }
}

/// Appends a prefix and an entry of a map from string to string.
#[inline]
fn put_entry<const N: usize>(out: &mut Vec<u8>, before: &[u8; N], entry: &[u8]) {
    let (key, value) = key_and_value(entry);
    out.extend_from_slice(before);
    put_unquoted(out, key);
    out.extend_from_slice(b"\":\"");
    put_unquoted(out, value);
    out.push(b'"');
}

#[inline]
fn put_container(out: &mut Vec<u8>, container: Value<'_>) {
    let container = container.bytes().unwrap_or_default();
    if put_common_container(out, container).is_some() {
        return;
    }
    let mut fields = Fields::new(container);
    let name = fields.next().and_then(|(_, name)| name.bytes());
    put_quoted(out, b"{\"name\":\"", name.unwrap_or_default());
    out.extend_from_slice(b",\"usage\":{");
    put_amounts(out, fields);
    out.extend_from_slice(b"}}");
}

/// Appends the resources of a usage, which need no escapes.
#[inline]
fn put_amounts(out: &mut Vec<u8>, entries: Fields<'_>) {
    for (at, (_, entry)) in entries.enumerate() {
        let (name, amount) = key_and_value(entry.bytes().unwrap_or_default());
        if at == 0 {
            out.push(b'"');
        } else {
            out.extend_from_slice(b",\"");
        }
        out.extend_from_slice(name);
        out.extend_from_slice(b"\":\"");
        out.extend_from_slice(quantity(amount));
        out.push(b'"');
    }
}

/// Whether no byte needs an escape. Checks eight at a time: most strings are names of ten to thirty
/// bytes.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    let exactly = || text.iter().all(|byte| is_plain_byte(*byte));
    let Some(last) = text.last_chunk::<8>() else {
        return exactly();
    };
    // The last eight overlap with those before.
    let mut suspicious = may_need_escape(u64::from_le_bytes(*last));
    for word in text.as_chunks::<8>().0 {
        suspicious |= may_need_escape(u64::from_le_bytes(*word));
    }
    suspicious == 0 || exactly()
}

/// All but control characters, characters with a meaning in JSON or HTML, and the first byte of the
/// two line separators that JavaScript does not allow in strings.
#[inline]
fn is_plain_byte(byte: u8) -> bool {
    byte >= 0x20 && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2)
}

/// Returns nonzero if one of eight bytes may need an escape. Carries between bytes, bytes beyond
/// ASCII and those smaller than an apostrophe, such as a blank, can cause false positives, but
/// never false negatives.
#[inline]
fn may_need_escape(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    // `<` and `>` differ in one bit, so one test finds both.
    let angle = below((word & !(ONES * 2)) ^ (ONES * u64::from(b'<')), 1);
    // Control characters, quotes and ampersands are smaller than all characters of names.
    (below(word, b'\'') | equal(b'\\') | angle | word) & HIGH
}

#[cold]
fn put_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for c in String::from_utf8_lossy(text).chars() {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str) -> String {
        let mut out = Vec::new();
        put_text(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn windows_are_formatted_as_in_go() {
        let milliseconds = (0..61_000).map(|ms| ms * 1_000_000);
        let odd = [
            -1,
            1,
            999_999_999,
            1_000_000_001,
            59_999_999_999,
            i64::MIN,
            i64::MAX,
        ];
        for nanoseconds in milliseconds.chain(odd) {
            let mut out = Vec::new();
            put_window(&mut out, nanoseconds);
            let expected = GoDuration::from_nanos(nanoseconds).to_string();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn the_position_of_a_byte_does_not_change_whether_it_is_plain() {
        for byte in 0..=0x7f_u8 {
            for at in 0..20 {
                let mut text = [b'x'; 20];
                text[at] = byte;
                assert_eq!(is_plain(&text), is_plain_byte(byte), "{byte:#x} at {at}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn strings_round_trip_and_contain_nothing_special_in_html(text in "[a-z<>&\"\\\\\u{0}-\u{1f}é\u{2026}-\u{2030}😀]{0,40}") {
            let written = written(&text);
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
            let special = ['<', '>', '&', '\u{2028}', '\u{2029}'];
            prop_assert!(!written.contains(special));
            prop_assert!(written.chars().all(|c| c >= ' '));
        }
    }
}

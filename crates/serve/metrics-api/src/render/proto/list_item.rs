//! List items, of which there may be very many: what neighbours share is encoded once and then
//! copied.

use kubevitals_model::Timestamp;

use super::super::label_cache::LabelCache;
use super::{
    Meta, list, meta, nested_len, object, put_bytes, put_labels, put_tag_and_len, put_time,
    text_len, time, time_len,
};

/// Seconds that take five bytes as a varint: from 1978 to 3058.
const FIVE_BYTE_SECONDS: std::ops::Range<u64> = 1 << 28..1 << 35;

/// Encodes list items. Reused for the next item, which often has the same labels.
#[derive(Default)]
pub(crate) struct ItemWriter {
    labels: LabelCache,
}

impl ItemWriter {
    /// Appends an object as a list item.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, of: Meta<'_>, body: &[u8]) {
        let labels = self.labels.get_or_write(of.labels, put_labels);
        let metadata = text_len(of.name)
            + text_len(of.namespace)
            + meta::EMPTY_GENERATE_NAME.len()
            + meta::EMPTY_SELF_LINK_TO_GENERATION.len()
            + time_len(of.created)
            + labels.len();
        put_tag_and_len(out, list::ITEMS, nested_len(metadata) + body.len());
        put_tag_and_len(out, object::METADATA, metadata);
        put_bytes(out, meta::NAME, of.name.as_bytes());
        out.extend_from_slice(&meta::EMPTY_GENERATE_NAME);
        put_bytes(out, meta::NAMESPACE, of.namespace.as_bytes());
        put_self_link_to_creation(out, of.created);
        out.extend_from_slice(labels);
        out.extend_from_slice(body);
    }
}

/// Appends the fields between namespace and labels, at once for all likely times.
#[inline]
fn put_self_link_to_creation(out: &mut Vec<u8>, created: Timestamp) {
    let seconds = created.unix_seconds().cast_unsigned();
    if !FIVE_BYTE_SECONDS.contains(&seconds) {
        out.extend_from_slice(&meta::EMPTY_SELF_LINK_TO_GENERATION);
        put_time(out, meta::CREATION_TIMESTAMP, created);
        return;
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7] = meta::EMPTY_SELF_LINK_TO_GENERATION;
    let seven = |shift: u32| ((seconds >> shift) & 0x7f) as u8;
    let text = [
        l0,
        l1,
        l2,
        l3,
        l4,
        l5,
        l6,
        l7,
        meta::CREATION_TIMESTAMP,
        // The length: the eight bytes that follow.
        8,
        time::SECONDS,
        seven(0) | 0x80,
        seven(7) | 0x80,
        seven(14) | 0x80,
        seven(21) | 0x80,
        seven(28),
        time::NANOSECONDS,
        0,
    ];
    out.extend_from_slice(&text);
}

#[cfg(test)]
mod tests {
    use kubevitals_model::Labels;

    use super::super::{item_len, put_message};
    use super::*;

    #[test]
    fn an_item_is_its_message_with_tag_and_length() {
        let text = "x".repeat(200);
        let mut items = ItemWriter::default();
        for (name, pairs) in [("a", 0), ("a", 1), ("b", 1), (&*text, 3), ("a", 0)] {
            let pairs = (0..pairs).map(|n| (format!("{n}").into(), (&*text).into()));
            let labels = Labels::from_sorted(pairs.collect());
            for seconds in [
                -1,
                0,
                127,
                128,
                (1 << 28) - 1,
                1 << 28,
                1_800_000_000,
                (1 << 35) - 1,
                1 << 35,
            ] {
                let meta = Meta {
                    name,
                    namespace: "default",
                    created: Timestamp::from_unix_millis(seconds * 1_000),
                    labels: &labels,
                };
                let mut message = Vec::new();
                put_message(&mut message, meta, b"body");
                let mut expected = Vec::new();
                put_bytes(&mut expected, list::ITEMS, &message);
                let mut item = Vec::new();
                items.put(&mut item, meta, b"body");
                assert_eq!(item, expected, "{name} {seconds}");
                assert_eq!(item.len(), item_len(meta, b"body"));
            }
        }
    }
}

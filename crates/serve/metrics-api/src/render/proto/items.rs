//! Items of lists, of which there may be very many: what neighbours have in common is written once
//! and then copied.

use kubevitals_model::Timestamp;

use super::super::recent::RecentLabels;
use super::{
    ITEMS, LEN, Meta, NO_GENERATED_NAME, NO_LINK_TO_GENERATION, VARINT, block_len, put_labels,
    put_tag_and_len, put_text, put_time, tag, text_len, time_len,
};

/// Seconds that take five bytes: from 1978 to 3058.
const USUAL_SECONDS: std::ops::Range<u64> = 1 << 28..1 << 35;

/// Writes items. Worth keeping for the next item, which often has the same labels.
#[derive(Default)]
pub(crate) struct Items {
    labels: RecentLabels,
}

impl Items {
    /// Appends an object as the item of a list.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, meta: Meta<'_>, body: &[u8]) {
        let labels = self.labels.text(meta.labels, put_labels);
        let metadata = text_len(meta.name)
            + text_len(meta.namespace)
            + NO_GENERATED_NAME.len()
            + NO_LINK_TO_GENERATION.len()
            + time_len(meta.created)
            + labels.len();
        put_tag_and_len(out, ITEMS, block_len(metadata) + body.len());
        put_tag_and_len(out, tag(1, LEN), metadata);
        put_text(out, tag(1, LEN), meta.name.as_bytes());
        out.extend_from_slice(&NO_GENERATED_NAME);
        put_text(out, tag(3, LEN), meta.namespace.as_bytes());
        put_creation(out, meta.created);
        out.extend_from_slice(labels);
        out.extend_from_slice(body);
    }
}

/// Appends what stands between the namespace and the labels, in one piece for all times that are
/// likely.
#[inline]
fn put_creation(out: &mut Vec<u8>, created: Timestamp) {
    let seconds = created.unix_seconds().cast_unsigned();
    if !USUAL_SECONDS.contains(&seconds) {
        out.extend_from_slice(&NO_LINK_TO_GENERATION);
        put_time(out, tag(8, LEN), created);
        return;
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7] = NO_LINK_TO_GENERATION;
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
        tag(8, LEN),
        // The six bytes that follow, and no nanoseconds.
        8,
        tag(1, VARINT),
        seven(0) | 0x80,
        seven(7) | 0x80,
        seven(14) | 0x80,
        seven(21) | 0x80,
        seven(28),
        tag(2, VARINT),
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
        let mut items = Items::default();
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
                put_text(&mut expected, ITEMS, &message);
                let mut item = Vec::new();
                items.put(&mut item, meta, b"body");
                assert_eq!(item, expected, "{name} {seconds}");
                assert_eq!(item.len(), item_len(meta, b"body"));
            }
        }
    }
}

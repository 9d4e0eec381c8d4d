//! List items, of which there may be very many: encoded straight from stored bodies, without a
//! message in between; what neighbours share is encoded once and then copied.

use kubevitals_model::Labels;

use super::super::layout::entry::{KEY, VALUE};
use super::super::layout::quantity::TEXT;
use super::super::layout::{container, object};
use super::super::reader::Fields;
use super::{
    Kind, Meta, Writer, proto, put_amounts, put_quoted, put_text, put_unquoted,
    put_window_and_usage,
};

impl Writer {
    /// Appends an object as a list item, equal to what [`Writer::put_object`] makes of its message.
    pub(crate) fn put_list_item(
        &mut self,
        out: &mut Vec<u8>,
        kind: Kind,
        meta: Meta<'_>,
        body: &[u8],
    ) {
        let mut fields = Fields::new(body);
        let mut number = |expected| {
            let (tag, value) = fields.next()?;
            value.inner_number().filter(|_| tag == expected)
        };
        let (Some(timestamp), Some(window), false) = (
            number(object::TIMESTAMP),
            number(object::WINDOW),
            meta.name.is_empty(),
        ) else {
            let mut message = Vec::new();
            proto::put_message(&mut message, meta, body);
            self.put_object(out, kind, None, &message, "");
            return;
        };
        out.extend_from_slice(b"{\"metadata\":{\"name\":\"");
        put_unquoted(out, meta.name.as_bytes());
        if self.namespace.0 != meta.namespace {
            self.namespace = (meta.namespace.to_owned(), after_name(meta.namespace));
        }
        out.extend_from_slice(&self.namespace.1);
        self.put_unquoted_time(out, meta.created.unix_seconds());
        out.extend_from_slice(self.labels.get_or_write(meta.labels, put_after_creation));
        self.put_unquoted_time(out, timestamp);
        out.push(b'"');
        put_window_and_usage(out, kind, window, fields.rest());
    }
}

/// Returns the part between name and creation timestamp: the namespace, if there is one.
pub(super) fn after_name(namespace: &str) -> Vec<u8> {
    let mut out = b"\",".to_vec();
    if !namespace.is_empty() {
        put_quoted(&mut out, b"\"namespace\":\"", namespace.as_bytes());
        out.push(b',');
    }
    out.extend_from_slice(b"\"creationTimestamp\":\"");
    out
}

/// Appends the part between creation timestamp and timestamp: the labels, if there are any.
fn put_after_creation(out: &mut Vec<u8>, labels: &Labels) {
    out.push(b'"');
    for (at, (key, value)) in labels.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b",\"labels\":{" } else { b"," });
        put_text(out, key);
        out.push(b':');
        put_text(out, value);
    }
    out.extend_from_slice(if labels.is_empty() { b"}" } else { b"}}" });
    out.extend_from_slice(b",\"timestamp\":\"");
}

/// Appends a container whose first resources are CPU and memory, with lengths of one byte, as is
/// nearly always the case. Returns `None` and appends nothing for any other.
#[inline]
pub(super) fn put_common_container(out: &mut Vec<u8>, message: &[u8]) -> Option<()> {
    let [container::NAME, len @ ..0x80, rest @ ..] = message else {
        return None;
    };
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    let [
        container::USAGE,
        ..0x80,
        KEY,
        3,
        b'c',
        b'p',
        b'u',
        VALUE,
        ..0x80,
        TEXT,
        len @ ..0x80,
        rest @ ..,
    ] = rest
    else {
        return None;
    };
    let (cpu, rest) = rest.split_at_checked(usize::from(*len))?;
    let [
        container::USAGE,
        ..0x80,
        KEY,
        6,
        b'm',
        b'e',
        b'm',
        b'o',
        b'r',
        b'y',
        VALUE,
        ..0x80,
        TEXT,
        len @ ..0x80,
        rest @ ..,
    ] = rest
    else {
        return None;
    };
    let (memory, rest) = rest.split_at_checked(usize::from(*len))?;
    out.extend_from_slice(b"{\"name\":\"");
    put_unquoted(out, name);
    out.extend_from_slice(b"\",\"usage\":{\"cpu\":\"");
    out.extend_from_slice(cpu);
    out.extend_from_slice(b"\",\"memory\":\"");
    out.extend_from_slice(memory);
    if !rest.is_empty() {
        out.extend_from_slice(b"\",");
        put_amounts(out, Fields::new(rest));
        out.extend_from_slice(b"}}");
        return Some(());
    }
    out.extend_from_slice(b"\"}}");
    Some(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubevitals_model::{Bytes, CpuUsage, Timestamp, Usage};
    use kubevitals_usage::ContainerUsage;
    use proptest::prelude::*;

    use super::*;

    fn usage() -> impl Strategy<Value = Usage> {
        let amounts = (any::<u32>(), any::<u32>(), prop::option::of(any::<u32>()));
        (amounts, 1_000_000_000..1_900_000_000_000_i64, 0..70_000_u64).prop_map(
            |((cpu, memory, swap), sampled, window)| Usage {
                cpu: CpuUsage::from_nanocores(cpu.into()),
                memory: Bytes::new(memory.into()),
                swap: swap.map(|swap| Bytes::new(swap.into())),
                ephemeral_storage: None,
                timestamp: Timestamp::from_unix_millis(sampled),
                window: Duration::from_millis(window),
            },
        )
    }

    fn labels() -> impl Strategy<Value = Labels> {
        prop::collection::btree_map("[a-z<é]{1,12}", "[a-z\"&]{0,150}", 0..4).prop_map(|pairs| {
            let pairs = pairs.into_iter();
            Labels::from_sorted(
                pairs
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect(),
            )
        })
    }

    fn containers() -> impl Strategy<Value = Vec<ContainerUsage>> {
        let container = ("[a-z>\\\\]{1,140}", usage());
        prop::collection::vec(container, 1..4).prop_map(|all| {
            let all = all.into_iter();
            all.map(|(name, usage)| ContainerUsage {
                name: name.into(),
                usage,
            })
            .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        /// The oracle encodes from the message, with an empty cache.
        #[test]
        fn a_list_item_equals_the_encoding_of_its_message(
            objects in prop::collection::vec(("[a-z\"]{0,30}", 0..3_usize, 0..12_usize, containers()), 1..40),
            sets in prop::collection::vec(labels(), 12),
            created in 0..4_000_000_000_000_i64,
        ) {
            let mut writer = Writer::new();
            for (name, namespace, set, containers) in &objects {
                let meta = Meta {
                    name,
                    namespace: ["", "default", "a\"b"][*namespace],
                    created: Timestamp::from_unix_millis(created),
                    labels: &sets[*set],
                };
                let (mut pod, mut node) = (Vec::new(), Vec::new());
                proto::pod_body(&mut pod, &containers[0].usage, containers);
                proto::node_body(&mut node, &containers[0].usage);
                for (kind, body) in [(Kind::Pod, pod), (Kind::Node, node), (Kind::Pod, Vec::new())] {
                    let (mut message, mut expected, mut out) = (Vec::new(), Vec::new(), Vec::new());
                    proto::put_message(&mut message, meta, &body);
                    Writer::new().put_object(&mut expected, kind, None, &message, "");
                    writer.put_list_item(&mut out, kind, meta, &body);
                    prop_assert_eq!(String::from_utf8(out), String::from_utf8(expected));
                }
            }
        }
    }
}

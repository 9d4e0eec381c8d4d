//! Responses of kubelets.

use std::collections::BTreeMap;
use std::io::Read as _;

use kubevitals_model::{Bytes, BytesSample, CoreNanos, CpuSample, NodeBatch, Timestamp};
use kubevitals_promtext::{Item, Sample, parse};
use kubevitals_scrape::internals::{
    DecodeOptions, Decoder, Rejection, SummaryFields, decode, decode_summary, inflate,
    inflated_length,
};
use serde_json::Value;

/// Tokens of `/metrics/resource`.
pub(crate) const METRICS_TOKENS: &[&[u8]] = &[
    b"\n",
    b" ",
    b"{",
    b"}",
    b",",
    b"\"",
    b"container_cpu_usage_seconds_total",
    b"container_memory_working_set_bytes",
    b"container_start_time_seconds",
    b"container_swap_usage_bytes",
    b"node_cpu_usage_seconds_total 1 5\n",
    b"node_memory_working_set_bytes 1\n",
    b"container=\"a\"",
    b"namespace=\"n\"",
    b"pod=\"p\"",
    b"pod=\"p\\\\q\"",
    b"{container=\"a\",namespace=\"n\",pod=\"p\"} 1 5\n",
    b"{container=\"b\",namespace=\"n\",pod=\"p\"} 2 6\n",
    b"NaN",
    b"-1",
    b"1e300",
    b"+Inf",
    b"-62135596800000",
    b"resource_scrape_error 1\n",
    b"\xff",
];

/// Parts of compressed bodies: header, data and trailer of `a 1\n`.
pub(crate) const GZIP_TOKENS: &[&[u8]] = &[
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff",
    b"\x01\x04\x00\xfb\xffa 1\n",
    b"\x53\x00\x02\x00",
    b"\x00\x00\xff\xff",
    b"\x03\x00",
    b"\x04\x00\x00\x00",
];

/// Tokens of `/stats/summary`.
pub(crate) const SUMMARY_TOKENS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"null",
    b"-1",
    b"1e400",
    b"18446744073709551616",
    b"\"node\":{",
    b"\"pods\":[",
    b"\"podRef\":{\"name\":\"p\",\"namespace\":\"n\"}",
    b"\"containers\":[",
    b"\"name\":\"c\"",
    b"\"cpu\":{",
    b"\"time\":\"2026-11-15T20:11:21Z\"",
    b"\"usageNanoCores\":1",
    b"\"usageCoreNanoSeconds\":1",
    b"\"memory\":{\"workingSetBytes\":1}",
    b"\"rootfs\":{\"usedBytes\":1}",
    b"\\u0000",
    b"\xff",
];

const MAX_CONTAINERS: usize = 8;
const REQUESTED_AT: Timestamp = Timestamp::from_unix_millis(1_794_773_490_000);
const OPTIONS: DecodeOptions = DecodeOptions {
    requested_at: REQUESTED_AT,
    is_complete: true,
    max_containers: MAX_CONTAINERS,
};

type Key = (String, String, String);

/// The decoder agrees with a slow and simple reader of all lines, whether it is new or reused.
///
/// # Panics
///
/// If the property is violated.
pub fn metrics_resource(body: &[u8]) {
    let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
    let report = decode(body, OPTIONS, &mut batch, &mut decoder);
    let again = decode(body, OPTIONS, &mut batch, &mut decoder);
    assert_eq!(report, again, "a reused decoder agrees with a new one");
    assert!(batch.len() <= MAX_CONTAINERS);

    let mut cpu: BTreeMap<Key, CpuSample> = BTreeMap::new();
    let mut memory: BTreeMap<Key, BytesSample> = BTreeMap::new();
    let mut errors = 0;
    parse(body, |item| match item {
        Item::Sample(sample) => {
            let (Some(key), Some(at)) = (key(&sample), at(&sample)) else {
                return;
            };
            if sample.name == "container_cpu_usage_seconds_total" {
                if let Ok(total) = CoreNanos::from_seconds(sample.value) {
                    cpu.insert(key, CpuSample { at, total });
                }
            } else if sample.name == "container_memory_working_set_bytes"
                && let Ok(bytes) = Bytes::from_f64(sample.value)
            {
                memory.insert(key, BytesSample { at, bytes });
            }
        }
        Item::Error(_) => errors += 1,
        _ => {}
    });
    let malformed = report.rejected(Rejection::Malformed);
    assert!(malformed <= errors, "rejected lines are malformed");
    let is_all = report.rejected(Rejection::TooMany) == 0;
    let mut seen = Vec::new();
    for (found, sample) in batch.containers() {
        let key = (
            found.pod.namespace.to_owned(),
            found.pod.name.to_owned(),
            found.container.to_owned(),
        );
        assert_eq!(sample.cpu, cpu.remove(&key), "{key:?}");
        assert_eq!(sample.memory, memory.remove(&key), "{key:?}");
        assert!(!seen.contains(&key), "{key:?} has one row");
        seen.push(key);
    }
    if is_all {
        assert!(cpu.is_empty() && memory.is_empty(), "{cpu:?} {memory:?}");
    }
}

/// No bytes make the decoder panic; its output is bounded and agrees with a generic JSON parser;
/// and extras do not change existing values.
///
/// # Panics
///
/// If the property is violated.
pub fn stats_summary(body: &[u8]) {
    let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
    let Ok(report) = decode_summary(body, SummaryFields::All, OPTIONS, &mut batch, &mut decoder)
    else {
        return;
    };
    assert!(batch.len() <= MAX_CONTAINERS);
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        let expected = value.pointer("/node/cpu/usageCoreNanoSeconds");
        if let Some(cpu) = batch.node.cpu {
            assert_eq!(Some(cpu.total.get()), expected.and_then(Value::as_u64));
        }
    }
    let before = batch.clone();
    let extras = decode_summary(
        body,
        SummaryFields::Extras,
        OPTIONS,
        &mut batch,
        &mut decoder,
    );
    assert!(extras.is_ok(), "a valid body decodes again");
    assert_eq!(batch, before, "extras do not change existing values");
    let again = decode_summary(body, SummaryFields::All, OPTIONS, &mut batch, &mut decoder);
    assert_eq!(again.ok(), Some(report));
}

/// Decompression agrees with another reader of gzip, and its output is bounded whatever the body
/// states.
///
/// # Panics
///
/// If the property is violated.
pub fn gzip_body(body: &[u8]) {
    const LIMIT: usize = 4 << 10;
    let mut reference = Vec::new();
    let mut reader = flate2::bufread::GzDecoder::new(body);
    let read = reader.by_ref().take(1 << 20).read_to_end(&mut reference);
    let is_whole = read.is_ok() && reader.into_inner().is_empty();
    for limit in [LIMIT, inflated_length(body).unwrap_or(0).min(LIMIT)] {
        let mut output = vec![b'x'; 7];
        let inflated = inflate(body, limit, &mut output);
        assert!(output.len() <= limit, "{} of {limit}", output.len());
        assert!(output.capacity() <= LIMIT + 64, "{}", output.capacity());
        if inflated == Ok(true) {
            assert!(is_whole, "another reader rejects it");
            assert_eq!(output, reference);
        }
        if is_whole {
            assert!(reference.starts_with(&output));
        }
    }
}

fn key(sample: &Sample<'_, '_>) -> Option<Key> {
    let label = |name| {
        let value = sample.label(name)?.value().into_owned();
        (!value.is_empty()).then_some(value)
    };
    let key = (label("namespace")?, label("pod")?, label("container")?);
    let is_valid = is_name(&key.0, 63, "") && is_name(&key.1, 253, ".") && is_name(&key.2, 63, "");
    is_valid.then_some(key)
}

/// Whether Kubernetes allows a name.
fn is_name(name: &str, max: usize, more: &str) -> bool {
    let is_alphanumeric = |c: char| matches!(c, 'a'..='z' | '0'..='9');
    name.len() <= max
        && name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
        && name
            .chars()
            .all(|c| is_alphanumeric(c) || c == '-' || more.contains(c))
}

fn at(sample: &Sample<'_, '_>) -> Option<Timestamp> {
    match sample.timestamp_ms {
        None => Some(REQUESTED_AT),
        Some(..=0) => None,
        Some(at) => Some(Timestamp::from_unix_millis(at)),
    }
}

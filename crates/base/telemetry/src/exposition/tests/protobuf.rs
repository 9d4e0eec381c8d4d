//! Decodes the protobuf format by its schema and compares it with the text.

use std::time::Duration;

use kubevitals_protobuf::{Field, delimited, fields};
use proptest::prelude::*;

use super::{EVERY_KIND, Samples};
use crate::exposition::Format;
use crate::{HistogramFamily, HistogramSpec, LabelSet, Metrics, NativeOptions};

/// The families of a body.
#[derive(Debug)]
pub(super) struct Decoded(Vec<DecodedFamily>);

#[derive(Debug)]
struct DecodedFamily {
    name: String,
    help: Option<String>,
    kind: u64,
    series: Vec<DecodedSeries>,
}

#[derive(Debug, Default)]
struct DecodedSeries {
    labels: Vec<(String, String)>,
    value: Option<f64>,
    timestamp_ms: Option<i64>,
    compound: Option<Compound>,
}

#[derive(Debug, Default)]
struct Compound {
    count: u64,
    sum: f64,
    /// Bounds or quantiles, with their values.
    parts: Vec<(f64, f64)>,
    schema: Option<i64>,
    zero_threshold: Option<f64>,
    zeros: u64,
    spans: Vec<(i64, u64)>,
    deltas: Vec<i64>,
}

/// Reads a body.
pub(super) fn decode(mut bytes: &[u8]) -> Decoded {
    let mut families = Vec::new();
    while !bytes.is_empty() {
        let (message, rest) = delimited(bytes).unwrap();
        bytes = rest;
        families.push(decode_family(message));
    }
    Decoded(families)
}

fn decode_family(message: &[u8]) -> DecodedFamily {
    let mut family = DecodedFamily {
        name: String::new(),
        help: None,
        kind: 0,
        series: Vec::new(),
    };
    for Field { number, value } in fields(message).unwrap() {
        match number {
            1 => value.text().unwrap().clone_into(&mut family.name),
            2 => family.help = value.text().map(str::to_owned),
            3 => family.kind = value.uint().unwrap(),
            4 => family.series.push(decode_series(value.bytes().unwrap())),
            other => panic!("field {other} of a family"),
        }
    }
    family
}

fn decode_series(message: &[u8]) -> DecodedSeries {
    let mut series = DecodedSeries::default();
    for Field { number, value } in fields(message).unwrap() {
        match number {
            1 => {
                let pair = fields(value.bytes().unwrap()).unwrap();
                let text = |at: usize| pair[at].value.text().unwrap().to_owned();
                assert_eq!((pair[0].number, pair[1].number, pair.len()), (1, 2, 2));
                series.labels.push((text(0), text(1)));
            }
            2 | 3 | 5 => {
                let inner = fields(value.bytes().unwrap()).unwrap();
                series.value = inner[0].value.double();
            }
            4 | 7 => series.compound = Some(decode_compound(value.bytes().unwrap(), number == 7)),
            6 => series.timestamp_ms = value.int(),
            other => panic!("field {other} of a series"),
        }
    }
    series
}

fn decode_compound(message: &[u8], is_histogram: bool) -> Compound {
    let mut compound = Compound::default();
    for Field { number, value } in fields(message).unwrap() {
        match number {
            1 => compound.count = value.uint().unwrap(),
            2 => compound.sum = value.double().unwrap(),
            3 => {
                let pair = fields(value.bytes().unwrap()).unwrap();
                let part = if is_histogram {
                    let below = u32::try_from(pair[0].value.uint().unwrap()).unwrap();
                    (pair[1].value.double().unwrap(), f64::from(below))
                } else {
                    let double = |at: usize| pair[at].value.double().unwrap();
                    (double(0), double(1))
                };
                compound.parts.push(part);
            }
            5 => compound.schema = value.sint(),
            6 => compound.zero_threshold = value.double(),
            7 => compound.zeros = value.uint().unwrap(),
            12 => {
                let pair = fields(value.bytes().unwrap()).unwrap();
                let (offset, length) = (pair[0].value.sint(), pair[1].value.uint());
                compound.spans.push((offset.unwrap(), length.unwrap()));
            }
            13 => compound.deltas.push(value.sint().unwrap()),
            other => panic!("field {other} of a histogram"),
        }
    }
    compound
}

impl Decoded {
    /// The samples of the text format.
    pub(super) fn samples(&self) -> Samples {
        let mut samples = Samples::new();
        for family in &self.0 {
            for series in &family.series {
                let mut add = |suffix: &str, bound: Option<(&str, f64)>, value: f64| {
                    let mut labels = series.labels.clone();
                    labels.extend(bound.map(|(name, bound)| (name.to_owned(), go_float(bound))));
                    let value = if value.is_nan() { f64::NAN } else { value };
                    let name = format!("{}{suffix}", family.name);
                    let before = samples.insert((name, labels), value.to_bits());
                    assert_eq!(before, None);
                };
                if let Some(value) = series.value {
                    add("", None, value);
                }
                if let Some(compound) = &series.compound {
                    let is_histogram = family.kind == 4;
                    let (suffix, name) = if is_histogram {
                        ("_bucket", "le")
                    } else {
                        ("", "quantile")
                    };
                    for (bound, value) in &compound.parts {
                        add(suffix, Some((name, *bound)), *value);
                    }
                    let count = f64::from(u32::try_from(compound.count).unwrap());
                    if is_histogram {
                        add(suffix, Some((name, f64::INFINITY)), count);
                    }
                    add("_count", None, count);
                    add("_sum", None, compound.sum);
                }
            }
        }
        samples
    }
}

fn go_float(number: f64) -> String {
    let mut out = Vec::new();
    kubevitals_promtext::write_go_float(&mut out, number);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_kind_has_its_message() {
    let decoded = decode(&Format::Protobuf.render(EVERY_KIND));
    let kinds: Vec<(&str, u64, usize)> = decoded
        .0
        .iter()
        .map(|family| (family.name.as_str(), family.kind, family.series.len()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("age_seconds", 4, 1),
            ("build_info", 1, 1),
            ("door", 1, 2),
            ("odd", 3, 1),
            ("wait", 2, 1),
            ("zoo_animals_total", 0, 2)
        ]
    );
    let animals = &decoded.0[5];
    assert_eq!(
        animals.help.as_deref(),
        Some("Animals, counted \"by hand\" \\ daily.")
    );
    assert_eq!(animals.series[0].timestamp_ms, Some(1_700_000_000_123));
    let text = String::from_utf8(Format::Prometheus.render(EVERY_KIND)).unwrap();
    assert_eq!(
        decoded.samples().len(),
        text.lines().filter(|line| !line.starts_with('#')).count()
    );
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Named(String);

impl LabelSet for Named {
    fn visit(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit("name", &self.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn native_and_classic_buckets_agree(
        observed in proptest::collection::vec(("[ab\\\\\"\n{}é]{0,3}", prop_oneof![Just(0_u64), 0..5_000_000_u64, any::<u32>().prop_map(u64::from)]), 0..60),
        max_buckets in 4_usize..40,
    ) {
        let mut metrics = Metrics::new();
        let family = HistogramFamily::register(&mut metrics, HistogramSpec {
            name: "wait_duration_seconds",
            help: "Waits",
            bounds: &[0.25, 1.0, 10.0],
            native: Some(NativeOptions { max_buckets, ..NativeOptions::default() }),
        });
        for (name, micros) in &observed {
            family.observe(&Named(name.clone()), Duration::from_micros(*micros));
        }
        let registry = metrics.freeze();
        let decoded = decode(&registry.encode(Format::Protobuf).unwrap());
        let text = registry.encode(Format::Prometheus).unwrap();
        prop_assert_eq!(decoded.samples(), super::read(&text));
        for series in decoded.0.iter().flat_map(|family| &family.series) {
            let compound = series.compound.as_ref().unwrap();
            prop_assert!(compound.schema.unwrap() <= 3 && compound.schema.unwrap() >= -4);
            prop_assert_eq!(compound.zero_threshold, Some(2.0_f64.powi(-128)));
            let length: u64 = compound.spans.iter().map(|span| span.1).sum();
            prop_assert_eq!(usize::try_from(length).unwrap(), compound.deltas.len());
            let (mut bucket, mut count, mut in_use) = (0, i64::try_from(compound.zeros).unwrap(), 0);
            for delta in &compound.deltas {
                bucket += delta;
                prop_assert!(bucket >= 0);
                in_use += usize::from(bucket > 0);
                count += bucket;
            }
            prop_assert_eq!(u64::try_from(count).unwrap(), compound.count);
            prop_assert!(in_use <= max_buckets);
        }
    }
}

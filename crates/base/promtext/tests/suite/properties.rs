//! Random documents, invalid documents and noise, compared with the reference parser.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use kubevitals_promtext::{
    Document, Item, LabelName, MetricName, MetricType, Reason, Visitor, parse, parse_with,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;

use crate::reference::{What, expected, observed};

/// The same cases every time: the fuzzer looks for new ones.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// Families of one document: name, help, type, and series by their labels.
#[derive(Debug, Clone)]
struct Generated {
    families: BTreeMap<String, GeneratedFamily>,
}

#[derive(Debug, Clone)]
struct GeneratedFamily {
    help: Option<String>,
    kind: Option<MetricType>,
    series: Vec<(BTreeMap<String, String>, f64, Option<i64>)>,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9-]{0,24}",
        "[ -~\n]{0,20}",
        vec(
            select(vec![
                "\\", "\"", "\n", "n", "ü", "✓", "{", "}", ",", " ", "#", "\t", "\r"
            ]),
            0..9
        )
        .prop_map(|parts| parts.concat()),
        any::<String>(),
    ]
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        // Seconds from nanoseconds.
        (any::<u32>(), any::<u32>())
            .prop_map(|(whole, nanos)| f64::from(whole) + f64::from(nanos % 1_000_000_000) / 1e9),
        (0_u32..2_000_000_000).prop_map(f64::from),
        select(vec![
            0.0,
            -0.0,
            1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY
        ]),
    ]
}

fn generated() -> impl Strategy<Value = Generated> {
    let label = "[a-zA-Z_][a-zA-Z0-9_]{0,8}".prop_filter("reserved", |name| name != "__name__");
    let kind = select(vec![
        MetricType::Counter,
        MetricType::Gauge,
        MetricType::Untyped,
    ]);
    let series = (
        btree_map(label, text(), 0..6),
        number(),
        any::<Option<i64>>(),
    );
    // A carriage return at the end of a line belongs to the end of the line.
    let help = text().prop_map(|text| text.trim_end_matches('\r').to_owned());
    let family = (
        proptest::option::of(help),
        proptest::option::of(kind),
        vec(series, 1..6),
    )
        .prop_map(|(help, kind, series)| GeneratedFamily { help, kind, series });
    btree_map("[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", family, 0..5)
        .prop_map(|families| Generated { families })
}

impl Generated {
    fn document(&self) -> Document<'_> {
        let mut document = Document::new();
        for (name, family) in &self.families {
            let mut to = document.family(MetricName::new(name).unwrap());
            if let Some(help) = &family.help {
                to.set_help(help);
            }
            if let Some(kind) = family.kind {
                to.set_kind(kind);
            }
            for (labels, value, timestamp) in &family.series {
                let labels = labels
                    .iter()
                    .map(|(name, value)| (LabelName::new(name).unwrap(), value));
                to.add(labels, *value, *timestamp).unwrap();
            }
        }
        document
    }
}

fn encoded(mut document: Document<'_>) -> String {
    let mut out = Vec::new();
    document.encode(&mut out);
    String::from_utf8(out).unwrap()
}

/// Tokens of the format.
fn token() -> impl Strategy<Value = Vec<u8>> {
    let tokens: Vec<&[u8]> = vec![
        b"a",
        b"up",
        b"container_cpu_usage_seconds_total",
        b"_",
        b":",
        b"9",
        b"{",
        b"}",
        b"=",
        b"\"",
        b",",
        b" ",
        b"  ",
        b"\t",
        b"\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"\\",
        b"\\\\",
        b"\\\"",
        b"\\n",
        b"\\x",
        b"#",
        b"# HELP ",
        b"# TYPE ",
        b"#HELP",
        b"HELP",
        b"TYPE",
        b"counter",
        b"Gauge",
        b"histogram",
        b"1",
        b"0.5",
        b"-1.5e3",
        b"1e999",
        b"NaN",
        b"-NaN",
        b"+Inf",
        b"inf",
        b"0x1p4",
        b"1_0",
        b"18446744073709551616",
        b"1794773483261",
        b"-5",
        b"9223372036854775808",
        b"__name__",
        b"pod=\"a\"",
        b"{pod=\"a\",x=\"\"}",
        b"\xff",
        b"\xc3",
        "ü".as_bytes(),
        b"\0",
        b"a{b=\"c\"} 1\n",
        b"a 1 2\n",
        b"a{b=\"c\",}",
    ];
    select(tokens).prop_map(<[u8]>::to_vec)
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(token(), 0..40).prop_map(|tokens| tokens.concat()),
        vec(any::<u8>(), 0..200),
    ]
}

/// A valid document with some bytes removed and tokens inserted.
fn faulty() -> impl Strategy<Value = Vec<u8>> {
    let fault = (any::<Index>(), 0_usize..12, proptest::option::of(token()));
    (generated(), vec(fault, 0..6)).prop_map(|(generated, faults)| {
        let mut body = encoded(generated.document()).into_bytes();
        for (place, length, token) in faults {
            let start = place.index(body.len() + 1);
            let end = (start + length).min(body.len());
            body.splice(start..end, token.unwrap_or_default());
        }
        body
    })
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn noise_is_read_as_by_the_reference(body in noise()) {
        prop_assert_eq!(observed(&body), expected(&body));
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn faulty_documents_are_read_as_by_the_reference(body in faulty()) {
        prop_assert_eq!(observed(&body), expected(&body));
    }

    #[test]
    fn encoded_documents_parse_and_encode_to_the_same(generated in generated()) {
        let body = encoded(generated.document());
        let document = Document::parse(body.as_bytes());
        prop_assert_eq!(document.errors(), []);
        prop_assert_eq!(&encoded(document), &body);
        let given: usize = generated.families.values().map(|family| family.series.len()).sum();
        prop_assert_eq!(parse(body.as_bytes(), |_| {}).samples, given);
    }

    #[test]
    fn the_order_in_which_families_and_labels_come_does_not_matter(generated in generated()) {
        let body = encoded(generated.document());
        let mut turned = Document::new();
        for (name, family) in generated.families.iter().rev() {
            let mut to = turned.family(MetricName::new(name).unwrap());
            family.help.iter().for_each(|help| { to.set_help(help); });
            family.kind.iter().for_each(|kind| { to.set_kind(*kind); });
            for (labels, value, timestamp) in &family.series {
                let labels = labels.iter().rev();
                let labels = labels.map(|(name, value)| (LabelName::new(name).unwrap(), value));
                to.add(labels, *value, *timestamp).unwrap();
            }
        }
        prop_assert_eq!(encoded(turned), body);
    }

    #[test]
    fn an_invalid_line_is_reported_and_affects_no_other(generated in generated(), places in vec(any::<Index>(), 1..4)) {
        let good = encoded(generated.document()).into_bytes();
        let mut lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
        let places: BTreeSet<usize> = places.iter().map(|place| place.index(lines.len() + 1)).collect();
        for (earlier, place) in places.iter().enumerate() {
            lines.insert(place + earlier, b"bad-name 1\n");
        }
        let body = lines.concat();
        let numbers: Vec<usize> = places.iter().enumerate().map(|(earlier, place)| place + earlier + 1).collect();
        let mut errors = Vec::new();
        let summary = parse(&body, |item| if let Item::Error(error) = item { errors.push(error) });
        prop_assert!(errors.iter().all(|error| error.reason == Reason::InvalidMetricName && error.column == 4));
        prop_assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), numbers);
        prop_assert_eq!(summary.samples, parse(&good, |_| {}).samples);
    }

    #[test]
    fn a_truncated_body_is_marked(generated in generated(), place in any::<Index>()) {
        let body = encoded(generated.document()).into_bytes();
        let cut = body.get(..place.index(body.len() + 1)).unwrap();
        let whole_lines = observed(&body);
        let mut unterminated = 0;
        let summary = parse(cut, |item| {
            if let Item::Sample(sample) = item { unterminated += usize::from(!sample.terminated); }
        });
        prop_assert_eq!(summary.terminated, cut.is_empty() || cut.ends_with(b"\n"));
        prop_assert!(unterminated <= usize::from(!summary.terminated));
        // Every sample of a terminated line is also in the whole body.
        for found in observed(cut) {
            if matches!(found.what, What::Sample { terminated: true, .. }) {
                prop_assert!(whole_lines.contains(&found));
            }
        }
    }

    #[test]
    fn skipped_families_do_not_affect_others(body in faulty(), keep in any::<u8>()) {
        let mut wanted = Some { keep, seen: Vec::new() };
        let summary = parse_with(&body, &mut wanted);
        let mut all = Vec::new();
        let complete = parse(&body, |item| if let Item::Sample(sample) = item && kept(sample.name.as_str(), keep) {
            all.push((sample.line, sample.value.to_bits()));
        });
        prop_assert_eq!(wanted.seen, all);
        prop_assert_eq!(summary.lines, complete.lines);
        prop_assert!(summary.samples + summary.skipped >= complete.samples);
        prop_assert!(summary.errors <= complete.errors);
    }
}

/// Wants the families that [`kept`] selects.
struct Some {
    keep: u8,
    seen: Vec<(usize, u64)>,
}

impl<'a> Visitor<'a> for Some {
    fn wants(&mut self, name: &'a str) -> bool {
        kept(name, self.keep)
    }

    fn item(&mut self, item: Item<'a, '_>) {
        if let Item::Sample(sample) = item {
            self.seen.push((sample.line, sample.value.to_bits()));
        }
    }
}

fn kept(name: &str, keep: u8) -> bool {
    name.bytes().fold(keep, u8::wrapping_add) % 2 == 0
}

#[test]
fn samples_of_a_truncated_body_may_look_complete() {
    let mut seen = Vec::new();
    let summary = parse(b"a 123456\na 12", |item| {
        if let Item::Sample(sample) = item {
            seen.push((sample.value, sample.terminated));
        }
    });
    assert_eq!(seen, [(123_456.0, true), (12.0, false)]);
    assert!(!summary.terminated);
}

#[test]
fn label_values_borrow_unless_they_contain_escapes() {
    parse(b"a{b=\"plain\",c=\"es\\ncaped\"} 1\n", |item| {
        let Item::Sample(sample) = item else {
            panic!("{item:?}")
        };
        assert!(matches!(
            sample.label("b").unwrap().value(),
            Cow::Borrowed("plain")
        ));
        assert_eq!(sample.label("c").unwrap().value(), "es\ncaped");
        assert!(sample.label("d").is_none());
    });
}

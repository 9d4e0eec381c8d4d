use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use proptest::prelude::*;

use kubevitals_promtext::{Item, parse};
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};

use super::*;
use crate::Metrics;

mod protobuf;

fn prometheus(open_metrics: &str) -> String {
    String::from_utf8(Format::Prometheus.render(open_metrics)).unwrap()
}

fn open_metrics(text: &str) -> String {
    String::from_utf8(Format::OpenMetrics.render(text)).unwrap()
}

const EVERY_KIND: &str = r#"# HELP zoo_animals Animals, counted \"by hand\" \ daily.
# TYPE zoo_animals counter
# UNIT zoo_animals animals
zoo_animals_total{kind="b",cage="2"} 10 # {trace="x"} 1.0 1700000000.5
zoo_animals_total{kind="a",cage="2"} 1000000 1700000000.1234
zoo_animals_created{kind="a",cage="2"} 1700000000.0
# HELP age_seconds Ages.
# TYPE age_seconds histogram
age_seconds_sum 7.0
age_seconds_count 3
age_seconds_bucket{le="1.0"} 1
age_seconds_bucket{le="10.0"} 2 # {} 2.5
age_seconds_bucket{le="0.5"} 0
age_seconds_bucket{le="+Inf"} 3
# TYPE build info
build_info{version="1\"\\\n"} 1
# TYPE door stateset
door{door="open"} 1
door{door="shut"} 0
# HELP odd Things.
# TYPE odd unknown
odd{} NaN
# TYPE wait summary
wait_count 2
wait_sum 3.5
wait{quantile="0.5"} 1.5
# EOF
"#;

#[test]
fn every_kind_in_the_prometheus_format() {
    insta::assert_snapshot!(prometheus(EVERY_KIND));
}

#[test]
fn open_metrics_keeps_its_lines_and_sorts_its_families() {
    let text = open_metrics(EVERY_KIND);
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&text), lines(EVERY_KIND));
    let types: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    assert!(types.is_sorted(), "{types:?}");
    assert!(text.ends_with("\n# EOF\n"));
    assert_eq!(open_metrics(&text), text);
}

#[test]
fn families_of_one_name_are_joined() {
    let text = "# HELP x X.\n# TYPE x gauge\nx{role=\"b\"} 1\n# TYPE y gauge\ny 1\n\
                # HELP x X.\n# TYPE x gauge\nx{role=\"a\"} 2\n# EOF\n";
    assert_eq!(
        open_metrics(text),
        "# HELP x X.\n# TYPE x gauge\nx{role=\"b\"} 1\nx{role=\"a\"} 2\n# TYPE y gauge\ny 1\n# EOF\n"
    );
    assert_eq!(
        prometheus(text),
        "# HELP x X.\n# TYPE x gauge\nx{role=\"a\"} 2\nx{role=\"b\"} 1\n# TYPE y gauge\ny 1\n"
    );
}

#[test]
fn a_bad_line_costs_only_itself() {
    let text = "# TYPE x gauge\nx{a=\"1\"} 1\nx{a=\"2} 1\nx{a} 1\nx{a=\"3\"} one\nx\nx{a=\"4\"}\n\
                y 7\n{} 1\n# TYPE\n#\nx{a=\"5\"} 5\n";
    assert_eq!(
        prometheus(text),
        "# TYPE x gauge\nx{a=\"1\"} 1\nx{a=\"5\"} 5\n# TYPE y untyped\ny 7\n"
    );
}

#[test]
fn names_and_types_are_listed_as_scraped() {
    assert_eq!(
        family_names(EVERY_KIND),
        [
            "histogram age_seconds",
            "gauge build_info",
            "gauge door",
            "untyped odd",
            "summary wait",
            "counter zoo_animals_total",
        ]
    );
}

/// One family of a generated registry: its series by the values of two labels.
#[derive(Clone, Debug)]
enum Generated {
    Counter(BTreeMap<Values, u64>),
    Gauge(BTreeMap<Values, f64>),
    Histogram(BTreeMap<Values, Vec<f64>>),
}

type Values = (String, String);
type Labels = Vec<(String, String)>;
/// Sample name and labels, with the value as bits so that `NaN` equals itself.
type Samples = BTreeMap<(String, Labels), u64>;

const BUCKETS: [f64; 3] = [0.25, 1.0, 1e7];

fn generated() -> impl Strategy<Value = Vec<Generated>> {
    fn series<T: std::fmt::Debug>(
        value: impl Strategy<Value = T>,
    ) -> impl Strategy<Value = BTreeMap<Values, T>> {
        let text = || prop_oneof!["[ab\\\\\"\n{},= #é]{0,4}", Just(String::new())];
        proptest::collection::btree_map((text(), text()), value, 1..6)
    }
    let observed = prop_oneof![Just(0.25), Just(1.0), 0.0..2e7];
    let one = prop_oneof![
        series(any::<u64>()).prop_map(Generated::Counter),
        series(any::<f64>()).prop_map(Generated::Gauge),
        series(proptest::collection::vec(observed, 0..5)).prop_map(Generated::Histogram),
    ];
    proptest::collection::vec(one, 0..5)
}

/// Registers the families and returns the samples of a scrape.
fn build(families: &[Generated]) -> (Metrics, Samples) {
    let mut metrics = Metrics::new();
    let mut want = Samples::new();
    let registry = metrics.sub("generated");
    for (number, family) in families.iter().enumerate() {
        // Later families sort before earlier ones.
        let name = format!("m{}", 9 - number);
        let mut expect = |suffix: &str, labels: &Labels, le: Option<&str>, value: f64| {
            let mut labels = labels.clone();
            labels.extend(le.map(|le| ("le".to_owned(), le.to_owned())));
            want.insert(
                (format!("generated_{name}{suffix}"), labels),
                value.to_bits(),
            );
        };
        let labels =
            |(a, b): &Values| vec![("b".to_owned(), b.clone()), ("a".to_owned(), a.clone())];
        let sorted =
            |(a, b): &Values| vec![("a".to_owned(), a.clone()), ("b".to_owned(), b.clone())];
        match family {
            Generated::Counter(series) => {
                let counter = Family::<Labels, Counter>::default();
                for (values, value) in series {
                    counter.get_or_create(&labels(values)).inc_by(*value);
                    #[expect(clippy::cast_precision_loss, reason = "as every reader does it")]
                    expect("_total", &sorted(values), None, *value as f64);
                }
                registry.register(name.clone(), "Help \\ \"text\"", counter);
            }
            Generated::Gauge(series) => {
                let gauge = Family::<Labels, Gauge<f64, AtomicU64>>::default();
                for (values, value) in series {
                    gauge.get_or_create(&labels(values)).set(*value);
                    let value = if *value == 0.0 { 0.0 } else { *value };
                    let value = if value.is_nan() { f64::NAN } else { value };
                    expect("", &sorted(values), None, value);
                }
                registry.register(name.clone(), "Help", gauge);
            }
            Generated::Histogram(series) => {
                let histogram =
                    Family::<Labels, Histogram>::new_with_constructor(|| Histogram::new(BUCKETS));
                for (values, observed) in series {
                    let one = histogram.get_or_create(&labels(values));
                    for value in observed {
                        one.observe(*value);
                    }
                    let below = |bound: f64| {
                        let count = observed.iter().filter(|value| **value <= bound).count();
                        f64::from(u32::try_from(count).unwrap())
                    };
                    let labels = sorted(values);
                    expect("_bucket", &labels, Some("0.25"), below(0.25));
                    expect("_bucket", &labels, Some("1"), below(1.0));
                    expect("_bucket", &labels, Some("1e+07"), below(1e7));
                    expect("_bucket", &labels, Some("+Inf"), below(f64::INFINITY));
                    expect("_count", &labels, None, below(f64::INFINITY));
                    expect(
                        "_sum",
                        &labels,
                        None,
                        observed.iter().fold(0.0, |sum, value| sum + value),
                    );
                }
                registry.register(name.clone(), "Help", histogram);
            }
        }
    }
    (metrics, want)
}

/// All samples of a body in the Prometheus text format.
fn read(text: &[u8]) -> Samples {
    let mut found = Samples::new();
    parse(text, |item| {
        if let Item::Sample(sample) = item {
            let labels = sample
                .labels
                .iter()
                .map(|label| (label.name.to_string(), label.value().into_owned()))
                .collect();
            let value = if sample.value.is_nan() {
                f64::NAN
            } else {
                sample.value
            };
            found.insert((sample.name.to_string(), labels), value.to_bits());
        }
    });
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_scrape_finds_what_was_registered(families in generated()) {
        let (metrics, want) = build(&families);
        let text = metrics.freeze().encode(Format::Prometheus).unwrap();
        let mut types = Vec::new();
        let mut errors = Vec::new();
        parse(&text, |item| match item {
            Item::Type(line) => types.push(line.name.to_string()),
            Item::Error(error) => errors.push(error.to_string()),
            _ => {}
        });
        let found = read(&text);
        prop_assert_eq!(errors, Vec::<String>::new());
        prop_assert!(types.is_sorted());
        prop_assert_eq!(found, want);
    }

    #[test]
    fn a_scrape_for_protobuf_finds_the_same(families in generated()) {
        let (metrics, want) = build(&families);
        let bytes = metrics.freeze().encode(Format::Protobuf).unwrap();
        prop_assert_eq!(protobuf::decode(&bytes).samples(), want);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_renders(text in "\\PC{0,200}|([a-z#{}=\", \n\\\\0-9.]{0,80})") {
        prometheus(&text);
        let once = open_metrics(&text);
        prop_assert_eq!(open_metrics(&once), once);
    }

    #[test]
    fn any_text_made_of_the_right_pieces_renders(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("# TYPE a counter\n"), Just("# TYPE a histogram\n"), Just("# HELP a \\\n"),
                Just("a_total"), Just("a_bucket"), Just("{le=\"0.5\""), Just("{"), Just("}"),
                Just("\""), Just("\\"), Just(" 1"), Just(" NaN"), Just(" # {} 1"), Just("\n"), Just(","),
            ],
            0..60,
        )
    ) {
        prometheus(&pieces.concat());
    }
}

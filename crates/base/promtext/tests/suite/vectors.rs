//! Vectors from Go: see the README in `tests/vectors`.

use crate::differences::{DIFFERENCES, Go};
use kubevitals_promtext::{
    Document, Item, LabelName, MetricName, MetricType, Suffix, parse, write_go_float,
};

#[test]
fn numbers_are_written_as_go_does() {
    for line in include_str!("../vectors/floats.txt").lines() {
        let (bits, text) = line.split_once(' ').unwrap();
        let value = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        let mut out = Vec::new();
        write_go_float(&mut out, value);
        // `expfmt` writes negative zero like zero.
        let expected = if value == 0.0 { "0" } else { text };
        assert_eq!(str::from_utf8(&out), Ok(expected), "{bits}");
    }
}

#[test]
fn bodies_are_read_as_in_prometheus_except_for_listed_differences() {
    let mut wrong = Vec::new();
    let mut met = Vec::new();
    for line in include_str!("../vectors/lines.txt").lines() {
        let [body, expfmt, textparse, shown] = *line.split('\t').collect::<Vec<_>>() else {
            panic!("not four fields: {line}")
        };
        let shown = shown
            .strip_prefix('"')
            .and_then(|shown| shown.strip_suffix('"'))
            .unwrap();
        let ours = outcome(&unhex(body));
        for (go, theirs) in [(Go::Expfmt, expfmt), (Go::Textparse, textparse)] {
            let listed = DIFFERENCES
                .iter()
                .any(|listed| listed.from.contains(&go) && listed.bodies.contains(&shown));
            if (ours == theirs) == listed {
                wrong.push(format!("{go:?} {shown}: {ours} here, {theirs} there"));
            }
            met.push((go, shown));
        }
    }
    for listed in DIFFERENCES {
        for body in listed.bodies {
            if !listed.from.iter().all(|go| met.contains(&(*go, *body))) {
                wrong.push(format!(
                    "{body} is listed ({}) but is no vector",
                    listed.why
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsorted_series_are_written_as_client_golang_does() {
    let input = include_str!("../vectors/families.input.txt");
    let texts: Vec<Vec<String>> = input
        .lines()
        .map(|line| {
            let is_text = |at| at == 1 || (at > 5 && at % 2 == 0);
            let field = |(at, field): (usize, &str)| {
                if is_text(at) {
                    String::from_utf8(unhex(field)).unwrap()
                } else {
                    field.to_owned()
                }
            };
            line.split('\t').enumerate().map(field).collect()
        })
        .collect();
    let mut document = Document::new();
    for series in &texts {
        let [name, help, kind, bits, timestamp, labels @ ..] = series.as_slice() else {
            panic!("too few fields: {series:?}")
        };
        let labels = labels
            .chunks(2)
            .map(|pair| (LabelName::new(&pair[0]).unwrap(), &pair[1]));
        document
            .family(MetricName::new(name).unwrap())
            .set_help(help)
            .set_kind(MetricType::from_word(kind).unwrap())
            .add(
                labels,
                f64::from_bits(u64::from_str_radix(bits, 16).unwrap()),
                timestamp.parse().ok(),
            )
            .unwrap();
    }
    add_histogram_and_summary(&mut document);
    let mut out = Vec::new();
    document.encode(&mut out);
    let expected = include_str!("../vectors/families.txt");
    assert_eq!(String::from_utf8(out).unwrap(), expected);

    let mut again = Document::parse(expected.as_bytes());
    assert_eq!(again.errors(), []);
    let mut out = Vec::new();
    again.encode(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

fn add_histogram_and_summary(document: &mut Document<'_>) {
    let zone = LabelName::from_static("zone");
    let le = LabelName::from_static("le");
    let quantile = LabelName::from_static("quantile");
    let mut latency = document.family(MetricName::from_static("latency_seconds"));
    latency
        .set_help("A histogram")
        .set_kind(MetricType::Histogram);
    for at in ["a", "b"] {
        for (bound, count) in [
            ("0.25", 1.0),
            ("0.5", 2.0),
            ("2", 4.0),
            ("10", 6.0),
            ("100", 7.0),
            ("+Inf", 8.0),
        ] {
            latency
                .add_suffixed(Suffix::Bucket, [(zone, at), (le, bound)], count, None)
                .unwrap();
        }
        latency
            .add_suffixed(Suffix::Sum, [(zone, at)], 123.5, None)
            .unwrap();
        latency
            .add_suffixed(Suffix::Count, [(zone, at)], 8.0, None)
            .unwrap();
    }
    let mut duration = document.family(MetricName::from_static("duration_seconds"));
    duration.set_help("A summary").set_kind(MetricType::Summary);
    for at in ["a", "b"] {
        for (share, value) in [("0.5", 1.0), ("0.9", 3.0), ("0.99", 5.0)] {
            duration
                .add([(zone, at), (quantile, share)], value, None)
                .unwrap();
        }
        duration
            .add_suffixed(Suffix::Sum, [(zone, at)], 12.25, None)
            .unwrap();
        duration
            .add_suffixed(Suffix::Count, [(zone, at)], 9.0, None)
            .unwrap();
    }
}

/// Returns the result of this crate in the notation of the vectors.
fn outcome(body: &[u8]) -> String {
    let mut samples = Vec::new();
    let summary = parse(body, |item| {
        let Item::Sample(sample) = item else { return };
        let mut labels: Vec<_> = sample
            .labels
            .iter()
            .map(|label| (label.name.as_str(), label.value().into_owned()))
            .collect();
        labels.sort();
        let mut fields = vec![hex(sample.name.as_str())];
        fields.extend(
            labels
                .iter()
                .map(|(name, value)| format!("{}={}", hex(name), hex(value))),
        );
        fields.push(match sample.value {
            value if value.is_nan() => "NaN".to_owned(),
            value => format!("{:016x}", value.to_bits()),
        });
        fields.extend(sample.timestamp_ms.map(|timestamp| format!("@{timestamp}")));
        samples.push(fields.join(";"));
    });
    if summary.errors > 0 {
        return "error".to_owned();
    }
    samples.sort();
    format!("ok:{}", samples.join("|"))
}

fn hex(text: &str) -> String {
    text.bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

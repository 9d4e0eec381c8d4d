//! The text formats, written as Go's client library does.

use std::fmt::Write as _;

use super::{Kind, MetricFamily, Registry, Value};

/// A text format of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Prometheus' text format, which everything reads.
    Text,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format for an `Accept` header: `OpenMetrics` for who asks for it, else text.
    pub fn accepted(accept: Option<&str>) -> Self {
        let wants = accept.is_some_and(|accept| {
            accept.split(',').any(|part| {
                let mut fields = part.split(';').map(str::trim);
                let is_open = fields
                    .next()
                    .is_some_and(|name| name.eq_ignore_ascii_case("application/openmetrics-text"));
                is_open && !fields.any(|field| matches!(field, "q=0" | "q=0.0"))
            })
        });
        if wants { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the value of the header `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Registry {
    /// Encodes all series in the [`OpenMetrics`](Format::OpenMetrics) format.
    pub fn encode(&self) -> String {
        self.encode_as(Format::OpenMetrics)
    }

    /// Encodes all series in a format, which the response names by its
    /// [content type](Format::content_type).
    ///
    /// ```
    /// use kube_client_metrics::{Format, Registry};
    ///
    /// let registry = Registry::new();
    /// # let accept = None;
    /// let format = Format::accepted(accept);
    /// let body = registry.encode_as(format);
    /// let content_type = format.content_type();
    /// ```
    pub fn encode_as(&self, format: Format) -> String {
        let mut text = String::new();
        for family in self.gather() {
            write_family(&mut text, &family, format);
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

fn write_family(text: &mut String, family: &MetricFamily, format: Format) {
    let MetricFamily {
        name, help, kind, ..
    } = family;
    // Before OpenMetrics the name of a family is that of its series.
    let suffix = match (kind, format) {
        (Kind::Counter, Format::Text) => "_total",
        _ => "",
    };
    put(text, format_args!("# HELP {name}{suffix} {help}.\n"));
    let kind = kind.as_str();
    put(text, format_args!("# TYPE {name}{suffix} {kind}\n"));
    for series in &family.series {
        let labels = |text: &mut String, le: Option<&str>| {
            let labels = series.labels.iter().map(|(k, v)| (*k, v.as_str()));
            write_labels(text, labels.chain(le.map(|le| ("le", le))));
        };
        match &series.value {
            Value::Counter(value) => {
                put(text, format_args!("{name}_total"));
                labels(text, None);
                put(text, format_args!(" {value}\n"));
            }
            Value::Integer(value) => {
                text.push_str(name);
                labels(text, None);
                put(text, format_args!(" {value}\n"));
            }
            Value::Gauge(value) => {
                text.push_str(name);
                labels(text, None);
                put(text, format_args!(" {}\n", go_float(*value)));
            }
            Value::Histogram(buckets) => {
                let mut total = 0;
                for (bound, count) in &buckets.counts {
                    total += count;
                    put(text, format_args!("{name}_bucket"));
                    labels(text, Some(&bound_text(*bound, format)));
                    put(text, format_args!(" {total}\n"));
                }
                put(text, format_args!("{name}_sum"));
                labels(text, None);
                put(text, format_args!(" {}\n", go_float(buckets.sum)));
                put(text, format_args!("{name}_count"));
                labels(text, None);
                put(text, format_args!(" {total}\n"));
            }
        }
    }
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // A string takes all that is written to it.
    let _ = text.write_fmt(arguments);
}

fn write_labels<'a>(text: &mut String, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut separator = '{';
    for (name, value) in labels {
        text.push(separator);
        text.push_str(name);
        text.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
}

/// The label `le`. `OpenMetrics` wants to see that it is a float.
fn bound_text(bound: f64, format: Format) -> String {
    let mut text = go_float(bound);
    if format == Format::OpenMetrics && !text.contains(['.', 'e', 'I', 'N']) {
        text.push_str(".0");
    }
    text
}

/// Returns a float as Go's `strconv.FormatFloat(value, 'g', -1, 64)`, with Prometheus' infinity.
fn go_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // Go switches to an exponent of at least two digits below 1e-4 and from 1e6 on.
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Written by Go 1.26: `strconv.FormatFloat(value, 'g', -1, 64)`.
    #[test]
    fn floats_are_written_as_in_go() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.005, "0.005"),
            (10e-9, "1e-08"),
            (0.0001, "0.0001"),
            (0.000_099, "9.9e-05"),
            (262_144.0, "262144"),
            (1.5, "1.5"),
            (-2.5, "-2.5"),
            (1_048_576.0, "1.048576e+06"),
            (124_416_000.0, "1.24416e+08"),
            (123_456.789, "123456.789"),
            (1e21, "1e+21"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(go_float(value), text);
        }
    }

    proptest! {
        #[test]
        fn floats_are_read_back_as_they_were(value in any::<f64>()) {
            let read: f64 = go_float(value).parse().unwrap();
            prop_assert!(read.to_bits() == value.to_bits() || (read.is_nan() && value.is_nan()));
        }

        /// Quotes, backslashes and line breaks cannot end a value.
        #[test]
        fn a_label_value_is_one_quoted_text(value in any::<String>()) {
            let mut text = String::new();
            write_labels(&mut text, [("name", value.as_str())].into_iter());
            let inner = text.strip_prefix("{name=\"").unwrap().strip_suffix("\"}").unwrap();
            prop_assert!(!inner.contains('\n'));
            let unescaped = inner
                .replace("\\\\", "\0")
                .replace("\\\"", "\"")
                .replace("\\n", "\n")
                .replace('\0', "\\");
            prop_assume!(!value.contains('\0'));
            prop_assert_eq!(unescaped, value);
        }
    }

    #[test]
    fn open_metrics_is_for_who_asks_for_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        for (accept, format) in [
            (None, Format::Text),
            (Some("*/*"), Format::Text),
            (Some(prometheus), Format::OpenMetrics),
            (
                Some("text/plain, application/openmetrics-text;q=0"),
                Format::Text,
            ),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn label_values_are_escaped() {
        let mut text = String::new();
        write_labels(&mut text, [("name", "a\"b\\c\nd")].into_iter());
        assert_eq!(text, r#"{name="a\"b\\c\nd"}"#);
    }
}

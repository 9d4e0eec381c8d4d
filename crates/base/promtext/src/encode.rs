//! Encoding of families and samples in the given order.

use crate::escape::{write_escaped_help, write_escaped_label_value};
use crate::float::write_go_float;
use crate::name::{LabelName, MetricName, MetricType};

/// Writes the text format to the end of a buffer.
///
/// The order is that of the calls. [`Document`](crate::Document) sorts as Go's `client_golang`
/// does: families by name, series by label values and labels by name. A family must not occur
/// twice.
///
/// The types of names guarantee that they are valid, and values are escaped: Prometheus can read
/// the result. The caller must make sure that no label name occurs twice in a series, which debug
/// builds assert.
///
/// ```
/// use kubevitals_promtext::{Encoder, LabelName, MetricName, MetricType};
///
/// const UP: MetricName<'_> = MetricName::from_static("up");
/// const POD: LabelName<'_> = LabelName::from_static("pod");
///
/// let mut out = Vec::new();
/// let mut encoder = Encoder::new(&mut out);
/// let mut up = encoder.family(UP, Some("Whether it is up"), Some(MetricType::Gauge));
/// up.sample(&[(POD, "a")], 1.0, Some(1_794_773_483_261));
/// assert_eq!(
///     String::from_utf8(out).unwrap(),
///     "# HELP up Whether it is up\n# TYPE up gauge\nup{pod=\"a\"} 1 1794773483261\n",
/// );
/// ```
#[derive(Debug)]
pub struct Encoder<'w> {
    out: &'w mut Vec<u8>,
}

/// Writes the samples of one family.
#[derive(Debug)]
pub struct FamilyEncoder<'w, 'n> {
    out: &'w mut Vec<u8>,
    name: MetricName<'n>,
}

/// The suffix of a sample's name after that of its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Suffix {
    /// No suffix: samples of a counter or gauge, and the quantiles of a summary.
    #[default]
    None,
    /// `_bucket`, in a histogram.
    Bucket,
    /// `_sum`, in a histogram or summary.
    Sum,
    /// `_count`, in a histogram or summary.
    Count,
}

impl<'w> Encoder<'w> {
    /// Appends to `out`.
    pub fn new(out: &'w mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Writes the given `HELP` and `TYPE` lines and starts the samples of a family.
    ///
    /// Go writes both for every family, with `untyped` if necessary.
    pub fn family<'n>(
        &mut self,
        name: MetricName<'n>,
        help: Option<&str>,
        kind: Option<MetricType>,
    ) -> FamilyEncoder<'_, 'n> {
        if let Some(help) = help {
            self.out.extend_from_slice(b"# HELP ");
            self.out.extend_from_slice(name.as_str().as_bytes());
            self.out.push(b' ');
            write_escaped_help(self.out, help);
            self.out.push(b'\n');
        }
        if let Some(kind) = kind {
            self.out.extend_from_slice(b"# TYPE ");
            self.out.extend_from_slice(name.as_str().as_bytes());
            self.out.push(b' ');
            self.out.extend_from_slice(kind.as_str().as_bytes());
            self.out.push(b'\n');
        }
        FamilyEncoder {
            out: self.out,
            name,
        }
    }
}

impl FamilyEncoder<'_, '_> {
    /// Writes a sample.
    #[inline]
    pub fn sample<V: AsRef<str>>(
        &mut self,
        labels: &[(LabelName<'_>, V)],
        value: f64,
        timestamp_ms: Option<i64>,
    ) {
        self.suffixed_sample(Suffix::None, labels, value, timestamp_ms);
    }

    /// Writes a sample of a histogram or summary.
    #[inline]
    pub fn suffixed_sample<V: AsRef<str>>(
        &mut self,
        suffix: Suffix,
        labels: &[(LabelName<'_>, V)],
        value: f64,
        timestamp_ms: Option<i64>,
    ) {
        debug_assert!(
            labels.iter().enumerate().all(|(at, (name, _))| {
                labels.iter().take(at).all(|(earlier, _)| earlier != name)
            }),
            "a label name occurs twice in a series of {}",
            self.name
        );
        let out = &mut *self.out;
        out.extend_from_slice(self.name.as_str().as_bytes());
        out.extend_from_slice(suffix.as_str().as_bytes());
        let mut separator = b'{';
        for (name, value) in labels {
            out.push(separator);
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b"=\"");
            write_escaped_label_value(out, value.as_ref());
            out.push(b'"');
            separator = b',';
        }
        if !labels.is_empty() {
            out.push(b'}');
        }
        out.push(b' ');
        write_go_float(out, value);
        if let Some(timestamp) = timestamp_ms {
            out.push(b' ');
            out.extend_from_slice(itoa::Buffer::new().format(timestamp).as_bytes());
        }
        out.push(b'\n');
    }
}

impl Suffix {
    /// Returns the suffix as text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bucket => "_bucket",
            Self::Sum => "_sum",
            Self::Count => "_count",
        }
    }

    /// Returns the suffixes of samples of a type.
    pub(crate) const fn of(kind: Option<MetricType>) -> &'static [Self] {
        match kind {
            Some(MetricType::Histogram) => &[Self::Bucket, Self::Sum, Self::Count],
            Some(MetricType::Summary) => &[Self::Sum, Self::Count],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: MetricName<'_> = MetricName::from_static("n");
    const LABEL: LabelName<'_> = LabelName::from_static("l");
    const NO_LABELS: &[(LabelName<'_>, &str)] = &[];

    fn encode(write: impl FnOnce(&mut Encoder<'_>)) -> String {
        let mut out = b"before\n".to_vec();
        write(&mut Encoder::new(&mut out));
        String::from_utf8(out)
            .unwrap()
            .strip_prefix("before\n")
            .unwrap()
            .to_owned()
    }

    #[test]
    fn metadata_is_optional_and_escaped() {
        let metadata = |help, kind| {
            encode(|encoder| {
                encoder.family(NAME, help, kind);
            })
        };
        assert_eq!(metadata(None, None), "");
        assert_eq!(metadata(Some(""), None), "# HELP n \n");
        assert_eq!(
            metadata(Some("a\\b\n\"c\""), Some(MetricType::Untyped)),
            "# HELP n a\\\\b\\n\"c\"\n# TYPE n untyped\n"
        );
    }

    #[test]
    fn samples_have_labels_values_and_timestamps() {
        let text = encode(|e| {
            let mut family = e.family(NAME, None, None);
            family.sample(NO_LABELS, f64::NAN, None);
            family.sample(NO_LABELS, f64::NEG_INFINITY, Some(-1));
            family.sample(&[(LABEL, "\"\\\n")], 0.5, Some(i64::MAX));
            let le = LabelName::from_static("le");
            let labels = [(LABEL, "x"), (le, "+Inf")];
            family.suffixed_sample(Suffix::Bucket, &labels, 1e6, None);
            family.suffixed_sample(Suffix::Sum, NO_LABELS, 1.0, None);
            family.suffixed_sample(Suffix::Count, &[(LABEL, String::new())], 2.0, None);
        });
        let expected = "n NaN\nn -Inf -1\nn{l=\"\\\"\\\\\\n\"} 0.5 9223372036854775807\n\
            n_bucket{l=\"x\",le=\"+Inf\"} 1e+06\nn_sum 1\nn_count{l=\"\"} 2\n";
        assert_eq!(text, expected);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "occurs twice")]
    fn debug_builds_assert_that_label_names_are_unique() {
        encode(|encoder| {
            let mut family = encoder.family(NAME, None, None);
            family.sample(&[(LABEL, "1"), (LABEL, "2")], 0.0, None);
        });
    }
}

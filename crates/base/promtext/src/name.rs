//! Validated names, so that the encoder cannot write an invalid exposition.

use std::fmt;

use crate::class;
use crate::error::NameError;

/// A metric name that matches `[a-zA-Z_:][a-zA-Z0-9_:]*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetricName<'a>(&'a str);

/// A label name that matches `[a-zA-Z_][a-zA-Z0-9_]*` and is not `__name__`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelName<'a>(&'a str);

/// The type of a family, as in a `# TYPE` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricType {
    /// A value that only grows, until its source restarts.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Cumulative buckets `_bucket{le="…"}` with `_sum` and `_count`.
    Histogram,
    /// Quantiles `{quantile="…"}` with `_sum` and `_count`.
    Summary,
    /// An unknown type.
    Untyped,
}

impl<'a> MetricName<'a> {
    /// Validates a name.
    pub const fn new(name: &'a str) -> Result<Self, NameError> {
        if matches(name.as_bytes(), class::METRIC_START, class::METRIC) {
            Ok(Self(name))
        } else {
            Err(NameError::InvalidMetricName)
        }
    }

    /// Wraps a name that the parser has validated.
    pub(crate) const fn trusted(name: &'a str) -> Self {
        Self(name)
    }

    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl MetricName<'static> {
    /// Validates a name in a constant: an invalid one is a compile error.
    ///
    /// ```
    /// use kubevitals_promtext::MetricName;
    /// const UP: MetricName<'_> = MetricName::from_static("up");
    /// ```
    ///
    /// # Panics
    ///
    /// If the name is invalid and this is not evaluated at compile time: use it in constants only.
    #[expect(clippy::panic, reason = "a compile error in a constant")]
    pub const fn from_static(name: &'static str) -> Self {
        match Self::new(name) {
            Ok(name) => name,
            Err(_) => panic!("metric name is not of the form [a-zA-Z_:][a-zA-Z0-9_:]*"),
        }
    }
}

impl<'a> LabelName<'a> {
    /// Validates a name.
    pub const fn new(name: &'a str) -> Result<Self, NameError> {
        if !matches(name.as_bytes(), class::LABEL_START, class::LABEL) {
            Err(NameError::InvalidLabelName)
        } else if is_reserved(name.as_bytes()) {
            Err(NameError::ReservedLabelName)
        } else {
            Ok(Self(name))
        }
    }

    /// Wraps a name that the parser has validated.
    pub(crate) const fn trusted(name: &'a str) -> Self {
        Self(name)
    }

    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl LabelName<'static> {
    /// Validates a name in a constant: an invalid one is a compile error.
    ///
    /// # Panics
    ///
    /// If the name is invalid and this is not evaluated at compile time: use it in constants only.
    #[expect(clippy::panic, reason = "a compile error in a constant")]
    pub const fn from_static(name: &'static str) -> Self {
        match Self::new(name) {
            Ok(name) => name,
            Err(_) => panic!("label name is reserved or not of the form [a-zA-Z_][a-zA-Z0-9_]*"),
        }
    }
}

impl MetricType {
    /// Returns the type as in a `# TYPE` line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Untyped => "untyped",
        }
    }

    /// Parses the type of a `# TYPE` line, ignoring case.
    pub fn from_word(word: &str) -> Option<Self> {
        [
            Self::Counter,
            Self::Gauge,
            Self::Histogram,
            Self::Summary,
            Self::Untyped,
        ]
        .into_iter()
        .find(|kind| kind.as_str().eq_ignore_ascii_case(word))
    }
}

impl fmt::Display for MetricName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for LabelName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl AsRef<str> for MetricName<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl AsRef<str> for LabelName<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl PartialEq<&str> for MetricName<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<&str> for LabelName<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for MetricType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether this is the label name that stands for the metric name.
pub(crate) const fn is_reserved(name: &[u8]) -> bool {
    matches!(name, b"__name__")
}

const fn matches(name: &[u8], start: u8, rest: u8) -> bool {
    let [first, tail @ ..] = name else {
        return false;
    };
    if class::of(*first) & start == 0 {
        return false;
    }
    let mut tail = tail;
    while let [byte, next @ ..] = tail {
        if class::of(*byte) & rest == 0 {
            return false;
        }
        tail = next;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "_", ":", "a:b_c9", "Z", "__name__"] {
            assert_eq!(MetricName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "9", "a-b", "a.b", "a b", "ä", "a\n", "a\0"] {
            assert_eq!(
                MetricName::new(bad),
                Err(NameError::InvalidMetricName),
                "{bad:?}"
            );
            assert_eq!(
                LabelName::new(bad),
                Err(NameError::InvalidLabelName),
                "{bad:?}"
            );
        }
        assert_eq!(LabelName::new("a:b"), Err(NameError::InvalidLabelName));
        assert_eq!(
            LabelName::new("__name__"),
            Err(NameError::ReservedLabelName)
        );
        assert_eq!(LabelName::new("__name_").unwrap().to_string(), "__name_");
    }

    #[test]
    fn types_read_back_in_any_case() {
        for word in ["counter", "gauge", "histogram", "summary", "untyped"] {
            assert_eq!(MetricType::from_word(word).unwrap().to_string(), word);
            assert_eq!(
                MetricType::from_word(&word.to_uppercase())
                    .unwrap()
                    .to_string(),
                word
            );
        }
        for word in [
            "",
            "count",
            "counter ",
            "unknown",
            "info",
            "stateset",
            "gaugehistogram",
        ] {
            assert_eq!(MetricType::from_word(word), None);
        }
    }
}

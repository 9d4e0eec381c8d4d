//! Errors of lines, names and label sets.

use thiserror::Error;

/// An invalid line. The parser continues with the next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct ParseError {
    /// The number of the line in the body, the first being 1.
    pub line: usize,
    /// The offset of the error in the line, in bytes, the first being 1.
    pub column: usize,
    pub reason: Reason,
}

/// The reason why a line is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Error)]
pub enum Reason {
    #[error("line is not valid UTF-8")]
    InvalidUtf8,
    /// The line starts with labels.
    #[error("metric name is missing before the labels")]
    MissingMetricName,
    /// The metric name is empty or contains a byte outside `[a-zA-Z0-9_:]`, or starts with a digit.
    #[error("metric name is not of the form [a-zA-Z_:][a-zA-Z0-9_:]*")]
    InvalidMetricName,
    /// A metric or label name is in double quotes.
    #[error("quoted UTF-8 names are not part of text format 0.0.4")]
    QuotedName,
    /// The label name is empty or contains a byte outside `[a-zA-Z0-9_]`, or starts with a digit.
    #[error("label name is not of the form [a-zA-Z_][a-zA-Z0-9_]*")]
    InvalidLabelName,
    /// The label is called `__name__`, which stands for the metric name.
    #[error("label name __name__ is reserved for the metric name")]
    ReservedLabelName,
    /// Two labels of the series have the same name.
    #[error("label name occurs twice in one series")]
    DuplicateLabelName,
    /// The series has more than [`MAX_LABELS`](crate::MAX_LABELS) labels.
    #[error("series has more than {} labels", crate::MAX_LABELS)]
    TooManyLabels,
    /// The label name is not followed by `=`.
    #[error("label name is not followed by an equals sign")]
    MissingEquals,
    #[error("label value does not start with a double quote")]
    MissingQuote,
    /// The line ended inside a label value.
    #[error("label value is not closed before the end of the line")]
    UnterminatedLabelValue,
    /// A backslash is followed by something other than `\`, `"` or `n`.
    #[error("backslash is not followed by a backslash, a double quote or n")]
    InvalidEscape,
    /// A label is followed by neither a comma nor a closing brace.
    #[error("label is not followed by a comma or a closing brace")]
    MissingComma,
    /// The line ended inside the labels.
    #[error("labels are not closed before the end of the line")]
    UnterminatedLabels,
    #[error("value is missing")]
    MissingValue,
    #[error("value is not a floating-point number")]
    InvalidValue,
    #[error("value is out of range for a 64-bit float")]
    ValueOutOfRange,
    /// The timestamp is not a whole number of milliseconds, or does not fit 64 bits.
    #[error("timestamp is not a 64-bit integer")]
    InvalidTimestamp,
    /// Something follows the timestamp.
    #[error("unexpected text after the timestamp")]
    TrailingText,
    /// A `TYPE` line without a type, or with one that the format does not have.
    #[error("metric type is not counter, gauge, histogram, summary or untyped")]
    UnknownType,
}

/// A name that is invalid in the text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum NameError {
    /// Not `[a-zA-Z_:][a-zA-Z0-9_:]*`.
    #[error("metric name is not of the form [a-zA-Z_:][a-zA-Z0-9_:]*")]
    InvalidMetricName,
    /// Not `[a-zA-Z_][a-zA-Z0-9_]*`.
    #[error("label name is not of the form [a-zA-Z_][a-zA-Z0-9_]*")]
    InvalidLabelName,
    /// The label name `__name__`, which stands for the metric name.
    #[error("label name __name__ is reserved for the metric name")]
    ReservedLabelName,
}

/// A label set that a [`Document`](crate::Document) rejects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error)]
pub enum LabelsError {
    /// Two labels have the same name.
    #[error("label name {name:?} occurs twice in one series")]
    Duplicate { name: String },
    /// There are more than [`MAX_LABELS`](crate::MAX_LABELS) labels.
    #[error("series has more than {} labels", crate::MAX_LABELS)]
    TooMany,
}

impl Reason {
    /// All reasons, for counting them.
    pub const ALL: [Self; 20] = [
        Self::InvalidUtf8,
        Self::MissingMetricName,
        Self::InvalidMetricName,
        Self::QuotedName,
        Self::InvalidLabelName,
        Self::ReservedLabelName,
        Self::DuplicateLabelName,
        Self::TooManyLabels,
        Self::MissingEquals,
        Self::MissingQuote,
        Self::UnterminatedLabelValue,
        Self::InvalidEscape,
        Self::MissingComma,
        Self::UnterminatedLabels,
        Self::MissingValue,
        Self::InvalidValue,
        Self::ValueOutOfRange,
        Self::InvalidTimestamp,
        Self::TrailingText,
        Self::UnknownType,
    ];
}

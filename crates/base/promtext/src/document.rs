//! A whole exposition in memory.

mod collect;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

use crate::encode::{Encoder, Suffix};
use crate::error::{LabelsError, ParseError};
use crate::name::{LabelName, MetricName, MetricType};
use crate::parse::{MAX_LABELS, Summary};

pub use collect::MAX_KEPT_ERRORS;

/// A whole exposition: families with their series.
///
/// Families, series and labels may come in any order. [`Document::encode`] sorts them as Go's
/// `client_golang` does: families by name; labels by name; series by the number of their labels,
/// then by label values, then by timestamp, those without one last. Histograms and summaries keep
/// the order of their series and labels (see [`Order`]): sorting would put the bucket `le="10"`
/// before `le="2"`.
///
/// Unlike the parser, a document allocates memory in proportion to its contents: up to three times
/// the size of a kubelet body, up to a hundred times that of one with the shortest lines. Limit the
/// size of untrusted bodies before calling [`Document::parse`].
#[derive(Debug, Clone, Default)]
pub struct Document<'a> {
    families: Vec<Family<'a>>,
    /// Index in `families` by name.
    index: HashMap<&'a str, usize>,
    errors: Vec<ParseError>,
    summary: Option<Summary>,
}

/// A family: its metadata and its series.
#[derive(Debug, Clone)]
pub struct Family<'a> {
    name: MetricName<'a>,
    help: Option<Cow<'a, str>>,
    kind: Option<MetricType>,
    order: Option<Order>,
    series: Vec<StoredSeries>,
    /// The labels of all series, concatenated.
    labels: Vec<(LabelName<'a>, Cow<'a, str>)>,
}

/// A family that series can be added to.
#[derive(Debug)]
pub struct FamilyMut<'d, 'a> {
    family: &'d mut Family<'a>,
}

/// A series of a family, with its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series<'d, 'a> {
    /// The suffix of its name after that of the family.
    pub suffix: Suffix,
    pub labels: &'d [(LabelName<'a>, Cow<'a, str>)],
    pub value: f64,
    /// The timestamp of the value, in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

/// The order in which the series and labels of a family are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Sorted as `client_golang` does: the default of counters, gauges and untyped families.
    Sorted,
    /// As added: the default of histograms and summaries.
    AsGiven,
}

#[derive(Debug, Clone, Copy)]
struct StoredSeries {
    first_label: usize,
    label_count: usize,
    suffix: Suffix,
    value: f64,
    timestamp_ms: Option<i64>,
}

impl<'a> Document<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the family of this name, and adds it if it is missing.
    pub fn family(&mut self, name: MetricName<'a>) -> FamilyMut<'_, 'a> {
        let position = self.position(name);
        FamilyMut {
            family: self.at(position),
        }
    }

    /// Returns the families in the order in which they were added or, after [`Document::sort`], by
    /// name.
    pub fn families(&self) -> &[Family<'a>] {
        &self.families
    }

    /// Returns the first [`MAX_KEPT_ERRORS`] errors of [`Document::parse`].
    pub fn errors(&self) -> &[ParseError] {
        &self.errors
    }

    /// Returns the summary of [`Document::parse`], if the document was parsed.
    pub fn summary(&self) -> Option<Summary> {
        self.summary
    }

    /// Sorts families, series and labels. It is cheap if they are sorted already.
    pub fn sort(&mut self) {
        for family in &mut self.families {
            family.sort();
        }
        if !self.families.is_sorted_by_key(|family| family.name) {
            self.families.sort_by_key(|family| family.name);
            for (position, family) in self.families.iter().enumerate() {
                self.index.insert(family.name.as_str(), position);
            }
        }
    }

    /// Sorts, and appends the text format to `out`.
    ///
    /// Families without series are omitted, as in Go. `HELP` and `TYPE` lines are written only if
    /// there is a text or a type.
    pub fn encode(&mut self, out: &mut Vec<u8>) {
        self.sort();
        let mut encoder = Encoder::new(out);
        for family in self
            .families
            .iter()
            .filter(|family| !family.series.is_empty())
        {
            let mut samples = encoder.family(family.name, family.help.as_deref(), family.kind);
            for series in family.series() {
                let Series {
                    suffix,
                    labels,
                    value,
                    timestamp_ms,
                } = series;
                samples.suffixed_sample(suffix, labels, value, timestamp_ms);
            }
        }
    }

    fn position(&mut self, name: MetricName<'a>) -> usize {
        *self.index.entry(name.as_str()).or_insert_with(|| {
            self.families.push(Family::new(name));
            self.families.len() - 1
        })
    }

    fn at(&mut self, position: usize) -> &mut Family<'a> {
        self.families
            .get_mut(position)
            .expect("the index has valid positions")
    }
}

impl<'a> Family<'a> {
    fn new(name: MetricName<'a>) -> Self {
        Self {
            name,
            help: None,
            kind: None,
            order: None,
            series: Vec::new(),
            labels: Vec::new(),
        }
    }

    pub fn name(&self) -> MetricName<'a> {
        self.name
    }

    /// Returns the `HELP` text.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    pub fn kind(&self) -> Option<MetricType> {
        self.kind
    }

    /// Returns the series in the order in which they were added or, once sorted, in that of the
    /// document.
    pub fn series(&self) -> impl Iterator<Item = Series<'_, 'a>> {
        self.series.iter().map(|series| Series {
            suffix: series.suffix,
            labels: labels_of(&self.labels, series),
            value: series.value,
            timestamp_ms: series.timestamp_ms,
        })
    }

    fn order(&self) -> Order {
        self.order.unwrap_or(match self.kind {
            Some(MetricType::Histogram | MetricType::Summary) => Order::AsGiven,
            _ => Order::Sorted,
        })
    }

    fn sort(&mut self) {
        if self.order() == Order::AsGiven {
            return;
        }
        let Self { series, labels, .. } = self;
        for one in &*series {
            let range = one.first_label..one.first_label + one.label_count;
            let own = labels.get_mut(range).unwrap_or_default();
            if !own.is_sorted_by_key(|(name, _)| *name) {
                own.sort_by_key(|(name, _)| *name);
            }
        }
        let compare = |left: &StoredSeries, right: &StoredSeries| compare(labels, left, right);
        if !series.is_sorted_by(|left, right| compare(left, right) != Ordering::Greater) {
            series.sort_by(compare);
        }
    }

    fn push<L>(
        &mut self,
        suffix: Suffix,
        labels: L,
        value: f64,
        timestamp_ms: Option<i64>,
    ) -> Result<(), LabelsError>
    where
        L: IntoIterator<Item = (LabelName<'a>, Cow<'a, str>)>,
    {
        let first_label = self.labels.len();
        for (name, value) in labels {
            let own = self.labels.get(first_label..).unwrap_or_default();
            let error = if own.len() == MAX_LABELS {
                LabelsError::TooMany
            } else if own.iter().any(|(other, _)| *other == name) {
                LabelsError::Duplicate {
                    name: name.as_str().to_owned(),
                }
            } else {
                self.labels.push((name, value));
                continue;
            };
            self.labels.truncate(first_label);
            return Err(error);
        }
        let label_count = self.labels.len() - first_label;
        self.series.push(StoredSeries {
            first_label,
            label_count,
            suffix,
            value,
            timestamp_ms,
        });
        Ok(())
    }
}

impl<'a> FamilyMut<'_, 'a> {
    /// Sets the `HELP` text.
    pub fn set_help(&mut self, help: impl Into<Cow<'a, str>>) -> &mut Self {
        self.family.help = Some(help.into());
        self
    }

    /// Sets the type.
    pub fn set_kind(&mut self, kind: MetricType) -> &mut Self {
        self.family.kind = Some(kind);
        self
    }

    /// Sets another order than the default of the type.
    pub fn set_order(&mut self, order: Order) -> &mut Self {
        self.family.order = Some(order);
        self
    }

    /// Adds a series. Duplicates are not detected.
    pub fn add<V: Into<Cow<'a, str>>>(
        &mut self,
        labels: impl IntoIterator<Item = (LabelName<'a>, V)>,
        value: f64,
        timestamp_ms: Option<i64>,
    ) -> Result<&mut Self, LabelsError> {
        self.add_suffixed(Suffix::None, labels, value, timestamp_ms)
    }

    /// Adds a series of a histogram or summary.
    ///
    /// The order is kept: add buckets by increasing `le`, then the sum, then the count, with `le`
    /// or `quantile` as the last label, as Go does.
    pub fn add_suffixed<V: Into<Cow<'a, str>>>(
        &mut self,
        suffix: Suffix,
        labels: impl IntoIterator<Item = (LabelName<'a>, V)>,
        value: f64,
        timestamp_ms: Option<i64>,
    ) -> Result<&mut Self, LabelsError> {
        let labels = labels.into_iter().map(|(name, value)| (name, value.into()));
        self.family.push(suffix, labels, value, timestamp_ms)?;
        Ok(self)
    }
}

fn labels_of<'d, 'a>(
    labels: &'d [(LabelName<'a>, Cow<'a, str>)],
    series: &StoredSeries,
) -> &'d [(LabelName<'a>, Cow<'a, str>)] {
    labels
        .get(series.first_label..series.first_label + series.label_count)
        .unwrap_or_default()
}

/// Compares series like `client_golang`'s `MetricSorter`.
fn compare(
    labels: &[(LabelName<'_>, Cow<'_, str>)],
    left: &StoredSeries,
    right: &StoredSeries,
) -> Ordering {
    let values = |series| {
        labels_of(labels, series)
            .iter()
            .map(|(_, value)| value.as_ref())
    };
    left.label_count
        .cmp(&right.label_count)
        .then_with(|| values(left).cmp(values(right)))
        .then_with(|| match (left.timestamp_ms, right.timestamp_ms) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(left), Some(right)) => left.cmp(&right),
        })
}

#[cfg(test)]
mod tests;

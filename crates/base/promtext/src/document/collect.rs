//! Creation of a document from a body.

use super::{Document, Family, StoredSeries};
use crate::encode::Suffix;
use crate::name::MetricName;
use crate::parse::{Item, Sample, parse};

/// Maximum number of errors that a document keeps. [`Summary::errors`](crate::Summary::errors)
/// counts them all.
///
/// The errors of a body with only invalid lines would be many times its size.
pub const MAX_KEPT_ERRORS: usize = 1024;

impl<'a> Document<'a> {
    /// Parses a body. Invalid lines become [`Document::errors`].
    ///
    /// The first `HELP` and the first `TYPE` of a family count. A sample belongs to the family of
    /// its name or, with `_bucket`, `_sum` or `_count` after it, to the histogram or summary of
    /// the name before that. A last line without a newline is included: see
    /// [`Summary::terminated`](crate::Summary::terminated).
    pub fn parse(body: &'a [u8]) -> Self {
        let mut document = Self::new();
        let mut location = None;
        let summary = parse(body, |item| match item {
            Item::Sample(sample) => document.take(&mut location, &sample),
            Item::Help(help) => {
                let mut family = document.family(help.name);
                if family.family.help.is_none() {
                    family.set_help(help.text());
                }
            }
            Item::Type(kind) => {
                let mut family = document.family(kind.name);
                if family.family.kind.is_none() {
                    family.set_kind(kind.kind);
                }
                // A name ending in `_sum` may now belong to this family.
                location = None;
            }
            Item::Comment(_) => {}
            Item::Error(error) => {
                if document.errors.len() < MAX_KEPT_ERRORS {
                    document.errors.push(error);
                }
            }
        });
        document.summary = Some(summary);
        document.adopt_early_samples();
        document
    }

    fn take(&mut self, location: &mut Option<Location<'a>>, sample: &Sample<'a, '_>) {
        let Location {
            position, suffix, ..
        } = match location {
            Some(location) if location.name == sample.name => *location,
            _ => *location.insert(self.location(sample.name)),
        };
        let labels = sample
            .labels
            .iter()
            .map(|label| (label.name, label.value()));
        self.at(position)
            .push(suffix, labels, sample.value, sample.timestamp_ms)
            .expect("the parser has validated the labels");
    }

    /// Returns the family of samples of this name.
    fn location(&mut self, name: MetricName<'a>) -> Location<'a> {
        if !self.index.contains_key(name.as_str())
            && let Some((position, suffix)) = self.owner(name)
        {
            return Location {
                name,
                position,
                suffix,
            };
        }
        Location {
            name,
            position: self.position(name),
            suffix: Suffix::None,
        }
    }

    /// Returns the histogram or summary whose samples have this name, and their suffix.
    fn owner(&self, name: MetricName<'a>) -> Option<(usize, Suffix)> {
        [Suffix::Bucket, Suffix::Sum, Suffix::Count]
            .into_iter()
            .find_map(|suffix| {
                let position = *self
                    .index
                    .get(name.as_str().strip_suffix(suffix.as_str())?)?;
                let kind = self.families.get(position)?.kind;
                Suffix::of(kind)
                    .contains(&suffix)
                    .then_some((position, suffix))
            })
    }

    /// Moves samples that precede the type of their family to it.
    ///
    /// Once written, the type precedes them: they would change families when parsed again.
    fn adopt_early_samples(&mut self) {
        let mut adopted = false;
        for position in 0..self.families.len() {
            let family = self.at(position);
            if family.help.is_some() || family.kind.is_some() {
                continue;
            }
            let name = family.name;
            let Some((owner, suffix)) = self.owner(name) else {
                continue;
            };
            let early = std::mem::replace(self.at(position), Family::new(name));
            self.at(owner).adopt(early, suffix);
            adopted = true;
        }
        if adopted {
            let keep = |family: &Family<'_>| {
                family.help.is_some() || family.kind.is_some() || !family.series.is_empty()
            };
            self.families.retain(keep);
            self.index = self
                .families
                .iter()
                .enumerate()
                .map(|(position, family)| (family.name.as_str(), position))
                .collect();
        }
    }
}

impl Family<'_> {
    fn adopt(&mut self, other: Self, suffix: Suffix) {
        let offset = self.labels.len();
        self.labels.extend(other.labels);
        self.series
            .extend(other.series.into_iter().map(|series| StoredSeries {
                first_label: series.first_label + offset,
                suffix,
                ..series
            }));
    }
}

/// The family of the samples of one name, so that a run of them is looked up once.
#[derive(Clone, Copy)]
struct Location<'a> {
    name: MetricName<'a>,
    position: usize,
    suffix: Suffix,
}

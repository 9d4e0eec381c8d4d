//! Fills a document from a body.

use super::{Document, Family, StoredSeries};
use crate::encode::Suffix;
use crate::name::MetricName;
use crate::parse::{Item, Sample, parse};

/// How many errors a document keeps; [`Summary::errors`](crate::Summary::errors) counts them all.
///
/// A body of nothing but bad lines would otherwise turn into a list many times its size.
pub const MAX_KEPT_ERRORS: usize = 1024;

impl<'a> Document<'a> {
    /// Collects everything in `body`; bad lines become [`Document::errors`].
    ///
    /// The first `HELP` and the first `TYPE` of a family count. A sample belongs to the family of
    /// its name or, with `_bucket`, `_sum` or `_count` after it, to the histogram or summary of
    /// the name before that. A last line without a newline is taken too: see
    /// [`Summary::terminated`](crate::Summary::terminated).
    pub fn parse(body: &'a [u8]) -> Self {
        let mut document = Self::new();
        let mut place = None;
        let summary = parse(body, |item| match item {
            Item::Sample(sample) => document.take(&mut place, &sample),
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
                place = None;
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

    fn take(&mut self, place: &mut Option<Place<'a>>, sample: &Sample<'a, '_>) {
        let Place {
            position, suffix, ..
        } = match place {
            Some(place) if place.name == sample.name => *place,
            _ => *place.insert(self.place(sample.name)),
        };
        let labels = sample
            .labels
            .iter()
            .map(|label| (label.name, label.value()));
        self.at(position)
            .push(suffix, labels, sample.value, sample.timestamp_ms)
            .expect("the parser refuses what a document refuses");
    }

    /// Where samples of this name belong.
    fn place(&mut self, name: MetricName<'a>) -> Place<'a> {
        if !self.index.contains_key(name.as_str())
            && let Some((position, suffix)) = self.owner(name)
        {
            return Place {
                name,
                position,
                suffix,
            };
        }
        Place {
            name,
            position: self.position(name),
            suffix: Suffix::None,
        }
    }

    /// The histogram or summary whose samples may have this name, and the suffix that they have.
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

    /// Gives samples that came before the type of their family to it.
    ///
    /// Once written, the type comes before them: they would change families when read again.
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

/// Where the samples of one name go, so that a run of them is looked up once.
#[derive(Clone, Copy)]
struct Place<'a> {
    name: MetricName<'a>,
    position: usize,
    suffix: Suffix,
}

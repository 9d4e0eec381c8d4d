//! Fills a document from a body.

use super::Document;
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
    /// its name or, with `_bucket`, `_sum` or `_count` after it, to the histogram or summary whose
    /// `TYPE` came before it. A last line without a newline is taken too: see
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
        if !self.index.contains_key(name.as_str()) {
            for suffix in [Suffix::Bucket, Suffix::Sum, Suffix::Count] {
                let Some(base) = name.as_str().strip_suffix(suffix.as_str()) else {
                    continue;
                };
                let Some(&position) = self.index.get(base) else {
                    continue;
                };
                if Suffix::of(self.at(position).kind).contains(&suffix) {
                    return Place {
                        name,
                        position,
                        suffix,
                    };
                }
            }
        }
        Place {
            name,
            position: self.position(name),
            suffix: Suffix::None,
        }
    }
}

/// Where the samples of one name go, so that a run of them is looked up once.
#[derive(Clone, Copy)]
struct Place<'a> {
    name: MetricName<'a>,
    position: usize,
    suffix: Suffix,
}

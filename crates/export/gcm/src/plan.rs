//! Which points are written, in which calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::hash_map::Entry;
use hashbrown::{DefaultHashBuilder, HashMap};
use kubevitals_model::Timestamp;
use kubevitals_sink::DataPoint;
use serde_json::Value;

use crate::descriptor::Described;
use crate::metrics::Code;
use crate::series::series;
use crate::settings::GcmSettings;

/// Maximum number of series of a call.
pub(crate) const MAX_SERIES: usize = 200;

/// The backend accepts points of the last 25 hours.
const MAX_AGE: Duration = Duration::from_hours(24);

/// Maximum number of series whose last point is known. Beyond it the backend alone judges the
/// distance of points.
const MAX_KNOWN: usize = 200_000;

/// A point in a call.
pub(crate) struct Planned {
    /// Its position in the batch.
    pub(crate) at: usize,
    /// Its series.
    pub(crate) key: u64,
    pub(crate) end: Timestamp,
    pub(crate) json: Value,
}

/// What is to be done with a batch.
#[derive(Default)]
pub(crate) struct Plan {
    /// In order; each has one point of a series at most.
    pub(crate) calls: Vec<Vec<Planned>>,
    /// Points that are left out.
    pub(crate) refused: Vec<Code>,
    /// Metrics to describe first: the position of a point, and the keys of all labels.
    pub(crate) undescribed: BTreeMap<Arc<str>, (usize, BTreeSet<String>)>,
}

/// The last point of each series.
#[derive(Debug, Default)]
pub(crate) struct LastPoints {
    ends: HashMap<u64, Timestamp>,
    /// When series that ended were last forgotten.
    cleaned: Option<Timestamp>,
    hasher: DefaultHashBuilder,
}

impl LastPoints {
    pub(crate) fn record(&mut self, key: u64, end: Timestamp) {
        let hour_ago = end.checked_sub(Duration::from_hours(1));
        // Not for each point: all of them may be recent.
        if self.ends.len() >= MAX_KNOWN && self.cleaned <= hour_ago {
            self.cleaned = Some(end);
            self.ends.retain(|_, known| Some(*known) >= hour_ago);
        }
        let is_full = self.ends.len() >= MAX_KNOWN;
        match self.ends.entry(key) {
            Entry::Occupied(mut known) => {
                let later = end.max(*known.get());
                known.insert(later);
            }
            Entry::Vacant(free) if !is_full => {
                free.insert(end);
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Plans the calls of a batch.
    pub(crate) fn plan(
        &self,
        settings: &GcmSettings,
        described: &Described,
        now: Timestamp,
        batch: &[DataPoint],
    ) -> Plan {
        let distance = settings.distance();
        let oldest = now.checked_sub(MAX_AGE);
        let mut plan = Plan::default();
        // The last point of each series in this batch, and the number of its points.
        let mut planned: HashMap<u64, (Timestamp, usize)> = HashMap::new();
        let mut rounds: Vec<Vec<Planned>> = Vec::new();
        for (at, point) in batch.iter().enumerate() {
            let found = series(&settings.prefix, &settings.place, &self.hasher, point);
            let found = match found {
                Ok(_) if Some(point.timestamp) < oldest => Err(Code::TooOld),
                other => other,
            };
            let found = match found {
                Ok(found) => found,
                Err(code) => {
                    plan.refused.push(code);
                    continue;
                }
            };
            let (key, end) = (found.key, point.timestamp);
            let in_batch = planned.get(&key).copied();
            let last = in_batch.map(|(last, _)| last);
            let last = last.or_else(|| self.ends.get(&key).copied());
            let is_far = last.is_none_or(|last| end.since(last).is_some_and(|d| d >= distance));
            if !is_far {
                plan.refused.push(Code::Paced);
                continue;
            }
            let round = in_batch.map_or(0, |(_, points)| points);
            planned.insert(key, (end, round + 1));
            if described.needs(&point.name) {
                let metric = plan.undescribed.entry(Arc::clone(&point.name));
                let (_, keys) = metric.or_insert_with(|| (at, BTreeSet::new()));
                keys.extend(found.label_keys);
            }
            if rounds.len() <= round {
                rounds.push(Vec::new());
            }
            if let Some(round) = rounds.get_mut(round) {
                round.push(Planned {
                    at,
                    key,
                    end,
                    json: found.json,
                });
            }
        }
        for round in rounds {
            let mut round = round.into_iter();
            loop {
                let call: Vec<Planned> = round.by_ref().take(MAX_SERIES).collect();
                if call.is_empty() {
                    break;
                }
                plan.calls.push(call);
            }
        }
        plan
    }
}

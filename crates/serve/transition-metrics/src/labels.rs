//! Groups of pods that share series, and their limit.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{Equivalent, HashMap};
use kubevitals_telemetry::LabelSet;
use kubevitals_transitions::{LabelKeys, PodRecord, Workload};
use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};

use crate::config::{LabelChoice, Topology, ZONE};

/// The value of every label of pods beyond the limit. No name in Kubernetes begins with an
/// underscore.
pub const OVERFLOW: &str = "_other";

/// The workload kind of a pod without owner. Its name is left out: every pod has another.
const BARE_POD: &str = "Pod";

/// Maximum length of a name in Kubernetes.
const MAX_VALUE: usize = 253;

const NAMES: [&str; 5] = [
    "namespace",
    "workload_kind",
    "workload",
    "node_pool",
    "zone",
];

/// The label sets in use. The first ones have series of their own, in every family alike, so that
/// families can be divided by one another.
#[derive(Debug)]
pub(crate) struct Groups {
    choice: LabelChoice,
    label_keys: LabelKeys,
    limit: usize,
    /// The names of the labels.
    names: Arc<[Box<str>]>,
    known: HashMap<Box<[Box<str>]>, KnownGroup>,
    overflow: Arc<Group>,
    last_id: usize,
    /// The time since the process started.
    now: Duration,
}

#[derive(Debug)]
struct KnownGroup {
    group: Arc<Group>,
    used: Duration,
}

/// Pods that share series.
#[derive(Debug)]
pub(crate) struct Group {
    /// Identifies the group faster than its values; never used again.
    id: usize,
    names: Arc<[Box<str>]>,
    values: Box<[Box<str>]>,
}

/// The labels of one series: of a group of pods, of the family itself, or of both.
#[derive(Debug, Clone)]
pub(crate) struct SeriesLabels {
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) own: Option<(&'static str, &'static str)>,
}

/// A key for lookups.
#[derive(Hash)]
struct Wanted<'w>(&'w [&'w str]);

impl Groups {
    pub(crate) fn new(choice: LabelChoice, label_keys: LabelKeys, limit: usize) -> Self {
        let chosen = choice.names().map(Box::from);
        let names: Arc<[Box<str>]> = chosen.chain(label_keys.names().map(Box::from)).collect();
        let overflow = Group {
            id: 0,
            names: Arc::clone(&names),
            values: names.iter().map(|_| OVERFLOW.into()).collect(),
        };
        Self {
            choice,
            label_keys,
            limit,
            names,
            known: HashMap::new(),
            overflow: Arc::new(overflow),
            last_id: 0,
            now: Duration::ZERO,
        }
    }

    /// The group of a pod, which counts as used now.
    pub(crate) fn of(&mut self, record: &PodRecord, topology: Topology<'_>) -> Arc<Group> {
        let pod = &*record.pod;
        let workload = Workload::template_of(pod).unwrap_or(Workload {
            kind: BARE_POD,
            name: "",
        });
        let zone = || pod.summary.labels.get(ZONE).map(|zone| &**zone);
        let values = [
            &*pod.summary.identity.namespace,
            workload.kind,
            workload.name,
            topology.pool.unwrap_or_default(),
            topology.zone.or_else(zone).unwrap_or_default(),
        ];
        let chosen = values.into_iter().zip(self.choice.of_names());
        let chosen = chosen.filter_map(|(value, is_chosen)| is_chosen.then_some(value));
        let labels = self.label_keys.values(pod).map(Option::unwrap_or_default);
        let wanted: Vec<&str> = chosen.chain(labels).map(bounded).collect();
        self.find(&wanted)
    }

    /// Whether this is the group of all pods beyond the limit.
    pub(crate) fn is_overflow(&self, group: &Arc<Group>) -> bool {
        Arc::ptr_eq(group, &self.overflow)
    }

    /// The number of groups with series of their own.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Sets the time since the process started, and returns whether groups were removed that were
    /// not used for longer than `idle_timeout`. A removed group is [gone](Self::has).
    pub(crate) fn advance(&mut self, now: Duration, idle_timeout: Option<Duration>) -> bool {
        self.now = now;
        let before = self.known.len();
        if let Some(timeout) = idle_timeout {
            self.known
                .retain(|_, known| now.saturating_sub(known.used) <= timeout);
        }
        self.known.len() < before
    }

    /// Whether series of these labels may stay.
    pub(crate) fn has(&self, labels: &SeriesLabels) -> bool {
        labels.group.as_ref().is_none_or(|group| {
            self.is_overflow(group)
                || self
                    .known
                    .get(&group.values)
                    .is_some_and(|known| known.group.id == group.id)
        })
    }

    fn find(&mut self, wanted: &[&str]) -> Arc<Group> {
        if let Some(found) = self.known.get_mut(&Wanted(wanted)) {
            found.used = self.now;
            return Arc::clone(&found.group);
        }
        if self.known.len() >= self.limit {
            return Arc::clone(&self.overflow);
        }
        self.last_id += 1;
        let values: Box<[Box<str>]> = wanted.iter().map(|value| (*value).into()).collect();
        let new = Arc::new(Group {
            id: self.last_id,
            names: Arc::clone(&self.names),
            values: values.clone(),
        });
        let known = KnownGroup {
            group: Arc::clone(&new),
            used: self.now,
        };
        self.known.insert(values, known);
        new
    }
}

impl Group {
    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.names.iter().zip(&self.values);
        named.map(|(name, value)| (&**name, &**value))
    }
}

impl LabelChoice {
    /// Whether each of [`NAMES`] is chosen.
    const fn of_names(self) -> [bool; NAMES.len()] {
        [
            self.namespace,
            self.workload,
            self.workload,
            self.node_pool,
            self.zone,
        ]
    }

    /// The names of the labels that are chosen.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = NAMES.into_iter().zip(self.of_names());
        named.filter_map(|(name, is_chosen)| is_chosen.then_some(name))
    }
}

impl SeriesLabels {
    fn group_id(&self) -> Option<usize> {
        self.group.as_ref().map(|group| group.id)
    }
}

impl PartialEq for SeriesLabels {
    fn eq(&self, other: &Self) -> bool {
        self.group_id() == other.group_id() && self.own == other.own
    }
}

impl Eq for SeriesLabels {}

impl Hash for SeriesLabels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.group_id().hash(state);
        self.own.hash(state);
    }
}

impl LabelSet for SeriesLabels {
    fn visit(&self, visit: &mut dyn FnMut(&str, &str)) {
        let group = self.group.iter();
        for (name, value) in group.flat_map(|group| group.labels()) {
            visit(name, value);
        }
        if let Some((name, value)) = self.own {
            visit(name, value);
        }
    }
}

impl EncodeLabelSet for SeriesLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let mut result = Ok(());
        self.visit(&mut |name, value| {
            if result.is_ok() {
                result = (name, value).encode(encoder.encode_label());
            }
        });
        result
    }
}

impl Equivalent<Box<[Box<str>]>> for Wanted<'_> {
    fn equivalent(&self, key: &Box<[Box<str>]>) -> bool {
        let mut pairs = self.0.iter().zip(key);
        self.0.len() == key.len() && pairs.all(|(one, two)| **one == **two)
    }
}

/// Truncates a value. The API server accepts no longer names, so no valid one is cut.
fn bounded(value: &str) -> &str {
    let end = value.floor_char_boundary(MAX_VALUE);
    value.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn shown(group: &Group) -> Vec<(&str, &str)> {
        group.labels().collect()
    }

    fn namespaces(limit: usize) -> Groups {
        let choice = "namespace".parse().unwrap();
        Groups::new(choice, LabelKeys::default(), limit)
    }

    fn series(group: &Arc<Group>) -> SeriesLabels {
        SeriesLabels {
            group: Some(Arc::clone(group)),
            own: None,
        }
    }

    #[test]
    fn a_group_has_the_chosen_labels() {
        let keys = "team".parse().unwrap();
        let mut groups = Groups::new(LabelChoice::default(), keys, 10);
        let group = groups.find(&["a", "Deployment", "web", "shop"]);
        assert_eq!(
            shown(&group),
            [
                ("namespace", "a"),
                ("workload_kind", "Deployment"),
                ("workload", "web"),
                ("label_team", "shop")
            ]
        );
        let mut none = Groups::new(LabelChoice::NONE, LabelKeys::default(), 10);
        let one = none.find(&[]);
        assert_eq!((shown(&one), none.len()), (vec![], 1));
    }

    #[test]
    fn values_longer_than_any_name_are_truncated() {
        assert_eq!(bounded(&"é".repeat(200)).len(), 252);
        let longest = "n".repeat(253);
        assert_eq!(bounded(&longest), longest);
    }

    #[test]
    fn idle_groups_leave_and_come_back_as_others() {
        let mut groups = namespaces(2);
        let (old, used) = (groups.find(&["old"]), groups.find(&["used"]));
        assert!(!groups.advance(DAY, Some(DAY)), "not longer than a day");
        groups.find(&["used"]);
        let full = groups.find(&["new"]);
        assert!(groups.is_overflow(&full));
        assert!(groups.advance(DAY + Duration::from_secs(1), Some(DAY)));
        assert!(!groups.has(&series(&old)) && groups.has(&series(&used)));
        assert!(groups.has(&series(&full)));
        let again = groups.find(&["old"]);
        assert!(!groups.is_overflow(&again));
        assert!(!groups.has(&series(&old)) && groups.has(&series(&again)));
        assert!(
            !groups.advance(100 * DAY, None),
            "without a timeout all stay"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_limit_holds_and_admitted_groups_stay(
            found in proptest::collection::vec("[a-d]{1,2}", 0..100),
            limit in 0_usize..10,
        ) {
            let mut groups = namespaces(limit);
            let mut seen: Vec<&str> = Vec::new();
            for namespace in &found {
                let group = groups.find(&[namespace]);
                let is_known = seen.contains(&namespace.as_str());
                if !is_known && seen.len() < limit {
                    seen.push(namespace);
                }
                let has_own_series = seen.contains(&namespace.as_str());
                prop_assert_eq!(groups.is_overflow(&group), !has_own_series);
                let expected = if has_own_series { namespace } else { OVERFLOW };
                prop_assert_eq!(shown(&group), vec![("namespace", expected)]);
                prop_assert!(groups.len() <= limit);
            }
        }
    }
}

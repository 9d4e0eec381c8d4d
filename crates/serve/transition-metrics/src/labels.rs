//! Groups of pods that share series, and their limit.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::{Equivalent, HashMap};
use kubevitals_telemetry::LabelSet;
use kubevitals_transitions::{PodRecord, Workload};
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

/// The values of all labels, empty for those not chosen.
type Values<T> = [T; NAMES.len()];

/// The label sets in use. The first ones have series of their own, in every family alike, so that
/// families can be divided by one another.
#[derive(Debug)]
pub(crate) struct Groups {
    choice: LabelChoice,
    limit: usize,
    known: Mutex<HashMap<Values<Box<str>>, Arc<Group>>>,
    overflow: Arc<Group>,
}

/// Pods that share series.
#[derive(Debug)]
pub(crate) struct Group {
    /// Identifies the group faster than its values.
    id: usize,
    labels: Box<[(&'static str, Box<str>)]>,
}

/// The labels of one series: of a group of pods, of the family itself, or of both.
#[derive(Debug, Clone)]
pub(crate) struct SeriesLabels {
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) own: Option<(&'static str, &'static str)>,
}

/// A key for lookups.
#[derive(Hash)]
struct Wanted<'w>(Values<&'w str>);

impl Groups {
    pub(crate) fn new(choice: LabelChoice, limit: usize) -> Self {
        let overflow = Group::new(choice, 0, NAMES.map(|_| OVERFLOW));
        Self {
            choice,
            limit,
            known: Mutex::default(),
            overflow: Arc::new(overflow),
        }
    }

    /// The group of a pod.
    pub(crate) fn of(&self, record: &PodRecord, topology: Topology<'_>) -> Arc<Group> {
        let pod = &*record.pod;
        let workload = Workload::of(pod).unwrap_or(Workload {
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
        self.find(values)
    }

    /// Whether this is the group of all pods beyond the limit.
    pub(crate) fn is_overflow(&self, group: &Arc<Group>) -> bool {
        Arc::ptr_eq(group, &self.overflow)
    }

    /// The number of groups with series of their own.
    pub(crate) fn len(&self) -> usize {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.len()
    }

    fn find(&self, values: Values<&str>) -> Arc<Group> {
        let chosen = self.choice.of_names();
        let mut wanted = [""; NAMES.len()];
        for ((slot, value), is_chosen) in wanted.iter_mut().zip(values).zip(chosen) {
            if is_chosen {
                *slot = bounded(value);
            }
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&Wanted(wanted)) {
            return Arc::clone(found);
        }
        if known.len() >= self.limit {
            return Arc::clone(&self.overflow);
        }
        let new = Arc::new(Group::new(self.choice, known.len() + 1, wanted));
        known.insert(wanted.map(Into::into), Arc::clone(&new));
        new
    }
}

impl Group {
    fn new(choice: LabelChoice, id: usize, values: Values<&str>) -> Self {
        let named = NAMES.into_iter().zip(values).zip(choice.of_names());
        Self {
            id,
            labels: named
                .filter(|(_, is_chosen)| *is_chosen)
                .map(|((name, value), _)| (name, value.into()))
                .collect(),
        }
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
        let group = self.group.iter().flat_map(|group| &group.labels);
        for (name, value) in group {
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

impl Equivalent<Values<Box<str>>> for Wanted<'_> {
    fn equivalent(&self, key: &Values<Box<str>>) -> bool {
        self.0.iter().zip(key).all(|(one, two)| **one == **two)
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

    fn shown(group: &Group) -> Vec<(&str, &str)> {
        let labels = group.labels.iter();
        labels.map(|(name, value)| (*name, &**value)).collect()
    }

    #[test]
    fn only_chosen_labels_distinguish_groups() {
        let groups = Groups::new(LabelChoice::default(), 10);
        let one = groups.find(["a", "Deployment", "web", "p", "z1"]);
        let two = groups.find(["a", "Deployment", "web", "q", "z2"]);
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(
            shown(&one),
            [
                ("namespace", "a"),
                ("workload_kind", "Deployment"),
                ("workload", "web")
            ]
        );
        let none = Groups::new(LabelChoice::NONE, 10);
        let one = none.find(["a", "b", "c", "d", "e"]);
        assert_eq!((shown(&one), none.len()), (vec![], 1));
    }

    #[test]
    fn values_longer_than_any_name_are_truncated() {
        let groups = Groups::new("namespace".parse().unwrap(), 10);
        let long = "é".repeat(200);
        let group = groups.find([&long, "", "", "", ""]);
        assert_eq!(shown(&group)[0].1.len(), 252);
        let longest = "n".repeat(253);
        let group = groups.find([&longest, "", "", "", ""]);
        assert_eq!(shown(&group)[0].1, longest);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_limit_holds_and_admitted_groups_stay(
            namespaces in proptest::collection::vec("[a-d]{1,2}", 0..100),
            limit in 0_usize..10,
        ) {
            let groups = Groups::new("namespace".parse().unwrap(), limit);
            let mut seen: Vec<&str> = Vec::new();
            for namespace in &namespaces {
                let group = groups.find([namespace, "", "", "", ""]);
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

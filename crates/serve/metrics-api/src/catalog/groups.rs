//! Which pods have which labels.
//!
//! Pods of a workload mostly have one set of labels, so that sets are indexed rather than pods: ten
//! replicas cost one entry per label, and a selector is evaluated once per set.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use kubevitals_model::{
    AsPodKey as _, LabelOperator, LabelPair, LabelRequirement, LabelSelector, Labels,
};

use super::PodSlot;

/// Pods by their namespace and labels.
#[derive(Default)]
pub(crate) struct Groups {
    places: Vec<Option<Group>>,
    free: Vec<u32>,
    by_labels: HashMap<GroupKey, u32>,
    by_pair: HashMap<LabelPair, Vec<u32>>,
}

/// What pods of a group have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct GroupKey {
    namespace: Arc<str>,
    labels: Labels,
}

struct Group {
    key: GroupKey,
    /// By name.
    pods: Vec<Arc<PodSlot>>,
}

/// A label, borrowed: what a map of [`LabelPair`] is searched with.
struct PairRef<'a>(&'a str, &'a str);

impl Groups {
    pub(crate) fn insert(&mut self, slot: &Arc<PodSlot>) {
        let key = key_of(slot);
        let id = match self.by_labels.get(&key) {
            Some(id) => *id,
            None => self.open(key),
        };
        if let Some(group) = self.group_mut(id) {
            match group.position(slot) {
                Ok(at) => {
                    if let Some(own) = group.pods.get_mut(at) {
                        *own = Arc::clone(slot);
                    }
                }
                Err(at) => group.pods.insert(at, Arc::clone(slot)),
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: &Arc<PodSlot>) {
        let key = key_of(slot);
        let Some(&id) = self.by_labels.get(&key) else {
            return;
        };
        let Some(group) = self.group_mut(id) else {
            return;
        };
        if let Ok(at) = group.position(slot)
            && group.pods.get(at).is_some_and(|own| Arc::ptr_eq(own, slot))
        {
            group.pods.remove(at);
        }
        if group.pods.is_empty() {
            self.close(id, &key);
        }
    }

    /// The pods that a selector selects, in order; `None` if that cannot be told from this index,
    /// or if they are more than `most`: then it is cheaper to walk over all.
    pub(crate) fn select(
        &self,
        namespace: Option<&str>,
        selector: &LabelSelector,
        most: usize,
    ) -> Option<Vec<Arc<PodSlot>>> {
        let candidates = selector
            .requirements()
            .iter()
            .filter_map(|requirement| self.candidates(requirement))
            .min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>())?;
        let mut pods: Vec<Arc<PodSlot>> = Vec::new();
        let mut matched = 0;
        for id in candidates.into_iter().flatten() {
            let Some(group) = self.group(*id) else {
                continue;
            };
            let of_namespace = namespace.is_none_or(|own| *own == *group.key.namespace);
            let labels = &group.key.labels;
            if of_namespace && selector.matches(|key| labels.get(key).map(|value| &**value)) {
                matched += 1;
                pods.extend(group.pods.iter().map(Arc::clone));
                if pods.len() > most {
                    return None;
                }
            }
        }
        if matched > 1 {
            pods.sort_by(|a, b| a.key.cmp(&b.key));
        }
        Some(pods)
    }

    /// The groups that can fulfil a requirement for certain values, each once.
    fn candidates(&self, requirement: &LabelRequirement) -> Option<Vec<&[u32]>> {
        let LabelOperator::In(values) = &requirement.operator else {
            return None;
        };
        let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
        values.sort_unstable();
        values.dedup();
        let lists = values.into_iter().filter_map(|value| {
            let ids = self.by_pair.get(&PairRef(&requirement.key, value))?;
            Some(ids.as_slice())
        });
        Some(lists.collect())
    }

    fn group(&self, id: u32) -> Option<&Group> {
        self.places.get(usize::try_from(id).ok()?)?.as_ref()
    }

    fn group_mut(&mut self, id: u32) -> Option<&mut Group> {
        self.places.get_mut(usize::try_from(id).ok()?)?.as_mut()
    }

    fn open(&mut self, key: GroupKey) -> u32 {
        let group = Group {
            key: key.clone(),
            pods: Vec::new(),
        };
        let id = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("there are fewer pods than 32 bits count")
        });
        if let Ok(at) = usize::try_from(id)
            && let Some(place) = self.places.get_mut(at)
        {
            *place = Some(group);
        }
        for pair in key.labels.pairs() {
            self.by_pair.entry(pair.clone()).or_default().push(id);
        }
        self.by_labels.insert(key, id);
        id
    }

    fn close(&mut self, id: u32, key: &GroupKey) {
        for (name, value) in key.labels.iter() {
            let pair = PairRef(name, value);
            let Some(ids) = self.by_pair.get_mut(&pair) else {
                continue;
            };
            if let Some(at) = ids.iter().position(|own| *own == id) {
                ids.swap_remove(at);
            }
            if ids.is_empty() {
                self.by_pair.remove(&pair);
            }
        }
        self.by_labels.remove(key);
        if let Ok(at) = usize::try_from(id)
            && let Some(place) = self.places.get_mut(at)
        {
            *place = None;
        }
        self.free.push(id);
    }
}

impl Group {
    fn position(&self, slot: &PodSlot) -> Result<usize, usize> {
        let key = slot.key.as_pod_key();
        self.pods
            .binary_search_by(|own| own.key.as_pod_key().cmp(&key))
    }
}

impl Hash for PairRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As a pair of strings hashes.
        (self.0, self.1).hash(state);
    }
}

impl Equivalent<LabelPair> for PairRef<'_> {
    fn equivalent(&self, pair: &LabelPair) -> bool {
        *self.0 == *pair.0 && *self.1 == *pair.1
    }
}

fn key_of(slot: &PodSlot) -> GroupKey {
    GroupKey {
        namespace: Arc::clone(slot.key.namespace()),
        labels: slot.labels.clone(),
    }
}

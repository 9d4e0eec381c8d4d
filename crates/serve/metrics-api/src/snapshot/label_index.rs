//! Pods by labels.
//!
//! The pods of a workload mostly share one label set, so the index holds sets rather than pods: ten
//! replicas cost one entry per label, and a selector is evaluated once per set.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use kubevitals_model::{
    AsPodKey as _, LabelOperator, LabelPair, LabelRequirement, LabelSelector, Labels,
};

use super::PodSlot;

/// Pods grouped by namespace and label set.
#[derive(Default)]
pub(crate) struct LabelIndex {
    groups: Vec<Option<Group>>,
    free_ids: Vec<u32>,
    by_labels: HashMap<GroupKey, u32>,
    by_pair: HashMap<LabelPair, Vec<u32>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct GroupKey {
    namespace: Arc<str>,
    labels: Labels,
}

struct Group {
    key: GroupKey,
    /// Sorted by name.
    pods: Vec<Arc<PodSlot>>,
}

/// A borrowed label: the lookup key of a map of [`LabelPair`].
struct PairRef<'a>(&'a str, &'a str);

impl LabelIndex {
    pub(crate) fn insert(&mut self, slot: &Arc<PodSlot>) {
        let key = key_of(slot);
        let id = match self.by_labels.get(&key) {
            Some(id) => *id,
            None => self.add_group(key),
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
            self.remove_group(id, &key);
        }
    }

    /// Returns the pods that match a selector, sorted; `None` if the index cannot answer it or if
    /// there are more than `max`: then a scan of all pods is cheaper.
    pub(crate) fn select(
        &self,
        namespace: Option<&str>,
        selector: &LabelSelector,
        max: usize,
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
                if pods.len() > max {
                    return None;
                }
            }
        }
        if matched > 1 {
            pods.sort_by(|a, b| a.key.cmp(&b.key));
        }
        Some(pods)
    }

    /// Returns the IDs of the groups that can satisfy an `in` requirement, each once.
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
        self.groups.get(usize::try_from(id).ok()?)?.as_ref()
    }

    fn group_mut(&mut self, id: u32) -> Option<&mut Group> {
        self.groups.get_mut(usize::try_from(id).ok()?)?.as_mut()
    }

    fn add_group(&mut self, key: GroupKey) -> u32 {
        let group = Group {
            key: key.clone(),
            pods: Vec::new(),
        };
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.groups.push(None);
            u32::try_from(self.groups.len() - 1).expect("there are fewer pods than 32 bits count")
        });
        if let Ok(at) = usize::try_from(id)
            && let Some(slot) = self.groups.get_mut(at)
        {
            *slot = Some(group);
        }
        for pair in key.labels.pairs() {
            self.by_pair.entry(pair.clone()).or_default().push(id);
        }
        self.by_labels.insert(key, id);
        id
    }

    fn remove_group(&mut self, id: u32, key: &GroupKey) {
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
            && let Some(slot) = self.groups.get_mut(at)
        {
            *slot = None;
        }
        self.free_ids.push(id);
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
        // As a `LabelPair` hashes.
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

//! The encodings of the last few label sets.

use kubevitals_model::Labels;

/// Neighbours in a list are mostly pods of one workload, with as many label sets as it has zones,
/// since API servers copy the zone of a node to its pods.
const MAX_ENTRIES: usize = 8;

/// Label sets and their encodings.
#[derive(Default)]
pub(crate) struct LabelCache {
    entries: Vec<(Labels, Vec<u8>)>,
    /// The index of the last hit.
    last: usize,
    /// The index of the next entry to evict.
    oldest: usize,
}

impl LabelCache {
    /// Returns the encoding of a label set, which `write` appends if it is not cached.
    #[inline]
    pub(crate) fn get_or_write(
        &mut self,
        labels: &Labels,
        write: impl FnOnce(&mut Vec<u8>, &Labels),
    ) -> &[u8] {
        let is_it = |(own, _): &(Labels, Vec<u8>)| own.is_same_allocation(labels);
        if !self.entries.get(self.last).is_some_and(is_it) {
            let cached = self.entries.iter().position(is_it);
            self.last = cached.unwrap_or_else(|| self.insert(labels, write));
        }
        self.entries.get(self.last).map_or(&[], |(_, text)| text)
    }

    #[cold]
    fn insert(&mut self, labels: &Labels, write: impl FnOnce(&mut Vec<u8>, &Labels)) -> usize {
        if self.entries.len() < MAX_ENTRIES {
            let mut text = Vec::new();
            write(&mut text, labels);
            self.entries.push((labels.clone(), text));
            return self.entries.len() - 1;
        }
        let index = self.oldest;
        if let Some((own, text)) = self.entries.get_mut(index) {
            own.clone_from(labels);
            text.clear();
            write(text, labels);
        }
        self.oldest = (index + 1) % MAX_ENTRIES;
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(number: usize) -> Labels {
        Labels::from_sorted([("zone".into(), number.to_string().into())].into())
    }

    fn write(out: &mut Vec<u8>, labels: &Labels) {
        for (_, value) in labels.iter() {
            out.extend_from_slice(value.as_bytes());
        }
    }

    #[test]
    fn a_few_label_sets_are_encoded_once_and_more_evict_each_other() {
        let sets: Vec<Labels> = (0..MAX_ENTRIES + 3).map(set).collect();
        let mut cache = LabelCache::default();
        let mut writes = 0;
        for _ in 0..3 {
            for (number, labels) in sets.iter().enumerate().take(MAX_ENTRIES) {
                let text = cache.get_or_write(labels, |out, labels| {
                    writes += 1;
                    write(out, labels);
                });
                assert_eq!(text, number.to_string().as_bytes());
            }
        }
        assert_eq!(writes, MAX_ENTRIES);
        for _ in 0..3 {
            for (number, labels) in sets.iter().enumerate() {
                assert_eq!(
                    cache.get_or_write(labels, write),
                    number.to_string().as_bytes()
                );
                assert!(cache.entries.len() <= MAX_ENTRIES);
            }
        }
    }

    #[test]
    fn equal_labels_of_another_allocation_have_the_same_encoding() {
        let mut cache = LabelCache::default();
        for _ in 0..2 * MAX_ENTRIES {
            assert_eq!(cache.get_or_write(&set(7), write), b"7");
        }
        assert!(cache.get_or_write(&Labels::default(), write).is_empty());
    }
}

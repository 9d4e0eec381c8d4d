//! What is written for the last few sets of labels.

use kubevitals_model::Labels;

/// Neighbours in a list are mostly pods of one workload, and their sets of labels as many as it has
/// zones, since API servers copy the zone of a node to its pods.
const MOST: usize = 8;

/// Sets of labels, and what is written for each.
#[derive(Default)]
pub(crate) struct RecentLabels {
    known: Vec<(Labels, Vec<u8>)>,
    /// Where the one that was asked for last is.
    last: usize,
    /// Where the one is that makes room for another.
    oldest: usize,
}

impl RecentLabels {
    /// What is written for a set of labels.
    #[inline]
    pub(crate) fn text(
        &mut self,
        labels: &Labels,
        write: impl FnOnce(&mut Vec<u8>, &Labels),
    ) -> &[u8] {
        let is_it = |(own, _): &(Labels, Vec<u8>)| own.is_same_allocation(labels);
        if !self.known.get(self.last).is_some_and(is_it) {
            let known = self.known.iter().position(is_it);
            self.last = known.unwrap_or_else(|| self.remember(labels, write));
        }
        self.known.get(self.last).map_or(&[], |(_, text)| text)
    }

    #[cold]
    fn remember(&mut self, labels: &Labels, write: impl FnOnce(&mut Vec<u8>, &Labels)) -> usize {
        if self.known.len() < MOST {
            let mut text = Vec::new();
            write(&mut text, labels);
            self.known.push((labels.clone(), text));
            return self.known.len() - 1;
        }
        let place = self.oldest;
        if let Some((own, text)) = self.known.get_mut(place) {
            own.clone_from(labels);
            text.clear();
            write(text, labels);
        }
        self.oldest = (place + 1) % MOST;
        place
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
    fn a_few_are_written_once_and_more_are_written_again() {
        let sets: Vec<Labels> = (0..MOST + 3).map(set).collect();
        let mut recent = RecentLabels::default();
        let mut writes = 0;
        for _ in 0..3 {
            for (number, labels) in sets.iter().enumerate().take(MOST) {
                let text = recent.text(labels, |out, labels| {
                    writes += 1;
                    write(out, labels);
                });
                assert_eq!(text, number.to_string().as_bytes());
            }
        }
        assert_eq!(writes, MOST);
        for _ in 0..3 {
            for (number, labels) in sets.iter().enumerate() {
                assert_eq!(recent.text(labels, write), number.to_string().as_bytes());
                assert!(recent.known.len() <= MOST);
            }
        }
    }

    #[test]
    fn equal_labels_of_another_allocation_are_written_the_same() {
        let mut recent = RecentLabels::default();
        for _ in 0..2 * MOST {
            assert_eq!(recent.text(&set(7), write), b"7");
        }
        assert!(recent.text(&Labels::default(), write).is_empty());
    }
}

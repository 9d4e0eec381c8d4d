//! All that one kubelet said at once.

use crate::key::{ContainerKeyRef, PodKeyRef};
use crate::sample::{ContainerSample, NodeSample};

/// One answer of a kubelet, decoded. Its buffers are meant to be used again ([`NodeBatch::clear`]):
/// a scrape allocates nothing once they have grown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeBatch {
    /// What is said of the node itself.
    pub node: NodeSample,
    rows: Vec<Row>,
    /// The names of all rows, end to end.
    names: String,
}

/// Where the names of a container lie in the batch, and its sample.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    namespace: u32,
    pod: u32,
    container: u32,
    end: u32,
    sample: ContainerSample,
}

impl NodeBatch {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.node = NodeSample::default();
        self.rows.clear();
        self.names.clear();
    }

    /// Adds a container and gives its place. `None` once the names take four gigabytes.
    pub fn push(&mut self, key: ContainerKeyRef<'_>, sample: ContainerSample) -> Option<usize> {
        let texts = [key.pod.namespace, key.pod.name, key.container];
        let longest: usize = texts.iter().map(|text| text.len()).sum();
        u32::try_from(self.names.len().checked_add(longest)?).ok()?;
        let [namespace, pod, container] = texts.map(|text| {
            let start = self.names.len();
            self.names.push_str(text);
            u32::try_from(start).unwrap_or(u32::MAX)
        });
        self.rows.push(Row {
            namespace,
            pod,
            container,
            end: u32::try_from(self.names.len()).unwrap_or(u32::MAX),
            sample,
        });
        Some(self.rows.len() - 1)
    }

    /// How many containers there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is said of any container.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The container at a place.
    pub fn get(&self, at: usize) -> Option<(ContainerKeyRef<'_>, &ContainerSample)> {
        let row = self.rows.get(at)?;
        Some((self.key(row), &row.sample))
    }

    /// The sample at a place, to add to it.
    pub fn sample_mut(&mut self, at: usize) -> Option<&mut ContainerSample> {
        self.rows.get_mut(at).map(|row| &mut row.sample)
    }

    /// All containers in the order in which they were added.
    pub fn containers(&self) -> impl Iterator<Item = (ContainerKeyRef<'_>, &ContainerSample)> {
        self.rows.iter().map(|row| (self.key(row), &row.sample))
    }

    #[inline]
    fn key(&self, row: &Row) -> ContainerKeyRef<'_> {
        let (namespace, name, container) = self.texts(row).unwrap_or_default();
        ContainerKeyRef {
            pod: PodKeyRef { namespace, name },
            container,
        }
    }

    /// They lie one after the other: each border is looked at once.
    #[inline]
    fn texts(&self, row: &Row) -> Option<(&str, &str, &str)> {
        let names = self.names.get(row.namespace as usize..row.end as usize)?;
        let (namespace, names) = names.split_at_checked((row.pod - row.namespace) as usize)?;
        let (pod, container) = names.split_at_checked((row.container - row.pod) as usize)?;
        Some((namespace, pod, container))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CoreNanos, CpuSample, Timestamp};

    fn key(container: &str) -> ContainerKeyRef<'_> {
        ContainerKeyRef {
            pod: PodKeyRef {
                namespace: "default",
                name: "web-0",
            },
            container,
        }
    }

    #[test]
    fn names_and_samples_come_back() {
        let mut batch = NodeBatch::default();
        assert_eq!(batch.push(key("app"), ContainerSample::default()), Some(0));
        assert_eq!(batch.push(key(""), ContainerSample::default()), Some(1));
        let cpu = CpuSample {
            at: Timestamp::from_unix_millis(7),
            total: CoreNanos::new(9),
        };
        batch.sample_mut(0).unwrap().cpu = Some(cpu);
        let (name, sample) = batch.get(0).unwrap();
        assert_eq!((name, sample.cpu), (key("app"), Some(cpu)));
        assert_eq!(batch.containers().last().unwrap().0, key(""));
        assert_eq!((batch.len(), batch.get(2)), (2, None));
        batch.clear();
        assert!(batch.is_empty());
        assert_eq!(batch, NodeBatch::default());
    }
}

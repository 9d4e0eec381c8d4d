//! The samples of one node.

use crate::key::{ContainerKeyRef, PodKeyRef};
use crate::objects::identity::Uid;
use crate::sample::{ContainerSample, NodeSample};

/// The samples of one scrape of a node. Its buffers are reused ([`NodeBatch::clear`]): a scrape
/// allocates nothing once they have grown.
///
/// A kubelet identifies pods by namespace and name, cgroups by UID. A batch takes both; the usage
/// store resolves UIDs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeBatch {
    pub node: NodeSample,
    rows: Vec<Row>,
    uid_rows: Vec<UidRow>,
    /// The names of all rows, end to end.
    names: String,
}

/// The offsets of the names of a container, and its sample.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    namespace: u32,
    pod: u32,
    container: u32,
    end: u32,
    sample: ContainerSample,
}

/// A container of a pod with this UID: the offsets of its name, and its sample.
#[derive(Debug, Clone, PartialEq)]
struct UidRow {
    pod: Uid,
    container: u32,
    end: u32,
    sample: ContainerSample,
}

impl NodeBatch {
    /// Removes all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.node = NodeSample::default();
        self.rows.clear();
        self.uid_rows.clear();
        self.names.clear();
    }

    /// Reduces the memory to that of some containers and bytes of their names, unless more are in
    /// use.
    pub fn shrink_to(&mut self, containers: usize, name_bytes: usize) {
        self.rows.shrink_to(containers);
        self.uid_rows.shrink_to(containers);
        self.names.shrink_to(name_bytes);
    }

    /// The number of bytes of memory that rows and names take, or may take without growing.
    pub fn capacity(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.uid_rows.capacity() * size_of::<UidRow>()
            + self.names.capacity()
    }

    /// The number of bytes of all names.
    pub fn name_bytes(&self) -> usize {
        self.names.len()
    }

    /// Adds a container of a pod by name and returns its index. `None` once the names take four
    /// gigabytes.
    pub fn push(&mut self, key: ContainerKeyRef<'_>, sample: ContainerSample) -> Option<usize> {
        let texts = [key.pod.namespace, key.pod.name, key.container];
        let added: usize = texts.iter().map(|text| text.len()).sum();
        u32::try_from(self.names.len().checked_add(added)?).ok()?;
        let [namespace, pod, container] = texts.map(|text| self.push_name(text));
        self.rows.push(Row {
            namespace,
            pod,
            container,
            end: self.end(),
            sample,
        });
        Some(self.rows.len() - 1)
    }

    /// Adds a container of a pod by UID. `None` once the names take four gigabytes.
    pub fn push_by_uid(&mut self, pod: &Uid, name: &str, sample: ContainerSample) -> Option<()> {
        u32::try_from(self.names.len().checked_add(name.len())?).ok()?;
        let container = self.push_name(name);
        self.uid_rows.push(UidRow {
            pod: pod.clone(),
            container,
            end: self.end(),
            sample,
        });
        Some(())
    }

    /// The number of containers, by name and by UID.
    pub fn len(&self) -> usize {
        self.rows.len() + self.uid_rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the container at an index that [`NodeBatch::push`] returned.
    pub fn get(&self, index: usize) -> Option<(ContainerKeyRef<'_>, &ContainerSample)> {
        let row = self.rows.get(index)?;
        Some((self.key(row), &row.sample))
    }

    /// Returns the sample at an index that [`NodeBatch::push`] returned, to add to it.
    pub fn sample_mut(&mut self, index: usize) -> Option<&mut ContainerSample> {
        self.rows.get_mut(index).map(|row| &mut row.sample)
    }

    /// Returns the containers of pods by name, in the order in which they were added.
    pub fn containers(&self) -> impl Iterator<Item = (ContainerKeyRef<'_>, &ContainerSample)> {
        self.rows.iter().map(|row| (self.key(row), &row.sample))
    }

    /// Returns the containers of pods by UID, in the order in which they were added.
    pub fn containers_by_uid(&self) -> impl Iterator<Item = (&Uid, &str, &ContainerSample)> {
        self.uid_rows.iter().map(|row| {
            let name = self.names.get(row.container as usize..row.end as usize);
            (&row.pod, name.unwrap_or_default(), &row.sample)
        })
    }

    fn push_name(&mut self, name: &str) -> u32 {
        let start = self.end();
        self.names.push_str(name);
        start
    }

    fn end(&self) -> u32 {
        u32::try_from(self.names.len()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn key(&self, row: &Row) -> ContainerKeyRef<'_> {
        let (namespace, name, container) = self.texts(row).unwrap_or_default();
        ContainerKeyRef {
            pod: PodKeyRef { namespace, name },
            container,
        }
    }

    /// The names are adjacent: each boundary is checked once.
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
    use crate::{Bytes, BytesSample, CoreNanos, CpuSample, Timestamp};

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
    fn names_and_samples_round_trip() {
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

    #[test]
    fn rows_by_uid_are_kept_apart_from_rows_by_name() {
        let uid = Uid::from("b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a");
        let mut batch = NodeBatch::default();
        batch.push(key("app"), ContainerSample::default()).unwrap();
        let memory = Some(BytesSample {
            at: Timestamp::from_unix_millis(7),
            bytes: Bytes::new(9),
        });
        let sample = ContainerSample {
            memory,
            ..ContainerSample::default()
        };
        batch.push_by_uid(&uid, "sidecar", sample).unwrap();
        batch
            .push(key("proxy"), ContainerSample::default())
            .unwrap();
        assert_eq!(batch.len(), 3);
        let by_name: Vec<_> = batch.containers().map(|(key, _)| key.container).collect();
        assert_eq!(by_name, ["app", "proxy"]);
        let by_uid: Vec<_> = batch.containers_by_uid().collect();
        assert_eq!(by_uid, [(&uid, "sidecar", &sample)]);
        batch.clear();
        assert_eq!(batch, NodeBatch::default());
    }
}

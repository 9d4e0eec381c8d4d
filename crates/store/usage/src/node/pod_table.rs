//! The pods of a node and their containers, in two flat arrays: an allocation per pod would cost
//! more than the pod.

use std::hint::black_box;
use std::sync::Arc;

use kubevitals_model::{AsPodSummary, PodKey, PodKeyRef, PodSummary, Uid};

use super::is_running;
use crate::series::Series;

/// No pod has more containers: a kubelet that reports more is wrong.
const MAX_CONTAINERS_OF_A_POD: usize = 512;

/// Pods sorted by namespace and name, containers by name within their pod.
#[derive(Default)]
pub(crate) struct PodTable {
    pods: Vec<Row>,
    containers: Vec<Container>,
    /// Number of pods that are running, so that readiness looks at none of them.
    running: u32,
}

/// A pod and the range of its containers.
struct Row {
    /// Shared with the reflector, whichever type it holds.
    pod: Arc<dyn AsPodSummary>,
    first: u32,
    count: u32,
}

#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) name: Arc<str>,
    pub(crate) series: Series,
}

/// Returns the key of a pod.
pub(crate) fn key_of(pod: &PodSummary) -> PodKeyRef<'_> {
    PodKeyRef {
        namespace: &pod.identity.namespace,
        name: &pod.identity.name,
    }
}

/// Returns the key of a pod, sharing its strings.
pub(crate) fn shared_key_of(pod: &PodSummary) -> PodKey {
    let identity = &pod.identity;
    PodKey::new(Arc::clone(&identity.namespace), Arc::clone(&identity.name))
}

impl PodTable {
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Returns the number of running pods.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Reads the names of all pods, which will be compared one after another. Each is behind three
    /// pointers, and here the loads overlap.
    pub(crate) fn prefetch(&self) {
        let seen = self.pods.iter().fold(0, |seen: u8, row| {
            let name = row.pod.summary().identity.name.as_bytes();
            seen ^ name.first().copied().unwrap_or_default()
        });
        black_box(seen);
    }

    /// Returns the index of a pod. A kubelet reports the containers of a pod one after another and
    /// pods mostly in the same order, so `guess` and its successor are tried first.
    pub(crate) fn find_near(&self, key: PodKeyRef<'_>, guess: usize) -> Option<usize> {
        let is_at = |at: usize| self.pod(at).is_some_and(|pod| key_of(pod) == key);
        [guess, guess.saturating_add(1)]
            .into_iter()
            .find(|at| is_at(*at))
            .or_else(|| self.find(key).ok())
    }

    /// Returns the index of the pod with a UID. `guess` and its successor are tried first; a node
    /// has few enough pods to look at each of the others.
    pub(crate) fn find_uid(&self, uid: &Uid, guess: usize) -> Option<usize> {
        let is_at = |at: usize| self.pod(at).is_some_and(|pod| pod.identity.uid == *uid);
        [guess, guess.saturating_add(1)]
            .into_iter()
            .chain(0..self.pods.len())
            .find(|at| is_at(*at))
    }

    /// Returns the index of a pod, or where it would be inserted.
    pub(crate) fn find(&self, key: PodKeyRef<'_>) -> Result<usize, usize> {
        self.pods
            .binary_search_by(|row| key_of(row.pod.summary()).cmp(&key))
    }

    pub(crate) fn pod(&self, at: usize) -> Option<&PodSummary> {
        self.pods.get(at).map(|row| row.pod.summary())
    }

    /// Replaces the state of a pod.
    pub(crate) fn replace(&mut self, at: usize, pod: Arc<dyn AsPodSummary>) {
        if let Some(row) = self.pods.get_mut(at) {
            self.running -= u32::from(is_running(row.pod.summary()));
            self.running += u32::from(is_running(pod.summary()));
            row.pod = pod;
        }
    }

    /// Inserts a pod at the index that [`PodTable::find`] returned.
    pub(crate) fn insert(&mut self, at: usize, pod: Arc<dyn AsPodSummary>) {
        let at = at.min(self.pods.len());
        let end = |row: &Row| row.first + row.count;
        let first = at
            .checked_sub(1)
            .and_then(|before| self.pods.get(before))
            .map_or(0, end);
        reserve_one(&mut self.pods);
        let count = 0;
        self.running += u32::from(is_running(pod.summary()));
        self.pods.insert(at, Row { pod, first, count });
    }

    /// Removes a pod with its containers.
    pub(crate) fn remove(&mut self, at: usize) {
        if at >= self.pods.len() {
            return;
        }
        let row = self.pods.remove(at);
        self.running -= u32::from(is_running(row.pod.summary()));
        let first = row.first as usize;
        self.containers.drain(first..first + row.count as usize);
        self.shift(at, |first| first - row.count);
        shrink(&mut self.pods);
        shrink(&mut self.containers);
    }

    pub(crate) fn containers(&self, at: usize) -> &[Container] {
        self.pods
            .get(at)
            .and_then(|row| {
                let first = row.first as usize;
                self.containers.get(first..first + row.count as usize)
            })
            .unwrap_or_default()
    }

    pub(crate) fn containers_mut(&mut self, at: usize) -> &mut [Container] {
        self.pods
            .get(at)
            .and_then(|row| {
                let first = row.first as usize;
                self.containers.get_mut(first..first + row.count as usize)
            })
            .unwrap_or_default()
    }

    /// Returns a pod and its containers.
    pub(crate) fn entry_mut(&mut self, at: usize) -> Option<(&PodSummary, &mut [Container])> {
        let row = self.pods.get(at)?;
        let first = row.first as usize;
        let containers = self.containers.get_mut(first..first + row.count as usize)?;
        Some((row.pod.summary(), containers))
    }

    /// Adds a container to a pod; `None` if there is no such pod or it has too many.
    pub(crate) fn add_container(&mut self, at: usize, container: Container) -> Option<&mut Series> {
        let siblings = self.containers(at);
        if siblings.len() >= MAX_CONTAINERS_OF_A_POD {
            return None;
        }
        let before = siblings.partition_point(|sibling| sibling.name < container.name);
        let row = self.pods.get_mut(at)?;
        let index = row.first as usize + before;
        row.count += 1;
        self.shift(at + 1, |first| first + 1);
        reserve_one(&mut self.containers);
        self.containers.insert(index, container);
        self.containers.get_mut(index).map(|new| &mut new.series)
    }

    /// Removes the containers for which `keep` is false.
    pub(crate) fn retain_containers(&mut self, keep: impl Fn(&Container) -> bool) {
        let mut kept = 0;
        for row in &mut self.pods {
            let first = row.first as usize;
            let own = self.containers.get(first..first + row.count as usize);
            let count = own
                .unwrap_or_default()
                .iter()
                .filter(|own| keep(own))
                .count();
            row.first = kept;
            row.count = u32::try_from(count).unwrap_or(u32::MAX);
            kept += row.count;
        }
        self.containers.retain(|container| keep(container));
        shrink(&mut self.containers);
    }

    /// Removes all containers, but no pod.
    pub(crate) fn clear_containers(&mut self) {
        self.retain_containers(|_| false);
    }

    pub(crate) fn all_containers(&self) -> &[Container] {
        &self.containers
    }

    fn shift(&mut self, from: usize, by: impl Fn(u32) -> u32) {
        for row in self.pods.iter_mut().skip(from) {
            row.first = by(row.first);
        }
    }
}

/// Reserves space for one more without doubling: thousands of half-empty arrays would be most of
/// the memory.
fn reserve_one<T>(items: &mut Vec<T>) {
    if items.len() == items.capacity() {
        items.reserve_exact(items.len() / 8 + 2);
    }
}

/// Shrinks an array that is mostly unused.
fn shrink<T>(items: &mut Vec<T>) {
    if items.len() + 8 < items.capacity() / 2 {
        items.shrink_to(items.len() + items.len() / 8);
    }
}

//! The pods that the API has bound to a node.

use std::sync::Arc;

use kubevitals_model::{AsPodSummary, ContainerKey, PodSummary};

use super::pod_table::{Container, key_of};
use super::{NodeState, is_running};

impl NodeState {
    /// Applies a new or changed pod that is bound to this node; returns whether there is something
    /// to publish.
    pub(crate) fn pod_applied(&mut self, pod: &Arc<dyn AsPodSummary>) -> bool {
        let summary = pod.summary();
        let found = self.pods.find(key_of(summary));
        if summary.phase.is_final() {
            self.is_dirty |= found.is_ok();
            if let Ok(index) = found {
                self.pods.remove(index);
            }
            return self.is_dirty;
        }
        match found {
            Ok(index)
                if self.is_same_pod(index, summary) && !self.starts_to_run(index, summary) =>
            {
                self.is_dirty |= self.pods.pod(index).is_some_and(|known| {
                    known.labels != summary.labels || is_running(known) != is_running(summary)
                });
                self.pods.replace(index, Arc::clone(pod));
            }
            // Samples of a pod that was not running yet are those of its init containers.
            Ok(index) => {
                self.pods.remove(index);
                self.pods.insert(index, Arc::clone(pod));
                self.is_dirty = true;
            }
            Err(index) => {
                self.pods.insert(index, Arc::clone(pod));
                self.adopt_held(index);
            }
        }
        self.is_dirty
    }

    /// Removes a pod that is no longer bound to this node; returns whether there is something to
    /// publish.
    pub(crate) fn pod_deleted(&mut self, pod: &PodSummary) -> bool {
        if let Ok(index) = self.pods.find(key_of(pod))
            && self.is_same_pod(index, pod)
        {
            self.is_dirty |= !self.pods.containers(index).is_empty();
            self.pods.remove(index);
        }
        self.is_dirty
    }

    fn is_same_pod(&self, index: usize, pod: &PodSummary) -> bool {
        self.pods
            .pod(index)
            .is_some_and(|known| known.identity.uid == pod.identity.uid)
    }

    fn starts_to_run(&self, index: usize, pod: &PodSummary) -> bool {
        let known = self.pods.pod(index);
        is_running(pod) && known.is_some_and(|known| !is_running(known))
    }

    /// Moves the samples that were held for a pod to it.
    fn adopt_held(&mut self, index: usize) {
        let Some(pod) = self.pods.pod(index) else {
            return;
        };
        let key = key_of(pod).to_owned_key();
        let belongs = |held: &&ContainerKey| *held.pod() == key;
        let keys: Vec<ContainerKey> = self.held.keys().filter(belongs).cloned().collect();
        for key in keys {
            if let Some(series) = self.held.remove(&key) {
                let name = Arc::clone(key.container());
                self.pods.add_container(index, Container { name, series });
                self.is_dirty = true;
            }
        }
        self.shrink_held();
    }
}

//! Buffers of a publication, one set per thread.
//!
//! In each node they would be most of the memory: the published usage of a container is larger than
//! its series.

use std::cell::Cell;
use std::sync::Arc;

use kubevitals_model::PodSummary;

use super::is_running;
use super::pod_table::{Container, shared_key_of};
use crate::evaluation::Evaluation;
use crate::publisher::{ContainerUsage, PodUsage};

/// Limit of container lists that are kept for the next publication: those of the largest node that
/// Kubernetes supports.
const MAX_SPARE: usize = 512;

/// The pods of one publication.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pods: Vec<PodUsage>,
    spare: Vec<Vec<ContainerUsage>>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = const { Cell::new(Scratch::new()) };
}

impl Scratch {
    const fn new() -> Self {
        Self {
            pods: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Calls `work` with the buffers of this thread. A publisher that calls back into the store
    /// gets empty ones.
    pub(super) fn with<R>(work: impl FnOnce(&mut Self) -> R) -> R {
        SCRATCH.with(|cell| {
            let mut scratch = cell.take();
            let result = work(&mut scratch);
            scratch.clear();
            cell.set(scratch);
            result
        })
    }

    /// Adds a pod with the containers that have usage; returns their number.
    pub(super) fn add(
        &mut self,
        pod: &PodSummary,
        containers: &mut [Container],
        eval: &Evaluation<'_>,
    ) -> u32 {
        if !is_running(pod) {
            return 0;
        }
        let mut served = self.spare.pop().unwrap_or_default();
        served.extend(containers.iter_mut().filter_map(|container| {
            Some(ContainerUsage {
                usage: container.series.serve(eval)?,
                name: Arc::clone(&container.name),
            })
        }));
        let count = u32::try_from(served.len()).unwrap_or(u32::MAX);
        if served.is_empty() {
            self.spare.push(served);
        } else {
            self.pods.push(PodUsage {
                key: shared_key_of(pod),
                labels: pod.labels.clone(),
                containers: served,
            });
        }
        count
    }

    pub(super) fn pods(&self) -> &[PodUsage] {
        &self.pods
    }

    /// Releases all names and labels, but keeps the memory.
    fn clear(&mut self) {
        for mut pod in self.pods.drain(..) {
            if self.spare.len() < MAX_SPARE {
                pod.containers.clear();
                self.spare.push(pod.containers);
            }
        }
    }
}

//! Buffers for what is published, one set for each thread.
//!
//! Kept with each node they would be the larger part of the memory: what is published of a
//! container takes more than what is known of it.

use std::cell::Cell;
use std::sync::Arc;

use kubevitals_model::PodSummary;

use super::is_running;
use super::table::{Container, shared_key_of};
use crate::publisher::{ContainerUsage, PodUsage};
use crate::rules::Rules;

/// Lists of containers that are kept for the next publication: those of the largest node by
/// Kubernetes' own limits.
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

    /// Lends the buffers of this thread. They are taken out meanwhile: a publisher that comes back
    /// into the store finds empty ones.
    pub(super) fn with<R>(work: impl FnOnce(&mut Self) -> R) -> R {
        SCRATCH.with(|kept| {
            let mut scratch = kept.take();
            let result = work(&mut scratch);
            scratch.clear();
            kept.set(scratch);
            result
        })
    }

    /// Adds a pod with those of its containers that can be served, and gives how many these are.
    pub(super) fn add(
        &mut self,
        pod: &PodSummary,
        containers: &mut [Container],
        rules: &Rules<'_>,
    ) -> u32 {
        if !is_running(pod) {
            return 0;
        }
        let mut served = self.spare.pop().unwrap_or_default();
        served.extend(containers.iter_mut().filter_map(|container| {
            Some(ContainerUsage {
                usage: container.series.serve(rules)?,
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

    /// Lets go of all names and labels, and keeps the memory.
    fn clear(&mut self) {
        for mut pod in self.pods.drain(..) {
            if self.spare.len() < MAX_SPARE {
                pod.containers.clear();
                self.spare.push(pod.containers);
            }
        }
    }
}

//! The reason why a node or one of its pods has no usage.

use std::sync::Arc;

use kubevitals_model::{NoRate, PodSummary};

use super::pod_table::key_of;
use super::{NodeState, Registration};
use crate::absence::{Absence, NodeFailure};
use crate::evaluation::{Evaluation, Tick};
use crate::series::{RateState, Series};

impl NodeState {
    /// Returns the reason why the node as a whole has no usage.
    pub(crate) fn explain(&self, eval: &Evaluation<'_>) -> Absence {
        if let Some(absence) = self.explain_registration() {
            return absence;
        }
        if self.usage.usage(eval).is_some() {
            return Absence::Served;
        }
        self.explain_series(None, &self.usage, eval)
    }

    /// Returns the reason why a pod that is bound to the node has no usage.
    pub(crate) fn explain_pod(&self, pod: &PodSummary, eval: &Evaluation<'_>) -> Absence {
        if let Some(absence) = self.explain_registration() {
            return absence;
        }
        let found = self.pods.find(key_of(pod)).ok();
        let containers = found.map(|at| self.pods.containers(at)).unwrap_or_default();
        if containers
            .iter()
            .any(|own| own.series.usage(eval).is_some())
        {
            return Absence::Served;
        }
        // The container with the latest sample gives the best explanation.
        let latest = containers
            .iter()
            .max_by_key(|own| own.series.cpu_seen().max(own.series.memory_seen()));
        match latest {
            Some(own) => self.explain_series(Some(&own.name), &own.series, eval),
            None => self.explain_no_samples(eval),
        }
    }

    /// Returns the reason why the node is not scraped, if it is not.
    fn explain_registration(&self) -> Option<Absence> {
        let node = self.name.clone();
        match &self.registration {
            Registration::Registered => None,
            Registration::Excluded(reason) => Some(Absence::NodeExcluded {
                node,
                reason: Arc::clone(reason),
            }),
            Registration::PodsOnly | Registration::Removed => Some(Absence::NodeUnknown(node)),
        }
    }

    /// Returns the error of the last scrape, if it failed.
    fn scrape_failure(&self, eval: &Evaluation<'_>) -> Option<NodeFailure> {
        let failure = self.failure.as_ref()?;
        Some(NodeFailure {
            node: self.name.clone(),
            reason: Arc::clone(&failure.reason),
            failing_for: eval.since(failure.since),
            retry_in: failure.next_attempt.and_then(|at| eval.until(at)),
        })
    }

    fn explain_no_samples(&self, eval: &Evaluation<'_>) -> Absence {
        if let Some(failure) = self.scrape_failure(eval) {
            return Absence::ScrapeFailed(failure);
        }
        let Some(scraped_at) = self.scraped_at else {
            return Absence::NodeNotScraped(self.name.clone());
        };
        Absence::NotReported {
            node: self.name.clone(),
            scraped_ago: eval.since(scraped_at),
        }
    }

    fn explain_series(
        &self,
        container: Option<&Arc<str>>,
        series: &Series,
        eval: &Evaluation<'_>,
    ) -> Absence {
        let container = container.map(Arc::clone);
        if series.cpu_seen().max(series.memory_seen()) == Tick::NEVER {
            return self.explain_no_samples(eval);
        }
        // If there was usage before, its staleness is the reason.
        let was_complete = series.rate_seen().min(series.memory_seen());
        if let Some(age) = eval.age(was_complete)
            && age > eval.config.staleness
        {
            return Absence::Stale {
                dropped_ago: age.saturating_sub(eval.config.staleness),
                failure: self.scrape_failure(eval),
            };
        }
        if let Some(failure) = self.scrape_failure(eval) {
            return Absence::ScrapeFailed(failure);
        }
        let due_in = eval.due_in(series.cpu_seen());
        match series.rate_state() {
            RateState::NoCpu => Absence::NoCpu { container },
            RateState::Rate | RateState::KubeletAverage => Absence::NoMemory { container },
            RateState::NoRate(NoRate::FirstSample) => Absence::FirstSample {
                container,
                age: eval.age(series.cpu_seen()).unwrap_or_default(),
                due_in,
            },
            RateState::NoRate(reason) => Absence::NoRate {
                container,
                reason,
                due_in,
            },
            RateState::ClockStepped => Absence::ClockStepped { container, due_in },
        }
    }
}

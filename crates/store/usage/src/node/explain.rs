//! Why a node or one of its pods is not served.

use std::sync::Arc;

use kubevitals_model::{NoRate, PodSummary};

use super::NodeState;
use super::table::key_of;
use crate::absence::{Absence, NodeFailure};
use crate::rules::{Moment, Rules};
use crate::series::{Series, State};

impl NodeState {
    /// Why nothing is served of the node as a whole.
    pub(crate) fn explain(&self, rules: &Rules<'_>) -> Absence {
        if !self.is_declared() {
            return Absence::NodeUnknown(self.name.clone());
        }
        if self.usage.usage(rules).is_some() {
            return Absence::Served;
        }
        self.explain_series(None, &self.usage, rules)
    }

    /// Why nothing is served of a pod that is bound to the node.
    pub(crate) fn explain_pod(&self, pod: &PodSummary, rules: &Rules<'_>) -> Absence {
        if !self.is_declared() {
            return Absence::NodeUnknown(self.name.clone());
        }
        let found = self.pods.find(key_of(pod)).ok();
        let containers = found.map(|at| self.pods.containers(at)).unwrap_or_default();
        if containers
            .iter()
            .any(|own| own.series.usage(rules).is_some())
        {
            return Absence::Served;
        }
        // The one that was last heard of has the most to say.
        let best = containers
            .iter()
            .max_by_key(|own| own.series.cpu_seen().max(own.series.memory_seen()));
        match best {
            Some(own) => self.explain_series(Some(&own.name), &own.series, rules),
            None => self.explain_silence(rules),
        }
    }

    /// What the node is known to do wrong.
    pub(crate) fn failing(&self, rules: &Rules<'_>) -> Option<NodeFailure> {
        let failure = self.failure.as_ref()?;
        Some(NodeFailure {
            node: self.name.clone(),
            why: Arc::clone(&failure.why),
            failing_for: rules.now.since(failure.since).unwrap_or_default(),
            retry_in: failure.next_attempt.and_then(|at| rules.until(at)),
        })
    }

    /// Running pods that are bound to the node.
    pub(crate) fn running_pods(&self) -> usize {
        (0..self.pods.len())
            .filter_map(|at| self.pods.pod(at))
            .filter(|pod| super::is_running(pod))
            .count()
    }

    pub(crate) fn told(&self) -> super::Told {
        self.told
    }

    fn explain_silence(&self, rules: &Rules<'_>) -> Absence {
        if let Some(failure) = self.failing(rules) {
            return Absence::NodeFails(failure);
        }
        let Some(answered) = self.answered else {
            return Absence::NodeNotAsked(self.name.clone());
        };
        Absence::NotReported {
            node: self.name.clone(),
            answered_ago: rules.now.since(answered).unwrap_or_default(),
        }
    }

    fn explain_series(
        &self,
        container: Option<&Arc<str>>,
        series: &Series,
        rules: &Rules<'_>,
    ) -> Absence {
        let container = container.map(Arc::clone);
        if series.cpu_seen().max(series.memory_seen()) == Moment::NEVER {
            return self.explain_silence(rules);
        }
        // A value that was there and is not any more: that it became too old explains all.
        let was_complete = series.rate_seen().min(series.memory_seen());
        if let Some(age) = rules.since(was_complete)
            && age > rules.config.staleness
        {
            return Absence::Stale {
                dropped_ago: age.saturating_sub(rules.config.staleness),
                failure: self.failing(rules),
            };
        }
        if let Some(failure) = self.failing(rules) {
            return Absence::NodeFails(failure);
        }
        let due_in = rules.due_in(series.cpu_seen());
        match series.state() {
            State::NoCpu => Absence::NoCpu { container },
            State::Rate | State::KubeletAverage => Absence::NoMemory { container },
            State::NoRate(NoRate::FirstSample) => Absence::FirstSample {
                container,
                age: rules.since(series.cpu_seen()).unwrap_or_default(),
                due_in,
            },
            State::NoRate(why) => Absence::NoRate {
                container,
                why,
                due_in,
            },
            State::ClockStepped => Absence::ClockStepped { container, due_in },
        }
    }
}

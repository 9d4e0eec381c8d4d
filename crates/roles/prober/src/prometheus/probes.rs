//! The families of probes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kubevitals_model::Timestamp;
use kubevitals_probes::{BUCKETS, Completed, Phase, ProbeInfo, Statistics, Verdict};
use kubevitals_telemetry::{HistogramFamily, HistogramSpec, LabelSet, Metrics};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::table::number;
use crate::provider::{ProbeRecorder, ProbeTarget};

const DURATION: HistogramSpec = HistogramSpec {
    name: "kubevitals_probe_duration_seconds",
    help: "Duration of runs of a probe in seconds",
    bounds: &BUCKETS,
    native: None,
};
const PHASE_DURATION: HistogramSpec = HistogramSpec {
    name: "kubevitals_probe_phase_duration_seconds",
    help: "Duration of a phase of runs of a probe in seconds",
    bounds: &BUCKETS,
    native: None,
};

/// The families of all probes. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct ProbeFamilies {
    targets: Arc<Mutex<BTreeMap<Key, Target>>>,
    duration: HistogramFamily<TargetLabels>,
    phases: HistogramFamily<PhaseLabels>,
}

/// A probe and a target, by their names.
type Key = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Target {
    labels: TargetLabels,
    statistics: Statistics,
}

/// The labels of all series of a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TargetLabels(Arc<[(Arc<str>, Arc<str>)]>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PhaseLabels {
    target: TargetLabels,
    phase: Phase,
}

impl ProbeFamilies {
    pub(super) fn register(metrics: &mut Metrics) -> Self {
        let this = Self {
            targets: Arc::default(),
            duration: HistogramFamily::register(metrics, DURATION),
            phases: HistogramFamily::register(metrics, PHASE_DURATION),
        };
        metrics.root().register_collector(Box::new(this.clone()));
        this
    }

    fn forget(&self, labels: &TargetLabels) {
        self.duration.remove(labels);
        for phase in Phase::ALL {
            self.phases.remove(&PhaseLabels {
                target: labels.clone(),
                phase,
            });
        }
    }
}

impl TargetLabels {
    /// The labels of the configuration come first: they cannot hide `probe` and `target`.
    fn new(probe: &ProbeInfo, target: &Arc<str>) -> Self {
        let mut labels = BTreeMap::new();
        for (name, value) in &probe.labels {
            labels.insert(Arc::clone(name), Arc::clone(value));
        }
        labels.insert("probe".into(), Arc::clone(&probe.name));
        labels.insert("target".into(), Arc::clone(target));
        Self(labels.into_iter().collect())
    }

    fn pairs<'a>(&'a self, more: Option<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
        let pairs = self.0.iter().map(|(name, value)| (&**name, &**value));
        pairs.chain(more).collect()
    }
}

impl LabelSet for TargetLabels {
    fn visit(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in &*self.0 {
            visit(name, value);
        }
    }
}

impl LabelSet for PhaseLabels {
    fn visit(&self, visit: &mut dyn FnMut(&str, &str)) {
        self.target.visit(visit);
        visit("phase", self.phase.as_str());
    }
}

impl ProbeRecorder for ProbeFamilies {
    fn completed(&self, completed: &Completed) {
        let Completed { probe, target, .. } = completed;
        let labels = TargetLabels::new(probe, target);
        let key = (Arc::clone(&probe.name), Arc::clone(target));
        let mut targets = self.targets.lock();
        let known = targets.entry(key).or_insert_with(|| Target {
            labels: labels.clone(),
            statistics: Statistics::default(),
        });
        if known.labels != labels {
            // The configuration gave the probe other labels: these are other series.
            self.forget(&known.labels);
            known.labels = labels.clone();
        }
        known.statistics.record(&completed.outcome, probe.threshold);
        drop(targets);
        self.duration.observe(&labels, completed.outcome.duration);
        for phase in &completed.outcome.phases {
            let labels = PhaseLabels {
                target: labels.clone(),
                phase: phase.phase,
            };
            self.phases.observe(&labels, phase.duration);
        }
    }

    fn removed(&self, probe: &ProbeInfo, target: &str) {
        let key = (Arc::clone(&probe.name), target.into());
        let removed = self.targets.lock().remove(&key);
        if let Some(removed) = removed {
            self.forget(&removed.labels);
        }
    }

    /// Every run was recorded as it ended.
    fn targets(&self, _at: Timestamp, _targets: &[ProbeTarget]) {}
}

impl Collector for ProbeFamilies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let targets = self.targets.lock();
        if targets.is_empty() {
            return Ok(());
        }
        for (name, help, value) in [
            (
                "kubevitals_probe",
                "Total number of runs of a probe",
                (|one| one.total) as fn(&Statistics) -> u64,
            ),
            (
                "kubevitals_probe_success",
                "Total number of runs of a probe that succeeded",
                |one| one.success,
            ),
            (
                "kubevitals_probe_timeout",
                "Total number of runs of a probe that ran out of time",
                |one| one.timeout,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for target in targets.values() {
                let labels = target.labels.pairs(None);
                let series = family.encode_family(&labels)?;
                ConstCounter::new(value(&target.statistics)).encode(series)?;
            }
        }
        let help = "Total number of runs of a probe that failed, by reason";
        let name = "kubevitals_probe_failures";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for target in targets.values() {
            for (reason, count) in target.statistics.failures_by_reason() {
                let labels = target.labels.pairs(Some(("reason", reason.as_str())));
                let series = family.encode_family(&labels)?;
                ConstCounter::new(count).encode(series)?;
            }
        }
        let help = "Whether a target is up, by the threshold of its probe";
        let name = "kubevitals_probe_up";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for target in targets.values() {
            let up = match target.statistics.verdict {
                Verdict::Unknown => continue,
                Verdict::Up => 1,
                Verdict::Down => 0,
            };
            let labels = target.labels.pairs(None);
            ConstGauge::new(number(up)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

//! Records pods in the families.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Labels;
use kubevitals_telemetry::{HistogramFamily, Metrics};
use kubevitals_transitions::{BlockerKind, ContainerRecord, End, Output, PodRecord, Pull};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::clock::between;
use crate::config::{FamilyConfig, Topology};
use crate::families::{self, FamilyInfo};
use crate::labels::{Group, Groups, SeriesLabels};
use crate::phases::{is_measured, phases, startup};
use crate::pulls::{failure_class, size_class};
use crate::sli;

/// The families of pod records. Clones are cheap and share them.
#[derive(Debug, Clone)]
pub struct TransitionMetrics {
    families: Arc<Families>,
}

#[derive(Debug)]
struct Families {
    config: FamilyConfig,
    groups: Groups,
    startups: CounterSet,
    startup: HistogramSet,
    phase: HistogramSet,
    unmeasured: CounterSet,
    sli: HistogramSet,
    sli_excluded: CounterSet,
    pulls: CounterSet,
    pull: HistogramSet,
    pull_wait: HistogramSet,
    pull_bytes: CounterSet,
    pull_failures: CounterSet,
    pull_back_offs: CounterSet,
    lifecycles: CounterSet,
    termination: HistogramSet,
    restarts: CounterSet,
    down: HistogramSet,
    label_sets: Gauge,
    overflows: Counter,
}

/// A family of counters.
#[derive(Debug)]
struct CounterSet {
    info: &'static FamilyInfo,
    family: Family<SeriesLabels, Counter>,
}

/// A family of histograms.
#[derive(Debug)]
struct HistogramSet {
    info: &'static FamilyInfo,
    family: HistogramFamily<SeriesLabels>,
}

impl TransitionMetrics {
    /// Registers the families.
    pub fn register(metrics: &mut Metrics, config: FamilyConfig) -> Self {
        let is_native = config.native_histograms;
        let counted = CounterSet::register;
        let measured =
            |info, metrics: &mut Metrics| HistogramSet::register(info, metrics, is_native);
        let limit = i64::try_from(config.series_limit).unwrap_or(i64::MAX);
        let groups = Groups::new(config.labels, config.series_limit);
        let families = Families {
            groups,
            startups: counted(&families::STARTUPS, metrics),
            startup: measured(&families::STARTUP, metrics),
            phase: measured(&families::PHASE, metrics),
            unmeasured: counted(&families::UNMEASURED, metrics),
            sli: measured(&families::SLI, metrics),
            sli_excluded: counted(&families::SLI_EXCLUDED, metrics),
            pulls: counted(&families::PULLS, metrics),
            pull: measured(&families::PULL, metrics),
            pull_wait: measured(&families::PULL_WAIT, metrics),
            pull_bytes: counted(&families::PULL_BYTES, metrics),
            pull_failures: counted(&families::PULL_FAILURES, metrics),
            pull_back_offs: counted(&families::PULL_BACK_OFFS, metrics),
            lifecycles: counted(&families::LIFECYCLES, metrics),
            termination: measured(&families::TERMINATION, metrics),
            restarts: counted(&families::RESTARTS, metrics),
            down: measured(&families::DOWN, metrics),
            label_sets: gauge(&families::LABEL_SETS, metrics),
            overflows: counter(&families::OVERFLOWS, metrics),
            config,
        };
        gauge(&families::LABEL_SETS_LIMIT, metrics).set(limit);
        Self {
            families: Arc::new(families),
        }
    }

    /// The topology of a node with these labels.
    pub fn topology_of<'n>(&self, node: &'n Labels) -> Topology<'n> {
        self.families.config.topology_of(node)
    }

    /// Records a pod, with the topology of its node. Starts and lifecycles count once each;
    /// progress does not.
    pub fn record(&self, output: &Output, topology: Topology<'_>) {
        let families = &*self.families;
        match output {
            Output::Startup(record) => {
                families.record_start(record, &families.group(record, topology));
            }
            Output::Lifecycle(record) => {
                families.record_lifecycle(record, &families.group(record, topology));
            }
            Output::Progress(_) => {}
        }
    }
}

impl Families {
    fn group(&self, record: &PodRecord, topology: Topology<'_>) -> Arc<Group> {
        let group = self.groups.of(record, topology);
        if self.groups.is_overflow(&group) {
            self.overflows.inc();
        } else {
            let known = i64::try_from(self.groups.len()).unwrap_or(i64::MAX);
            self.label_sets.set(known);
        }
        group
    }

    fn record_start(&self, record: &PodRecord, group: &Arc<Group>) {
        self.startups.add(Some(group), Some(result_of(record)), 1);
        if is_measured(record) {
            for (phase, took) in phases(record) {
                self.phase.observe(group, Some(phase.as_str()), took);
            }
        }
        if record.is_complete() {
            match startup(record).filter(|_| is_measured(record)) {
                Some(took) => self.startup.observe(group, None, took),
                None => self
                    .unmeasured
                    .add(None, Some(unmeasured_reason(record)), 1),
            }
        }
        match sli::measure(record) {
            Ok(took) => self.sli.observe(group, None, took),
            Err(reason) => self.sli_excluded.add(None, Some(reason.as_str()), 1),
        }
        for container in &record.containers {
            if let Some(facts) = record.facts_of(container) {
                self.record_pull(&facts.pull, group);
            }
        }
    }

    fn record_pull(&self, pull: &Pull, group: &Arc<Group>) {
        if !pull.is_known() {
            return;
        }
        let result = match &pull.done {
            Some(done) if done.already_present => "already_present",
            Some(_) => "pulled",
            None => "failed",
        };
        self.pulls.add(Some(group), Some(result), 1);
        if let Some(done) = pull.done.as_ref().filter(|done| !done.already_present) {
            let with_waiting = done.with_waiting.or(done.pull);
            if let Some(took) = with_waiting.or_else(|| pull.took()) {
                self.pull.observe(group, Some(size_class(done.bytes)), took);
            }
            if let Some((whole, itself)) = done.with_waiting.zip(done.pull) {
                self.pull_wait
                    .observe(group, None, whole.saturating_sub(itself));
            }
            self.pull_bytes
                .add(Some(group), None, done.bytes.unwrap_or(0));
        }
        let reason = failure_class(pull.failed.message.as_deref());
        self.pull_failures
            .add(Some(group), Some(reason), pull.failed.times().into());
        self.pull_back_offs
            .add(Some(group), None, pull.backed_off.times().into());
    }

    fn record_lifecycle(&self, record: &PodRecord, group: &Arc<Group>) {
        self.lifecycles
            .add(Some(group), Some(record.end.as_str()), 1);
        let reached = &record.milestones;
        if record.end == End::Deleted
            && let Some(took) = between(reached.deletion, reached.gone)
        {
            self.termination.observe(group, None, took);
        }
        for container in &record.containers {
            let Some(log) = &container.restart_log else {
                continue;
            };
            for (kind, times) in &log.after {
                self.restarts
                    .add(Some(group), Some(kind.as_str()), (*times).into());
            }
            self.record_downs(container, &log.first_downs, group);
        }
    }

    /// Observes the first downtimes individually, and the rest, of which only the sum is known, by
    /// its mean.
    fn record_downs(&self, container: &ContainerRecord, first: &[Duration], group: &Arc<Group>) {
        for took in first {
            self.down.observe(group, None, *took);
        }
        let rest = container
            .downs
            .saturating_sub(u32::try_from(first.len()).unwrap_or(u32::MAX));
        let known: Duration = first.iter().sum();
        let left = container.down.saturating_sub(known);
        if let Some(mean) = left.checked_div(rest) {
            let labels = self.down.labels(group, None);
            self.down.family.observe_times(&labels, mean, rest.into());
        }
    }
}

impl CounterSet {
    fn register(info: &'static FamilyInfo, metrics: &mut Metrics) -> Self {
        let family = Family::default();
        metrics
            .root()
            .register(info.registered_name(), info.help, family.clone());
        Self { info, family }
    }

    /// Adds no series for zero.
    fn add(&self, group: Option<&Arc<Group>>, value: Option<&'static str>, times: u64) {
        if times > 0 {
            let labels = SeriesLabels {
                group: group.map(Arc::clone),
                own: self.info.label.zip(value),
            };
            self.family.get_or_create(&labels).inc_by(times);
        }
    }
}

impl HistogramSet {
    fn register(info: &'static FamilyInfo, metrics: &mut Metrics, is_native: bool) -> Self {
        Self {
            info,
            family: HistogramFamily::register(metrics, info.histogram(is_native)),
        }
    }

    fn observe(&self, group: &Arc<Group>, value: Option<&'static str>, took: Duration) {
        self.family.observe(&self.labels(group, value), took);
    }

    fn labels(&self, group: &Arc<Group>, value: Option<&'static str>) -> SeriesLabels {
        SeriesLabels {
            group: Some(Arc::clone(group)),
            own: self.info.label.zip(value),
        }
    }
}

fn counter(info: &FamilyInfo, metrics: &mut Metrics) -> Counter {
    let counter = Counter::default();
    metrics
        .root()
        .register(info.registered_name(), info.help, counter.clone());
    counter
}

fn gauge(info: &FamilyInfo, metrics: &mut Metrics) -> Gauge {
    let gauge = Gauge::default();
    metrics
        .root()
        .register(info.registered_name(), info.help, gauge.clone());
    gauge
}

/// `ready`, or the kind of the blocker.
fn result_of(record: &PodRecord) -> &'static str {
    if record.is_complete() {
        return "ready";
    }
    let blocker = record.blocker();
    blocker.map_or("unknown", |found| BlockerKind::as_str(found.kind))
}

fn unmeasured_reason(record: &PodRecord) -> &'static str {
    if record.reconstructed {
        "reconstructed"
    } else {
        "time_unknown"
    }
}

//! Records pods in the families.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use kubevitals_model::{Labels, Timestamp};
use kubevitals_telemetry::Metrics;
use kubevitals_transitions::{BlockerKind, ContainerRecord, End, Output, PodRecord, Pull};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::clock::between;
use crate::config::{FamilyConfig, Topology};
use crate::families::{self, FamilyInfo};
use crate::labels::{Group, Groups, SeriesLabels};
use crate::phases::{is_measured, phases, startup};
use crate::pulls::{failure_class, size_class};
use crate::series::{CounterSet, GaugeSet, HistogramSet};
use crate::sli;

/// The families of pod records. Clones are cheap and share them.
#[derive(Debug, Clone)]
pub struct TransitionMetrics {
    families: Arc<Families>,
}

#[derive(Debug)]
struct Families {
    config: FamilyConfig,
    groups: Mutex<Groups>,
    starting: GaugeSet,
    starting_age: GaugeSet,
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

/// Gathers the pods that are starting at one moment.
#[derive(Debug)]
pub struct StartingPods<'m> {
    families: &'m Families,
    now: Timestamp,
    /// The number of pods, and the greatest age.
    found: HashMap<SeriesLabels, (u32, Option<Duration>)>,
}

impl TransitionMetrics {
    /// Registers the families.
    pub fn register(metrics: &mut Metrics, config: FamilyConfig) -> Self {
        let is_native = config.native_histograms;
        let counted = CounterSet::register;
        let measured =
            |info, metrics: &mut Metrics| HistogramSet::register(info, metrics, is_native);
        let limit = count(config.series_limit);
        let keys = config.label_keys.clone();
        let groups = Groups::new(config.labels, keys, config.series_limit);
        let families = Families {
            groups: Mutex::new(groups),
            starting: GaugeSet::register(&families::STARTING, metrics),
            starting_age: GaugeSet::register(&families::STARTING_AGE, metrics),
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
    /// other outputs do not.
    pub fn record(&self, output: &Output, topology: Topology<'_>) {
        let families = &*self.families;
        // Held to the end, so that no group leaves meanwhile.
        let mut groups = families.groups();
        match output {
            Output::Startup(record) => {
                let group = families.group(&mut groups, record, topology);
                families.record_start(record, &group);
            }
            Output::Lifecycle(record) => {
                let group = families.group(&mut groups, record, topology);
                families.record_lifecycle(record, &group);
            }
            Output::Progress(_) | Output::ImagePull(..) => {}
        }
    }

    /// Gathers the pods that are starting now.
    pub fn starting(&self, now: Timestamp) -> StartingPods<'_> {
        StartingPods {
            families: &self.families,
            now,
            found: HashMap::new(),
        }
    }

    /// Removes the series of label sets that were not used for longer than
    /// [`FamilyConfig::idle_timeout`]; `now` is the time since the process started.
    pub fn advance(&self, now: Duration) {
        let families = &*self.families;
        let mut groups = families.groups();
        if groups.advance(now, families.config.idle_timeout) {
            families.retain(|labels| groups.has(labels));
            families.label_sets.set(count(groups.len()));
        }
    }
}

impl StartingPods<'_> {
    /// Adds a pod, with the topology of its node.
    pub fn add(&mut self, record: &PodRecord, topology: Topology<'_>) {
        let mut groups = self.families.groups();
        let group = groups.of(record, topology);
        self.families.label_sets.set(count(groups.len()));
        let blocker = record.blocker();
        let waiting_for = blocker.map_or("unknown", |found| BlockerKind::as_str(found.kind));
        let labels = SeriesLabels {
            group: Some(group),
            own: families::STARTING.label.zip(Some(waiting_for)),
        };
        let created = record.milestones.created.best();
        // Of a clock that is ahead nothing is known but that the pod is new.
        let age = created.map(|created| self.now.since(created).unwrap_or_default());
        let (pods, oldest) = self.found.entry(labels).or_default();
        *pods = pods.saturating_add(1);
        *oldest = (*oldest).max(age);
    }

    /// Replaces the gauges.
    pub fn publish(self) {
        let Self {
            families, found, ..
        } = self;
        let ages = found.iter().filter_map(|(labels, (_, oldest))| {
            Some((labels.clone(), oldest.as_ref()?.as_secs_f64()))
        });
        families.starting_age.set(ages.collect());
        let pods = found.into_iter();
        let pods = pods.map(|(labels, (pods, _))| (labels, f64::from(pods)));
        families.starting.set(pods.collect());
    }
}

impl Families {
    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn group(&self, groups: &mut Groups, record: &PodRecord, topology: Topology<'_>) -> Arc<Group> {
        let group = groups.of(record, topology);
        if groups.is_overflow(&group) {
            self.overflows.inc();
        } else {
            self.label_sets.set(count(groups.len()));
        }
        group
    }

    /// Removes series from all families with labels of pods. The gauges of starting pods are
    /// replaced soon, and by then their groups are in use.
    fn retain(&self, keep: impl Fn(&SeriesLabels) -> bool) {
        let counters = [
            &self.startups,
            &self.pulls,
            &self.pull_bytes,
            &self.pull_failures,
            &self.pull_back_offs,
            &self.lifecycles,
            &self.restarts,
        ];
        let histograms = [
            &self.startup,
            &self.phase,
            &self.sli,
            &self.pull,
            &self.pull_wait,
            &self.termination,
            &self.down,
        ];
        for counter in counters {
            counter.retain(&keep);
        }
        for histogram in histograms {
            histogram.retain(&keep);
        }
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
        for (_, pull) in record.pulls() {
            self.record_pull(pull, group);
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
            self.down.observe_times(group, None, mean, rest.into());
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

fn count(sets: usize) -> i64 {
    i64::try_from(sets).unwrap_or(i64::MAX)
}

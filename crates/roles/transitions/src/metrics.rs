//! The role's own metrics: those of kube-transition-metrics, by name and meaning, and ours.
//!
//! The event loop owns its counts and publishes a snapshot at every tick; watches are
//! read at scrape time. A pod change takes no lock but those of the four histograms.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_telemetry::{Metrics, RegistryExt};
use kubevitals_transitions::Counts;
use kubevitals_watch::{RestartReason, WatchState};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::emitter::RecordCounts;
use crate::event_loop::InputCounts;

/// From a microsecond to a minute, each four times the previous.
const BUCKETS: [f64; 14] = [
    0.000_001, 0.000_004, 0.000_016, 0.000_064, 0.000_256, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0,
    4.0, 16.0, 64.0,
];

/// The two event loops of kube-transition-metrics. Here one loop processes both inputs.
const POD: &str = "pod";
const IMAGE_PULL: &str = "image_pull";

/// The role's metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct RoleMetrics {
    pub(crate) pod: LoopMetrics,
    pub(crate) image_pull: LoopMetrics,
    inputs: Arc<Mutex<ScrapeInputs>>,
}

/// Latency of the event loop for one watch.
#[derive(Debug, Clone)]
pub(crate) struct LoopMetrics {
    /// From receipt to processing.
    publish: Histogram,
    processing: Histogram,
}

/// The counts of the event loop at one tick.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoopSnapshot {
    pub(crate) tracker: Counts,
    pub(crate) records: RecordCounts,
    pub(crate) inputs: InputCounts,
    pub(crate) tracked: usize,
    pub(crate) starting: usize,
    pub(crate) early: usize,
    pub(crate) queued: usize,
    pub(crate) is_leader: bool,
}

/// Changes of a watch by type.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChangeCounts {
    pub(crate) added: u64,
    pub(crate) modified: u64,
    pub(crate) deleted: u64,
    /// Objects of a list.
    pub(crate) listed: u64,
}

/// Reads the state of a watch without keeping it running.
pub(crate) type Observer = Box<dyn Fn() -> Option<WatchState> + Send + Sync>;

/// Values that are read at scrape time.
#[derive(Default)]
struct ScrapeInputs {
    snapshot: LoopSnapshot,
    pods: Option<Observer>,
    events: Option<Observer>,
}

/// The series of one family, each with its label.
type Series<'s> = &'s [(Option<(&'static str, &'static str)>, f64)];

impl RoleMetrics {
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let root = metrics.root();
        let publish = root.histogram_family::<[(&'static str, &'static str); 1]>(
            "statistic_event_publish_seconds",
            "Time from receipt of a change to its processing in seconds",
            &BUCKETS,
        );
        let processing = root.histogram_family::<[(&'static str, &'static str); 1]>(
            "statistic_event_processing_seconds",
            "Duration of processing a change in seconds",
            &BUCKETS,
        );
        let of = |name: &'static str| LoopMetrics {
            publish: publish.get_or_create(&[("event_loop", name)]).clone(),
            processing: processing.get_or_create(&[("event_loop", name)]).clone(),
        };
        let this = Self {
            pod: of(POD),
            image_pull: of(IMAGE_PULL),
            inputs: Arc::default(),
        };
        metrics.root().register_collector(Box::new(this.clone()));
        this
    }

    /// Sets what is read at scrape time.
    pub(crate) fn observe(&self, pods: Observer, events: Option<Observer>) {
        let mut inputs = self.inputs.lock();
        inputs.pods = Some(pods);
        inputs.events = events;
    }

    pub(crate) fn publish(&self, snapshot: LoopSnapshot) {
        self.inputs.lock().snapshot = snapshot;
    }
}

impl LoopMetrics {
    pub(crate) fn record(&self, waited: Duration, processing: Duration) {
        self.publish.observe(waited.as_secs_f64());
        self.processing.observe(processing.as_secs_f64());
    }
}

impl Collector for RoleMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let inputs = self.inputs.lock();
        let snapshot = inputs.snapshot;
        let pods = inputs.pods.as_ref().and_then(|observe| observe());
        let events = inputs.events.as_ref().and_then(|observe| observe());
        drop(inputs);
        encode_peers(&mut encoder, &snapshot, pods.as_ref(), events.as_ref())?;
        encode_own(&mut encoder, &snapshot)
    }
}

/// Encodes the families of kube-transition-metrics.
fn encode_peers(
    encoder: &mut DescriptorEncoder<'_>,
    snapshot: &LoopSnapshot,
    pods: Option<&WatchState>,
    events: Option<&WatchState>,
) -> fmt::Result {
    for (name, changes) in [
        ("pod_watch_events", snapshot.inputs.pods),
        ("image_pull_watch_events", snapshot.inputs.events),
    ] {
        let help = "Total number of watch events by type";
        let series = [
            (Some(("event_type", "ADDED")), number(changes.added)),
            (Some(("event_type", "MODIFIED")), number(changes.modified)),
            (Some(("event_type", "DELETED")), number(changes.deleted)),
        ];
        counter(encoder, name, help, &series)?;
    }
    for (name, stream) in [("pod_collector", pods), ("image_pull_collector", events)] {
        let (errors, restarts) = stream.map_or((0, 0), endings);
        let help = "Total number of watch connections that failed";
        let errors = [(None, number(errors))];
        counter(encoder, &format!("{name}_errors"), help, &errors)?;
        let help = "Total number of watch connections that ended, for any reason";
        let restarts = [(None, number(restarts))];
        counter(encoder, &format!("{name}_restarts"), help, &restarts)?;
    }
    let routines = f64::from(u8::from(events.is_some()));
    let help = "Number of open event watches: one for all pods, or none";
    gauge(
        encoder,
        "image_pull_collector_routines",
        help,
        &[(None, routines)],
    )?;
    let help = "Number of tracked pods, including finished pods that are not deleted";
    let tracked = [(None, number(snapshot.tracked as u64))];
    gauge(encoder, "pod_statistics_tracked", help, &tracked)?;
    let help = "Number of pods whose image pulls are tracked: those still starting";
    let starting = [(None, number(snapshot.starting as u64))];
    gauge(encoder, "image_pull_statistics_tracked", help, &starting)?;
    let queued = |stream: Option<&WatchState>| stream.map_or(0, |state| state.queue_depth as u64);
    let help = "Number of changes queued for the event loop";
    let depth = [
        (Some(("event_loop", POD)), number(queued(pods))),
        (Some(("event_loop", IMAGE_PULL)), number(queued(events))),
    ];
    gauge(encoder, "statistic_event_queue_depth", help, &depth)
}

/// Encodes our own families.
fn encode_own(encoder: &mut DescriptorEncoder<'_>, snapshot: &LoopSnapshot) -> fmt::Result {
    let LoopSnapshot {
        tracker,
        records,
        inputs,
        ..
    } = *snapshot;
    let label = |value| Some(("record", value));
    let series = [
        (label("startup"), number(records.startups)),
        (label("lifecycle"), number(records.lifecycles)),
        (label("progress"), number(records.progress)),
        (label("image_pull"), number(records.image_pulls)),
    ];
    let help = "Total number of emitted records by type";
    counter(encoder, "kubevitals_transitions_records", help, &series)?;
    let label = |value| Some(("result", value));
    let series = [
        (label("new"), number(tracker.states)),
        (label("repeated"), number(tracker.repeated)),
        (label("rejected"), number(tracker.rejected)),
        (label("other_shard"), number(inputs.other_shards)),
    ];
    let help = "Total number of pod states by result";
    counter(encoder, "kubevitals_transitions_pod_states", help, &series)?;
    let series = [
        (label("accepted"), number(tracker.events)),
        (label("ignored"), number(tracker.events_ignored)),
        (label("late"), number(tracker.events_late)),
        (label("stale"), number(tracker.events_stale)),
        (label("early_dropped"), number(tracker.early_dropped)),
    ];
    let help = "Total number of events by result";
    counter(encoder, "kubevitals_transitions_events", help, &series)?;
    let label = |value| Some(("stream", value));
    let series = [
        (label("pods"), number(inputs.pods.listed)),
        (label("events"), number(inputs.events.listed)),
    ];
    let help = "Total number of objects received in lists";
    counter(
        encoder,
        "kubevitals_transitions_listed_objects",
        help,
        &series,
    )?;
    let series = [(
        Some(("reason", "leader_emitted")),
        number(tracker.leader_emitted),
    )];
    let help = "Total number of records not emitted by this replica, by reason";
    counter(
        encoder,
        "kubevitals_transitions_records_skipped",
        help,
        &series,
    )?;
    encode_plain(encoder, snapshot)
}

/// Encodes our own families without labels.
fn encode_plain(encoder: &mut DescriptorEncoder<'_>, snapshot: &LoopSnapshot) -> fmt::Result {
    let counts = snapshot.tracker;
    for (name, help, value) in [
        (
            "resyncs",
            "Total number of times a list of all pods was processed",
            snapshot.inputs.resyncs,
        ),
        (
            "vanished_pods",
            "Total number of pods found missing after a gap in the watch",
            counts.vanished,
        ),
        (
            "standby_queue_dropped",
            "Total number of records dropped from the full queue of a standby",
            counts.standby_dropped,
        ),
    ] {
        let name = format!("kubevitals_transitions_{name}");
        counter(encoder, &name, help, &[(None, number(value))])?;
    }
    for (name, help, value) in [
        (
            "early_pods",
            "Number of pods known only from events",
            snapshot.early as u64,
        ),
        (
            "records_queued",
            "Number of records waiting for late events, or for the leader's checkpoint",
            snapshot.queued as u64,
        ),
        (
            "leader",
            "Whether this replica is the leader and emits records",
            u64::from(snapshot.is_leader),
        ),
    ] {
        let name = format!("kubevitals_transitions_{name}");
        gauge(encoder, &name, help, &[(None, number(value))])?;
    }
    Ok(())
}

/// The number of connections that failed, and of all that ended.
fn endings(state: &WatchState) -> (u64, u64) {
    let errors = state
        .restarts
        .iter()
        .filter(|(reason, _)| !RestartReason::is_expected(**reason));
    (
        errors.map(|(_, count)| count).sum(),
        state.restarts.values().sum(),
    )
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: Series<'_>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (label, value) in series {
        let metric = ConstCounter::new(*value);
        match label {
            Some(label) => metric.encode(family.encode_family(&[*label])?)?,
            None => return metric.encode(family),
        }
    }
    Ok(())
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: Series<'_>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (label, value) in series {
        let metric = ConstGauge::new(*value);
        match label {
            Some(label) => metric.encode(family.encode_family(&[*label])?)?,
            None => return metric.encode(family),
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "no count here reaches 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}

impl fmt::Debug for ScrapeInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScrapeInputs")
            .field("snapshot", &self.snapshot)
            .finish_non_exhaustive()
    }
}

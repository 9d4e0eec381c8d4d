//! What the role counts about itself: the names of kube-transition-metrics with their meaning, and
//! our own.
//!
//! The event loop owns what it counts and publishes a copy as time passes; streams and lines are
//! looked at when somebody asks. Nothing of it is locked for each change of a pod but the four
//! histograms.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubevitals_jsonl::{JsonLines, LineCounts};
use kubevitals_telemetry::Metrics;
use kubevitals_transitions::Counts;
use kubevitals_watch::{Restart, StreamState};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use super::teller::Told;

/// From a microsecond to a minute, each four times the one before.
const BOUNDS: [f64; 14] = [
    0.000_001, 0.000_004, 0.000_016, 0.000_064, 0.000_256, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0,
    4.0, 16.0, 64.0,
];

/// The two loops of kube-transition-metrics. Here one loop takes both in turn.
const POD: &str = "pod";
const IMAGE_PULL: &str = "image_pull";

/// The role's metrics. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct RoleMetrics {
    pub(super) pod: LoopMetrics,
    pub(super) image_pull: LoopMetrics,
    shared: Arc<Mutex<Shared>>,
}

/// How quickly the event loop takes what one stream brings.
#[derive(Debug, Clone)]
pub(super) struct LoopMetrics {
    /// From receipt until the loop took it.
    publish: Histogram,
    /// From then until the next.
    processing: Histogram,
}

/// What the event loop knows of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Published {
    pub(super) counts: Counts,
    pub(super) told: Told,
    pub(super) pods: Changes,
    pub(super) events: Changes,
    pub(super) other_shards: u64,
    pub(super) resyncs: u64,
    pub(super) tracked: usize,
    pub(super) starting: usize,
    pub(super) early: usize,
    pub(super) waiting: usize,
    pub(super) is_leader: bool,
}

/// What a watch told, as it happened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changes {
    pub(super) added: u64,
    pub(super) modified: u64,
    pub(super) deleted: u64,
    /// What came in a list, and so not as it happened.
    pub(super) listed: u64,
}

/// Looks at a stream, without keeping it running.
pub(super) type Observer = Box<dyn Fn() -> Option<StreamState> + Send + Sync>;

#[derive(Default)]
struct Shared {
    published: Published,
    lines: Option<JsonLines>,
    pods: Option<Observer>,
    events: Option<Observer>,
}

/// One family of the exposition: its type, name, help, and series with the values of their label.
type Series<'s> = &'s [(Option<(&'static str, &'static str)>, f64)];

impl RoleMetrics {
    /// Registers the metrics.
    pub(super) fn register(metrics: &mut Metrics) -> Self {
        let histogram = || {
            Family::<[(&'static str, &'static str); 1], Histogram>::new_with_constructor(|| {
                Histogram::new(BOUNDS)
            })
        };
        let (publish, processing) = (histogram(), histogram());
        metrics.root().register(
            "statistic_event_publish_seconds",
            "Time from the receipt of a change until the event loop took it",
            publish.clone(),
        );
        metrics.root().register(
            "statistic_event_processing_seconds",
            "Time that the event loop took for a change",
            processing.clone(),
        );
        let of = |name: &'static str| LoopMetrics {
            publish: publish.get_or_create(&[("event_loop", name)]).clone(),
            processing: processing.get_or_create(&[("event_loop", name)]).clone(),
        };
        let this = Self {
            pod: of(POD),
            image_pull: of(IMAGE_PULL),
            shared: Arc::default(),
        };
        metrics.root().register_collector(Box::new(this.clone()));
        this
    }

    /// What is looked at whenever somebody asks.
    pub(super) fn observe(
        &self,
        pods: Observer,
        events: Option<Observer>,
        lines: Option<JsonLines>,
    ) {
        let mut shared = self.lock();
        shared.pods = Some(pods);
        shared.events = events;
        shared.lines = lines;
    }

    pub(super) fn publish(&self, published: Published) {
        self.lock().published = published;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoopMetrics {
    pub(super) fn took(&self, waited: Duration, processing: Duration) {
        self.publish.observe(waited.as_secs_f64());
        self.processing.observe(processing.as_secs_f64());
    }
}

impl Collector for RoleMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shared = self.lock();
        let published = shared.published;
        let pods = shared.pods.as_ref().and_then(|observe| observe());
        let events = shared.events.as_ref().and_then(|observe| observe());
        let lines = shared.lines.as_ref().map(JsonLines::counts);
        drop(shared);
        encode_peers(&mut encoder, &published, pods.as_ref(), events.as_ref())?;
        encode_own(&mut encoder, &published, lines.unwrap_or_default())
    }
}

/// The families of kube-transition-metrics.
fn encode_peers(
    encoder: &mut DescriptorEncoder<'_>,
    published: &Published,
    pods: Option<&StreamState>,
    events: Option<&StreamState>,
) -> fmt::Result {
    for (name, changes) in [
        ("pod_watch_events", published.pods),
        ("image_pull_watch_events", published.events),
    ] {
        let help = "Events of the watch by their type";
        let series = [
            (Some(("event_type", "ADDED")), number(changes.added)),
            (Some(("event_type", "MODIFIED")), number(changes.modified)),
            (Some(("event_type", "DELETED")), number(changes.deleted)),
        ];
        counter(encoder, name, help, &series)?;
    }
    for (name, stream) in [("pod_collector", pods), ("image_pull_collector", events)] {
        let (errors, restarts) = stream.map_or((0, 0), endings);
        let help = "Connections of the watch that ended in an error";
        let errors = [(None, number(errors))];
        counter(encoder, &format!("{name}_errors"), help, &errors)?;
        let help = "Connections of the watch that ended, for whatever reason";
        let restarts = [(None, number(restarts))];
        counter(encoder, &format!("{name}_restarts"), help, &restarts)?;
    }
    let routines = f64::from(u8::from(events.is_some()));
    let help = "Watches of events that are open: one, however many pods there are, or none";
    gauge(
        encoder,
        "image_pull_collector_routines",
        help,
        &[(None, routines)],
    )?;
    let help = "Pods that are followed, those that have ended included until they are deleted";
    let tracked = [(None, number(published.tracked as u64))];
    gauge(encoder, "pod_statistics_tracked", help, &tracked)?;
    let help = "Pods whose image pulls are followed: those that are still starting";
    let starting = [(None, number(published.starting as u64))];
    gauge(encoder, "image_pull_statistics_tracked", help, &starting)?;
    let queued = |stream: Option<&StreamState>| stream.map_or(0, |state| state.queued as u64);
    let help = "Changes that wait for the event loop";
    let depth = [
        (Some(("event_loop", POD)), number(queued(pods))),
        (Some(("event_loop", IMAGE_PULL)), number(queued(events))),
    ];
    gauge(encoder, "statistic_event_queue_depth", help, &depth)
}

/// The families of ours.
fn encode_own(
    encoder: &mut DescriptorEncoder<'_>,
    published: &Published,
    lines: LineCounts,
) -> fmt::Result {
    let Published {
        counts,
        told,
        pods,
        events,
        ..
    } = *published;
    let label = |value| Some(("record", value));
    let series = [
        (label("startup"), number(told.startups)),
        (label("life"), number(told.lives)),
        (label("progress"), number(told.progress)),
    ];
    let help = "Records that were told, by what they are";
    counter(encoder, "kubevitals_transitions_records", help, &series)?;
    let label = |value| Some(("fate", value));
    let series = [
        (label("news"), number(counts.states)),
        (label("repeated"), number(counts.repeated)),
        (label("refused"), number(counts.refused)),
        (label("other_shard"), number(published.other_shards)),
    ];
    let help = "States of pods by what became of them";
    counter(encoder, "kubevitals_transitions_pod_states", help, &series)?;
    let series = [
        (label("taken"), number(counts.events)),
        (label("unused"), number(counts.events_unused)),
        (label("late"), number(counts.events_late)),
        (label("stale"), number(counts.events_stale)),
        (label("early_dropped"), number(counts.early_dropped)),
    ];
    let help = "Events by what became of them";
    counter(encoder, "kubevitals_transitions_events", help, &series)?;
    let label = |value| Some(("stream", value));
    let series = [
        (label("pods"), number(pods.listed)),
        (label("events"), number(events.listed)),
    ];
    let help = "Objects that came in lists, and not as they changed";
    counter(
        encoder,
        "kubevitals_transitions_listed_objects",
        help,
        &series,
    )?;
    encode_plain(encoder, published, lines)
}

/// Those of them that have no labels.
fn encode_plain(
    encoder: &mut DescriptorEncoder<'_>,
    published: &Published,
    lines: LineCounts,
) -> fmt::Result {
    let counts = published.counts;
    for (name, help, value) in [
        (
            "resyncs",
            "Times the state of all pods was taken in at once",
            published.resyncs,
        ),
        (
            "vanished_pods",
            "Pods that were missing after a gap",
            counts.vanished,
        ),
        (
            "told_elsewhere",
            "Records left to another replica, which told them",
            counts.told_elsewhere,
        ),
        (
            "withheld_dropped",
            "Records kept for another replica to tell that were too many",
            counts.withheld_dropped,
        ),
        (
            "lines_written",
            "Lines written to standard output",
            lines.written,
        ),
        (
            "lines_dropped",
            "Lines that nobody read in time, or that could not be written",
            lines.dropped,
        ),
    ] {
        let name = format!("kubevitals_transitions_{name}");
        counter(encoder, &name, help, &[(None, number(value))])?;
    }
    for (name, help, value) in [
        (
            "lines_waiting",
            "Lines that wait to be written",
            lines.waiting,
        ),
        (
            "early_pods",
            "Pods only known from events so far",
            published.early as u64,
        ),
        (
            "records_waiting",
            "Records that wait for late events, or for another replica",
            published.waiting as u64,
        ),
        (
            "leader",
            "Whether this replica tells what it sees",
            u64::from(published.is_leader),
        ),
    ] {
        let name = format!("kubevitals_transitions_{name}");
        gauge(encoder, &name, help, &[(None, number(value))])?;
    }
    Ok(())
}

/// How many connections ended in an error, and how many at all.
fn endings(state: &StreamState) -> (u64, u64) {
    let errors = state
        .restarts
        .iter()
        .filter(|(why, _)| !Restart::is_ordinary(**why));
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

#[expect(
    clippy::cast_precision_loss,
    reason = "nothing here is counted to 2^53"
)]
fn number(count: u64) -> f64 {
    count as f64
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("published", &self.published)
            .finish_non_exhaustive()
    }
}

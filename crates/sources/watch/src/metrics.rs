//! The metrics of all watches, read from their states when scraped.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::event_watcher::EventWatcher;
use crate::kind::Kind;
use crate::reflector::Reflector;
use crate::state::{RestartReason, WatchState};

/// Exposes the state of watches. Clones share the list of watches.
#[derive(Debug, Clone, Default)]
pub struct WatchMetrics {
    watches: Arc<Mutex<Vec<TrackedWatch>>>,
}

/// A watch of any kind.
pub(crate) trait Observed: fmt::Debug + Send + Sync {
    fn state(&self) -> WatchState;
}

/// The states of watches by name.
type States = [(&'static str, WatchState)];

/// A watch that is not kept running by being tracked.
#[derive(Debug, Clone)]
struct TrackedWatch {
    name: &'static str,
    watch: Weak<dyn Observed>,
}

type Gauge = (
    &'static str,
    &'static str,
    Option<Unit>,
    fn(&WatchState) -> f64,
);
type Counter = (&'static str, &'static str, fn(&WatchState) -> u64);

const GAUGES: [Gauge; 8] = [
    (
        "synced",
        "Whether the first list is complete",
        None,
        |state| f64::from(u8::from(state.synced)),
    ),
    ("connected", "Whether a watch is open", None, |state| {
        f64::from(u8::from(state.connected.is_some()))
    }),
    (
        "idle",
        "Time since the server last sent data in seconds",
        Some(Unit::Seconds),
        |state| state.idle.as_secs_f64(),
    ),
    ("objects", "Number of objects in the cache", None, |state| {
        number(state.objects)
    }),
    ("subscribers", "Number of subscribers", None, |state| {
        number(state.subscribers)
    }),
    (
        "lagging_subscribers",
        "Number of subscribers that must resync because their queue was full",
        None,
        |state| number(state.lagging),
    ),
    (
        "queue_depth",
        "Number of events queued for the slowest subscriber",
        None,
        |state| number(state.queue_depth),
    ),
    (
        "consecutive_failures",
        "Number of connections in a row that failed",
        None,
        |state| f64::from(state.consecutive_failures),
    ),
];

const COUNTERS: [Counter; 5] = [
    (
        "events",
        "Total number of object events sent to subscribers",
        |state| state.events,
    ),
    (
        "received_bytes",
        "Total number of bytes received",
        |state| state.bytes,
    ),
    (
        "decode_errors",
        "Total number of events and objects that could not be decoded and were skipped",
        |state| state.decode_errors,
    ),
    (
        "subscriber_lags",
        "Total number of times that the queue of a subscriber was full",
        |state| state.lags,
    ),
    (
        "truncated_lists",
        "Total number of lists that were not read to the end because of their length",
        |state| state.truncated_lists,
    ),
];

impl WatchMetrics {
    /// Registers the metrics; `registry` has the prefix `kubevitals_watch`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Exposes a reflector under its name until it ends. No other watch may have that name.
    pub fn track<K: Kind>(&self, reflector: &Reflector<K>) {
        self.add(reflector.name(), &reflector.observed());
    }

    /// Exposes an event watcher under its name until it ends.
    pub fn track_event_watcher<K: Kind>(&self, watcher: &EventWatcher<K>) {
        self.add(watcher.name(), &watcher.observed());
    }

    fn add(&self, name: &'static str, watch: &Arc<dyn Observed>) {
        let mut watches = self.watches.lock();
        watches.retain(|tracked| tracked.watch.strong_count() > 0);
        watches.push(TrackedWatch {
            name,
            watch: Arc::downgrade(watch),
        });
    }

    fn states(&self) -> Vec<(&'static str, WatchState)> {
        let watches = self.watches.lock().clone();
        let live = watches.into_iter();
        live.filter_map(|tracked| Some((tracked.name, tracked.watch.upgrade()?.state())))
            .collect()
    }
}

impl Collector for WatchMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let states = self.states();
        if states.is_empty() {
            return Ok(());
        }
        for (name, help, unit, value) in &GAUGES {
            let family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            encode_each(family, &states, |state| ConstGauge::new(value(state)))?;
        }
        for (name, help, value) in &COUNTERS {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            encode_each(family, &states, |state| ConstCounter::new(value(state)))?;
        }
        let help = "Total time that an event watcher was blocked on a full queue in seconds";
        let unit = Some(&Unit::Seconds);
        let family = encoder.encode_descriptor("blocked", help, unit, MetricType::Counter)?;
        encode_each(family, &states, |state| {
            ConstCounter::new(state.blocked.as_secs_f64())
        })?;
        encode_restarts(&mut encoder, &states)
    }
}

fn encode_each<M: EncodeMetric>(
    mut family: MetricEncoder<'_>,
    states: &States,
    metric: impl Fn(&WatchState) -> M,
) -> fmt::Result {
    states.iter().try_for_each(|(name, state)| {
        metric(state).encode(family.encode_family(&[("watch", *name)])?)
    })
}

fn encode_restarts(encoder: &mut DescriptorEncoder<'_>, states: &States) -> fmt::Result {
    let help = "Total number of connections that ended, by reason";
    let mut restarts = encoder.encode_descriptor("restarts", help, None, MetricType::Counter)?;
    for (name, state) in states {
        for reason in RestartReason::ALL {
            let count = state.restarts.get(&reason).copied().unwrap_or(0);
            let labels = [("watch", *name), ("reason", reason.as_str())];
            ConstCounter::new(count).encode(restarts.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "no cluster has 2^53 objects")]
fn number(count: usize) -> f64 {
    count as f64
}

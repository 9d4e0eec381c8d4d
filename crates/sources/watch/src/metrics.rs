//! The metrics of all streams, read from their states when they are asked for.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::kind::Kind;
use crate::state::{Restart, StreamState};
use crate::stream::Stream;
use crate::tail::Tail;

/// Exposes the state of streams. Clones share the list of streams.
#[derive(Debug, Clone, Default)]
pub struct WatchMetrics {
    streams: Arc<Mutex<Vec<Tracked>>>,
}

/// Whatever has the state of a stream, whatever its kind.
pub(crate) trait Observed: fmt::Debug + Send + Sync {
    fn state(&self) -> StreamState;
}

/// Streams as they are, by name.
type States = [(&'static str, StreamState)];

/// A stream, without keeping it alive.
#[derive(Debug, Clone)]
struct Tracked {
    name: &'static str,
    stream: Weak<dyn Observed>,
}

impl WatchMetrics {
    /// Registers the metrics; `registry` has the prefix `kubevitals_watch`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Exposes a stream under its name until it ends. No other stream may have that name.
    pub fn track<K: Kind>(&self, stream: &Stream<K>) {
        self.add(stream.name(), &stream.observed());
    }

    /// The same for a tail.
    pub fn track_tail<K: Kind>(&self, tail: &Tail<K>) {
        self.add(tail.name(), &tail.observed());
    }

    fn add(&self, name: &'static str, stream: &Arc<dyn Observed>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|tracked| tracked.stream.strong_count() > 0);
        streams.push(Tracked {
            name,
            stream: Arc::downgrade(stream),
        });
    }

    fn states(&self) -> Vec<(&'static str, StreamState)> {
        let streams = self
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let live = streams.into_iter();
        live.filter_map(|tracked| Some((tracked.name, tracked.stream.upgrade()?.state())))
            .collect()
    }
}

impl Collector for WatchMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let states = self.states();
        if states.is_empty() {
            return Ok(());
        }
        let mut gauge = |name, help, unit: Option<&Unit>, value: fn(&StreamState) -> f64| {
            let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            states.iter().try_for_each(|(stream, state)| {
                one(
                    &mut family,
                    &[("stream", stream)],
                    &ConstGauge::new(value(state)),
                )
            })
        };
        gauge(
            "synced",
            "Whether a whole list was taken over",
            None,
            |state| truth(state.synced),
        )?;
        gauge("connected", "Whether a watch is open", None, |state| {
            truth(state.connected.is_some())
        })?;
        gauge(
            "silence",
            "Time since the server last sent anything",
            Some(&Unit::Seconds),
            |state| state.silent.as_secs_f64(),
        )?;
        gauge("objects", "Objects in the view", None, |state| {
            number(state.objects)
        })?;
        gauge("subscribers", "Subscribers", None, |state| {
            number(state.subscribers)
        })?;
        gauge(
            "lagging_subscribers",
            "Subscribers that must resync",
            None,
            |state| number(state.lagging),
        )?;
        gauge(
            "queued",
            "Changes that wait for the subscriber that is furthest behind",
            None,
            |state| number(state.queued),
        )?;
        gauge(
            "failures",
            "Connections in a row that did not last",
            None,
            |state| f64::from(state.failures),
        )?;

        let mut counter = |name, help, value: fn(&StreamState) -> u64| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            states.iter().try_for_each(|(stream, state)| {
                one(
                    &mut family,
                    &[("stream", stream)],
                    &ConstCounter::new(value(state)),
                )
            })
        };
        counter(
            "changes",
            "Changes of objects told to subscribers",
            |state| state.changes,
        )?;
        counter("received_bytes", "Bytes received", |state| state.bytes)?;
        counter(
            "unreadable_objects",
            "Events and objects skipped because they could not be read",
            |state| state.decode_errors,
        )?;
        counter(
            "lags",
            "Times a subscriber was too slow and had to resync",
            |state| state.lagged,
        )?;

        counter(
            "cut_lists",
            "Lists that were left before their end because they are long",
            |state| state.cut_lists,
        )?;

        encode_waits(&mut encoder, &states)?;
        encode_restarts(&mut encoder, &states)
    }
}

fn encode_waits(encoder: &mut DescriptorEncoder<'_>, states: &States) -> fmt::Result {
    let help = "Time not read on because nobody took what had come";
    let unit = Some(&Unit::Seconds);
    let mut waited = encoder.encode_descriptor("waited", help, unit, MetricType::Counter)?;
    states.iter().try_for_each(|(stream, state)| {
        let time = ConstCounter::new(state.waited.as_secs_f64());
        one(&mut waited, &[("stream", stream)], &time)
    })
}

fn encode_restarts(encoder: &mut DescriptorEncoder<'_>, states: &States) -> fmt::Result {
    let help = "Connections that ended, by reason";
    let mut restarts = encoder.encode_descriptor("restarts", help, None, MetricType::Counter)?;
    for (stream, state) in states {
        for reason in Restart::ALL {
            let count = state.restarts.get(&reason).copied().unwrap_or(0);
            let labels = [("stream", *stream), ("reason", reason.as_str())];
            one(&mut restarts, &labels, &ConstCounter::new(count))?;
        }
    }
    Ok(())
}

fn one(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(family.encode_family(&labels)?)
}

fn truth(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

#[expect(clippy::cast_precision_loss, reason = "no cluster has 2^53 objects")]
fn number(count: usize) -> f64 {
    count as f64
}

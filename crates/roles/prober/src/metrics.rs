//! Metrics of the role itself.

use kubevitals_telemetry::{Metrics, RegistryExt as _};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// A tick takes milliseconds, with 5,000 nodes too.
const BUCKETS: [f64; 9] = [0.0005, 0.002, 0.008, 0.032, 0.125, 0.5, 2.0, 8.0, 30.0];

/// How a tick ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TickResult {
    Recorded,
    /// Another replica reports.
    Standby,
    /// Not all objects are listed yet.
    NotSynced,
    /// The node of this process does not exist.
    NoNode,
    /// It took longer than the interval.
    TimedOut,
}

/// The metrics of the role. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct RoleMetrics {
    ticks: Family<TickLabels, Counter>,
    pub(crate) missed: Counter,
    pub(crate) duration: Histogram,
    pub(crate) leader: Gauge,
    pub(crate) last_recorded: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TickLabels {
    result: &'static str,
}

impl TickResult {
    const ALL: [Self; 5] = [
        Self::Recorded,
        Self::Standby,
        Self::NotSynced,
        Self::NoNode,
        Self::TimedOut,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Standby => "standby",
            Self::NotSynced => "not_synced",
            Self::NoNode => "no_node",
            Self::TimedOut => "timed_out",
        }
    }
}

impl RoleMetrics {
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let registry = metrics.sub("kubevitals_prober");
        let this = Self {
            ticks: registry.family("ticks", "Total number of ticks of reports by result"),
            missed: registry.counter(
                "missed_ticks",
                "Total number of ticks left out because the one before took too long",
            ),
            duration: registry.histogram(
                "tick_duration_seconds",
                "Duration of ticks in seconds",
                &BUCKETS,
            ),
            leader: registry.gauge(
                "leader",
                "Whether this process reports for the cluster: the leader, or the only replica",
            ),
            last_recorded: registry.gauge(
                "last_recorded_timestamp_seconds",
                "Time of the last tick that was recorded, in Unix seconds",
            ),
        };
        for result in TickResult::ALL {
            this.tick(result);
        }
        this
    }

    /// The counter of a result, which is exposed from now on.
    fn tick(&self, result: TickResult) -> Counter {
        let result = result.as_str();
        self.ticks.get_or_create(&TickLabels { result }).clone()
    }

    pub(crate) fn count(&self, result: TickResult) {
        self.tick(result).inc();
    }
}

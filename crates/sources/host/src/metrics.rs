use kubevitals_telemetry::registry::{Registry, RegistryExt};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::error::Fault;
use crate::host::Sample;

/// Buckets from 0.5 ms, where a node with few pods is, to the default interval.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 10.0,
];

/// The metrics of a sampler. Clones share them.
#[derive(Debug, Clone)]
pub struct HostMetrics {
    sample_duration: Histogram,
    cgroups: Counter,
    read_errors: Family<[(&'static str, &'static str); 1], Counter>,
    pods: Gauge,
    unresolved: Gauge,
    kept_files: Gauge,
}

impl HostMetrics {
    /// Registers the metrics in `registry`, whose prefix is `kubevitals_host`.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self {
            sample_duration: registry.add(
                "sample_duration_seconds",
                "Duration of one sample of the host",
                Histogram::new(SECONDS.iter().copied()),
            ),
            cgroups: registry.counter("cgroups_read", "Total number of cgroups that were read"),
            read_errors: registry.family(
                "read_errors",
                "Total number of values or cgroups that are missing from a sample, by reason",
            ),
            pods: registry.gauge("pods", "Number of pods in the last sample"),
            unresolved: registry.gauge(
                "unresolved_containers",
                "Number of running containers whose names are not known",
            ),
            kept_files: registry.gauge("kept_files", "Number of files kept open between samples"),
        };
        for fault in Fault::ALL {
            drop(
                this.read_errors
                    .get_or_create(&[("reason", fault.as_str())]),
            );
        }
        this
    }

    /// Metrics that are in no registry.
    pub fn unregistered() -> Self {
        Self::register(&mut Registry::default())
    }

    pub(crate) fn record(&self, sample: &Sample, duration: std::time::Duration) {
        self.sample_duration.observe(duration.as_secs_f64());
        self.cgroups.inc_by(sample.cgroups);
        for fault in Fault::ALL {
            let count = sample.faults.count(fault);
            if count > 0 {
                let series = self
                    .read_errors
                    .get_or_create(&[("reason", fault.as_str())]);
                series.inc_by(count);
            }
        }
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.pods.set(gauge(sample.stats.pods.len()));
        self.unresolved
            .set(i64::try_from(sample.unresolved).unwrap_or(i64::MAX));
        self.kept_files.set(gauge(sample.kept_files));
    }
}

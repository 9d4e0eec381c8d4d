//! The metric registry, which is filled at startup and then only read.
//!
//! The binary creates one [`Metrics`], passes each crate a sub-registry with the crate's prefix,
//! and freezes it before the admin server starts. There is no global registry, so tests are
//! independent of each other and a crate's metrics exist only where the crate is used.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use http::HeaderMap;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Metric;
pub use prometheus_client::registry::{Registry, Unit};

use crate::{
    BuildInfo, TelemetryError,
    exposition::{Format, family_names, render},
    histogram::HistogramSource,
    process::ProcessCollector,
};

/// The registry during registration.
#[derive(Debug, Default)]
pub struct Metrics {
    root: Registry,
    histograms: Vec<Arc<dyn HistogramSource>>,
}

/// The registry after registration. Clones share it.
#[derive(Clone, Debug)]
pub struct SharedRegistry {
    root: Arc<Registry>,
    histograms: Arc<[Arc<dyn HistogramSource>]>,
}

/// Creates metrics and registers them in one step.
///
/// The library appends `_total` to the name of a counter and a full stop to `help`.
pub trait RegistryExt {
    /// Registers `metric` and returns it, for what has no method of its own.
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M;

    fn counter(&mut self, name: &str, help: &str) -> Counter {
        self.add(name, help, Counter::default())
    }

    fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        self.add(name, help, Gauge::default())
    }

    /// Registers a histogram; `buckets` are upper bounds without `+Inf`.
    fn histogram(&mut self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.add(name, help, Histogram::new(buckets.iter().copied()))
    }

    /// Registers counters or gauges with the labels `L`.
    fn family<L: Labels, M>(&mut self, name: &str, help: &str) -> Family<L, M>
    where
        M: EncodeMetric + TypedMetric + Default + Debug + Send + Sync + 'static,
    {
        self.add(name, help, Family::default())
    }

    /// Registers histograms with the labels `L`.
    fn histogram_family<L: Labels>(
        &mut self,
        name: &str,
        help: &str,
        buckets: &'static [f64],
    ) -> Family<L, Histogram, Buckets> {
        self.add(name, help, Family::new_with_constructor(Buckets(buckets)))
    }
}

/// The label set of a [`Family`].
pub trait Labels: EncodeLabelSet + Clone + Hash + Eq + Debug + Send + Sync + 'static {}

/// Upper bounds of the buckets of a histogram, without `+Inf`.
#[derive(Clone, Copy, Debug)]
pub struct Buckets(pub &'static [f64]);

impl RegistryExt for Registry {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.register(name, help, metric.clone());
        metric
    }
}

impl<L: EncodeLabelSet + Clone + Hash + Eq + Debug + Send + Sync + 'static> Labels for L {}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl Metrics {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the registry without a prefix, for families whose whole name is given elsewhere.
    pub fn root(&mut self) -> &mut Registry {
        &mut self.root
    }

    /// Creates a sub-registry for one crate, whose names start with `prefix` and an underscore.
    pub fn sub(&mut self, prefix: &str) -> &mut Registry {
        self.root.sub_registry_with_prefix(prefix)
    }

    /// Registers `process_*` and `kubevitals_build_info`.
    #[must_use]
    pub fn with_process(mut self, build: &BuildInfo) -> Self {
        self.root
            .register_collector(Box::new(ProcessCollector::new()));
        build.register(self.sub("kubevitals"));
        self
    }

    /// Registers histograms that are not in the registry of `prometheus_client`.
    pub(crate) fn add_histograms(&mut self, source: Arc<dyn HistogramSource>) {
        self.histograms.push(source);
    }

    /// Ends registration.
    pub fn freeze(self) -> SharedRegistry {
        SharedRegistry {
            root: Arc::new(self.root),
            histograms: self.histograms.into(),
        }
    }
}

impl SharedRegistry {
    /// Encodes the current values of all metrics in this format.
    pub fn encode(&self, format: Format) -> Result<Vec<u8>, TelemetryError> {
        Ok(render(format, &self.open_metrics()?, &self.histograms))
    }

    /// Chooses a format by the `Accept` headers of a request.
    ///
    /// Returns protobuf only to a client that accepts it, and only if there are native histograms,
    /// which the other formats lack. All other responses are text, which people can read.
    pub fn negotiate(&self, headers: &HeaderMap) -> Format {
        let has_native = |source: &Arc<dyn HistogramSource>| source.spec().native.is_some();
        if self.histograms.iter().any(has_native) {
            Format::negotiate_with_protobuf(headers)
        } else {
            Format::negotiate(headers)
        }
    }

    /// Lists `type name` of all families that have a series, named as in the Prometheus format, for
    /// tests that keep the metric names of a crate in a snapshot.
    pub fn families(&self) -> Result<Vec<String>, TelemetryError> {
        let mut names = family_names(&self.open_metrics()?);
        let own = self.histograms.iter().filter(|source| !source.is_empty());
        names.extend(own.map(|source| format!("histogram {}", source.spec().name)));
        names.sort_by(|a, b| a.split(' ').next_back().cmp(&b.split(' ').next_back()));
        Ok(names)
    }

    /// Returns whether there are families that grow with the size of the cluster.
    pub(crate) fn may_be_large(&self) -> bool {
        !self.histograms.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn histograms(&self) -> &[Arc<dyn HistogramSource>] {
        &self.histograms
    }

    fn open_metrics(&self) -> Result<String, TelemetryError> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.root)
            .map_err(TelemetryError::Encode)?;
        Ok(text)
    }
}

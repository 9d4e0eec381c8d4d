//! The series of one family, which can be removed.
//!
//! A family of `prometheus_client` removes one series by its labels; here all series of the groups
//! that were idle leave at once.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use kubevitals_telemetry::{HistogramFamily, Metrics};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::families::FamilyInfo;
use crate::labels::{Group, SeriesLabels};

/// A family of counters.
#[derive(Debug)]
pub(crate) struct CounterSet {
    info: &'static FamilyInfo,
    series: CounterSeries,
}

/// A family of histograms.
#[derive(Debug)]
pub(crate) struct HistogramSet {
    info: &'static FamilyInfo,
    family: HistogramFamily<SeriesLabels>,
}

/// A family of gauges, all of which are set together.
#[derive(Debug)]
pub(crate) struct GaugeSet {
    series: GaugeSeries,
}

#[derive(Debug, Clone, Default)]
struct CounterSeries(Arc<Mutex<HashMap<SeriesLabels, u64>>>);

#[derive(Debug, Clone, Default)]
struct GaugeSeries(Arc<Mutex<Vec<(SeriesLabels, f64)>>>);

impl CounterSet {
    pub(crate) fn register(info: &'static FamilyInfo, metrics: &mut Metrics) -> Self {
        let series = CounterSeries::default();
        metrics
            .root()
            .register(info.registered_name(), info.help, series.clone());
        Self { info, series }
    }

    /// Adds no series for zero.
    pub(crate) fn add(&self, group: Option<&Arc<Group>>, value: Option<&'static str>, times: u64) {
        if times > 0 {
            let labels = SeriesLabels {
                group: group.map(Arc::clone),
                own: self.info.label.zip(value),
            };
            let mut series = locked(&self.series.0);
            let count = series.entry(labels).or_default();
            *count = count.saturating_add(times);
        }
    }

    pub(crate) fn retain(&self, keep: impl Fn(&SeriesLabels) -> bool) {
        locked(&self.series.0).retain(|labels, _| keep(labels));
    }
}

impl HistogramSet {
    pub(crate) fn register(
        info: &'static FamilyInfo,
        metrics: &mut Metrics,
        is_native: bool,
    ) -> Self {
        Self {
            info,
            family: HistogramFamily::register(metrics, info.histogram(is_native)),
        }
    }

    pub(crate) fn observe(&self, group: &Arc<Group>, value: Option<&'static str>, took: Duration) {
        self.observe_times(group, value, took, 1);
    }

    pub(crate) fn observe_times(
        &self,
        group: &Arc<Group>,
        value: Option<&'static str>,
        took: Duration,
        times: u64,
    ) {
        let labels = SeriesLabels {
            group: Some(Arc::clone(group)),
            own: self.info.label.zip(value),
        };
        self.family.observe_times(&labels, took, times);
    }

    pub(crate) fn retain(&self, keep: impl Fn(&SeriesLabels) -> bool) {
        self.family.retain(keep);
    }
}

impl GaugeSet {
    pub(crate) fn register(info: &'static FamilyInfo, metrics: &mut Metrics) -> Self {
        let series = GaugeSeries::default();
        metrics
            .root()
            .register(info.registered_name(), info.help, series.clone());
        Self { series }
    }

    /// Replaces all series.
    pub(crate) fn set(&self, series: Vec<(SeriesLabels, f64)>) {
        *locked(&self.series.0) = series;
    }
}

impl EncodeMetric for CounterSeries {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (labels, count) in &*locked(&self.0) {
            ConstCounter::new(*count).encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }

    fn is_empty(&self) -> bool {
        locked(&self.0).is_empty()
    }
}

impl EncodeMetric for GaugeSeries {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (labels, value) in &*locked(&self.0) {
            ConstGauge::new(*value).encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        locked(&self.0).is_empty()
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

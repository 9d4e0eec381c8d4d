//! A family of series that is replaced as a whole, so that series that have ended are gone.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Series of one family beyond this number are left out, and counted.
pub(super) const MAX_SERIES: usize = 20_000;

/// The descriptor of a family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    Counter,
}

/// A family. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Table {
    descriptor: Descriptor,
    rows: Arc<Mutex<Vec<Row>>>,
}

/// One series: the values of the labels of its family, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) labels: Box<[Arc<str>]>,
    pub(super) value: u64,
}

impl Table {
    pub(super) fn new(descriptor: Descriptor) -> Self {
        Self {
            descriptor,
            rows: Arc::default(),
        }
    }

    /// Replaces all series. Returns how many did not fit.
    pub(super) fn replace(&self, rows: impl IntoIterator<Item = Row>) -> u64 {
        let mut all: Vec<Row> = Vec::new();
        let mut dropped = 0;
        for row in rows {
            debug_assert_eq!(row.labels.len(), self.descriptor.labels.len());
            if all.len() < MAX_SERIES {
                all.push(row);
            } else {
                dropped += 1;
            }
        }
        *self.rows.lock() = all;
        dropped
    }

    pub(super) fn clear(&self) {
        self.rows.lock().clear();
    }
}

impl Row {
    pub(super) fn new<const N: usize>(labels: [&str; N], value: u64) -> Self {
        Self {
            labels: labels.map(Arc::from).into(),
            value,
        }
    }
}

impl Collector for Table {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows = self.rows.lock().clone();
        if rows.is_empty() {
            return Ok(());
        }
        let Descriptor {
            name,
            help,
            kind,
            labels,
        } = self.descriptor;
        let metric_type = match kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
        };
        let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
        for row in &rows {
            let values = row.labels.iter().map(|value| &**value);
            let labels: Vec<(&str, &str)> = labels.iter().copied().zip(values).collect();
            let series = family.encode_family(&labels)?;
            match kind {
                Kind::Gauge => ConstGauge::new(number(row.value)).encode(series)?,
                Kind::Counter => ConstCounter::new(row.value).encode(series)?,
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "no count here reaches 2^53")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

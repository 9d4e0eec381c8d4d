//! A collector of the crate `prometheus-client`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::{Kind, Registry, Value};

type NoLabels = [(&'static str, &'static str); 0];

impl Collector for Registry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in self.gather() {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let help = format!("{}.", family.help);
            let mut metrics = encoder.encode_descriptor(family.name, &help, None, kind)?;
            for series in family.series {
                if series.labels.is_empty() {
                    encode(metrics, &series.value)?;
                    break;
                }
                encode(metrics.encode_family(&series.labels)?, &series.value)?;
            }
        }
        Ok(())
    }
}

fn encode(mut encoder: MetricEncoder<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Counter(value) => encoder.encode_counter(value, None::<&Exemplar<NoLabels, u64>>),
        Value::Integer(value) => encoder.encode_gauge(value),
        Value::Gauge(value) => encoder.encode_gauge(value),
        Value::Histogram(buckets) => {
            let (sum, count) = (buckets.sum, buckets.count());
            encoder.encode_histogram::<NoLabels>(sum, count, &buckets.counts, None)
        }
    }
}

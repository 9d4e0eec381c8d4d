//! A collector of the crate `prometheus`.

use prometheus::core::{Collector, Desc};
use prometheus::proto;

use super::{Buckets, Kind, MetricFamily, Registry, Series, Value};

impl Collector for Registry {
    /// None: the families come with their first series.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        self.gather().into_iter().map(family).collect()
    }
}

fn family(family: MetricFamily) -> proto::MetricFamily {
    let mut converted = proto::MetricFamily::default();
    let (suffix, kind) = match family.kind {
        Kind::Counter => ("_total", proto::MetricType::COUNTER),
        Kind::Gauge => ("", proto::MetricType::GAUGE),
        Kind::Histogram => ("", proto::MetricType::HISTOGRAM),
    };
    converted.set_name(format!("{}{suffix}", family.name));
    converted.set_help(format!("{}.", family.help));
    converted.set_field_type(kind);
    converted.set_metric(family.series.into_iter().map(metric).collect());
    converted
}

fn metric(series: Series) -> proto::Metric {
    let labels = series.labels.into_iter().map(|(name, value)| {
        let mut label = proto::LabelPair::default();
        label.set_name(name.to_owned());
        label.set_value(value);
        label
    });
    let mut metric = proto::Metric::from_label(labels.collect());
    let gauge = |value| {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        gauge
    };
    match series.value {
        Value::Counter(value) => {
            let mut counter = proto::Counter::default();
            counter.set_value(float(value));
            metric.set_counter(counter);
        }
        Value::Integer(value) => metric.set_gauge(gauge(integer(value))),
        Value::Gauge(value) => metric.set_gauge(gauge(value)),
        Value::Histogram(buckets) => metric.set_histogram(histogram(&buckets)),
    }
    metric
}

fn histogram(buckets: &Buckets) -> proto::Histogram {
    let mut total = 0;
    let counts = buckets.counts.iter().map(|(bound, count)| {
        total += count;
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(total);
        bucket
    });
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(counts.collect());
    histogram.set_sample_count(buckets.count());
    histogram.set_sample_sum(buckets.sum);
    histogram
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the library has floats only: counts above 2^53 are rounded"
)]
fn float(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the library has floats only: values above 2^53 are rounded"
)]
fn integer(value: i64) -> f64 {
    value as f64
}

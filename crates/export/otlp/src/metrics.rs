//! Data points as OTLP metrics.
//!
//! A request has one `ResourceMetrics` for each set of attributes about the process, the cluster
//! and the node; all other attributes are of points. Points of one metric are together, in their
//! order.

use std::time::Duration;

use kubevitals_protobuf::{put_double, put_fixed64, put_message, put_str, put_uint};
use kubevitals_sink::{
    Attributes, DataPoint, Distribution, ExportError, Exporter, Kind, Measurement, Number,
    RetryPolicy, SinkConfig,
};

use crate::client::OtlpClient;
use crate::encode::{SCHEMA, nanoseconds, put_attribute, put_attributes};
use crate::resource::Resource;

/// Field numbers of the messages of opentelemetry-proto.
mod field {
    pub(super) const REQUEST_RESOURCE_METRICS: u32 = 1;
    pub(super) const RESOURCE: u32 = 1;
    pub(super) const RESOURCE_ATTRIBUTES: u32 = 1;
    pub(super) const SCOPE_METRICS: u32 = 2;
    pub(super) const SCOPE: u32 = 1;
    pub(super) const SCOPE_NAME: u32 = 1;
    pub(super) const SCOPE_VERSION: u32 = 2;
    pub(super) const METRICS: u32 = 2;
    pub(super) const SCHEMA_URL: u32 = 3;
    pub(super) const NAME: u32 = 1;
    pub(super) const UNIT: u32 = 3;
    pub(super) const GAUGE: u32 = 5;
    pub(super) const SUM: u32 = 7;
    pub(super) const HISTOGRAM: u32 = 9;
    /// Of a gauge, a sum and a histogram.
    pub(super) const DATA_POINTS: u32 = 1;
    pub(super) const TEMPORALITY: u32 = 2;
    pub(super) const IS_MONOTONIC: u32 = 3;
    /// Of points of numbers and of histograms.
    pub(super) const START: u32 = 2;
    pub(super) const TIME: u32 = 3;
    pub(super) const NUMBER_DOUBLE: u32 = 4;
    pub(super) const NUMBER_INT: u32 = 6;
    pub(super) const NUMBER_ATTRIBUTES: u32 = 7;
    pub(super) const COUNT: u32 = 4;
    pub(super) const SUM_OF_VALUES: u32 = 5;
    pub(super) const BUCKET_COUNTS: u32 = 6;
    pub(super) const BOUNDS: u32 = 7;
    pub(super) const EXEMPLARS: u32 = 8;
    pub(super) const HISTOGRAM_ATTRIBUTES: u32 = 9;
    pub(super) const EXEMPLAR_TIME: u32 = 2;
    pub(super) const EXEMPLAR_DOUBLE: u32 = 3;
    pub(super) const EXEMPLAR_ATTRIBUTES: u32 = 7;
}

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// Prefixes of attributes that are about the sender and not about a point.
const RESOURCE_PREFIXES: [&str; 3] = ["service.", "k8s.cluster.", "k8s.node."];

/// An attribute of the convention for metrics of nodes, which is about the point.
const CONDITION_PREFIX: &str = "k8s.node.condition.";

/// Sends data points. Use it with a sink of [`metric_sink_config`].
#[derive(Debug)]
pub struct MetricExporter {
    client: OtlpClient,
    resource: Resource,
}

/// Points of one resource, in the order of their metrics.
struct ResourceGroup<'p> {
    attributes: Vec<(&'p str, &'p str)>,
    metrics: Vec<Metric<'p>>,
}

/// Points of one metric.
struct Metric<'p> {
    first: &'p DataPoint,
    points: Vec<&'p DataPoint>,
}

/// The limits of a queue of data points: those of OpenTelemetry's batch processors, and what the
/// Collector's own exporters do about failures.
pub fn metric_sink_config() -> SinkConfig {
    SinkConfig {
        name: "otlp-metrics",
        capacity: 100_000,
        max_batch: 4_096,
        linger: Duration::from_secs(2),
        retry: RetryPolicy::default(),
    }
}

impl MetricExporter {
    pub fn new(client: OtlpClient, resource: Resource) -> Self {
        Self { client, resource }
    }
}

impl Exporter<DataPoint> for MetricExporter {
    async fn export(&mut self, batch: &[DataPoint]) -> Result<(), ExportError> {
        let message = metrics_request(&self.resource, batch);
        self.client.send(message, batch.len() as u64).await
    }
}

/// Returns an `ExportMetricsServiceRequest`.
pub fn metrics_request(resource: &Resource, points: &[DataPoint]) -> Vec<u8> {
    request_of_version(env!("CARGO_PKG_VERSION"), resource, points)
}

fn request_of_version(version: &str, resource: &Resource, points: &[DataPoint]) -> Vec<u8> {
    let mut out = Vec::with_capacity(points.len() * 128 + 1024);
    for group in grouped(points) {
        put_message(&mut out, field::REQUEST_RESOURCE_METRICS, |out| {
            put_message(out, field::RESOURCE, |out| {
                put_resource(out, resource, &group.attributes);
            });
            put_message(out, field::SCOPE_METRICS, |out| {
                put_message(out, field::SCOPE, |out| {
                    put_str(out, field::SCOPE_NAME, "kubevitals");
                    put_str(out, field::SCOPE_VERSION, version);
                });
                for metric in &group.metrics {
                    put_message(out, field::METRICS, |out| put_metric(out, metric));
                }
                put_str(out, field::SCHEMA_URL, SCHEMA);
            });
            put_str(out, field::SCHEMA_URL, SCHEMA);
        });
    }
    out
}

/// Groups points by resource and then by metric, each in the order of its first point.
fn grouped(points: &[DataPoint]) -> Vec<ResourceGroup<'_>> {
    let mut groups: Vec<ResourceGroup<'_>> = Vec::new();
    let mut group_of = std::collections::HashMap::new();
    let mut metric_of = std::collections::HashMap::new();
    for point in points {
        let attributes: Vec<(&str, &str)> = point
            .attributes
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .filter(|(name, _)| is_of_resource(name))
            .collect();
        let group_at = *group_of.entry(attributes.clone()).or_insert(groups.len());
        if group_at == groups.len() {
            groups.push(ResourceGroup {
                attributes,
                metrics: Vec::new(),
            });
        }
        let Some(group) = groups.get_mut(group_at) else {
            continue;
        };
        let key = (group_at, &*point.name, &*point.unit, point.kind());
        let metric_at = *metric_of.entry(key).or_insert(group.metrics.len());
        match group.metrics.get_mut(metric_at) {
            Some(metric) => metric.points.push(point),
            None => group.metrics.push(Metric {
                first: point,
                points: vec![point],
            }),
        }
    }
    groups
}

fn is_of_resource(name: &str) -> bool {
    let is_of_point = name.starts_with(CONDITION_PREFIX);
    !is_of_point
        && RESOURCE_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// The attributes of points are more precise than those of the process.
fn put_resource(out: &mut Vec<u8>, resource: &Resource, attributes: &[(&str, &str)]) {
    let is_replaced = |key: &str| attributes.iter().any(|(name, _)| *name == key);
    let own = resource.attributes().iter();
    let own: Vec<_> = own.filter(|one| !is_replaced(&one.key)).cloned().collect();
    put_attributes(out, field::RESOURCE_ATTRIBUTES, &own);
    for (name, value) in attributes {
        put_attribute(out, field::RESOURCE_ATTRIBUTES, name, value);
    }
}

fn put_metric(out: &mut Vec<u8>, metric: &Metric<'_>) {
    put_str(out, field::NAME, &metric.first.name);
    put_str(out, field::UNIT, &metric.first.unit);
    let kind = metric.first.kind();
    let number = match kind {
        Kind::Gauge => field::GAUGE,
        Kind::Counter => field::SUM,
        Kind::Distribution => field::HISTOGRAM,
    };
    put_message(out, number, |out| {
        for point in &metric.points {
            put_message(out, field::DATA_POINTS, |out| put_point(out, point));
        }
        if kind != Kind::Gauge {
            put_uint(out, field::TEMPORALITY, CUMULATIVE);
        }
        if kind == Kind::Counter {
            put_uint(out, field::IS_MONOTONIC, 1);
        }
    });
}

fn put_point(out: &mut Vec<u8>, point: &DataPoint) {
    if let Some(start) = point.start() {
        put_fixed64(out, field::START, nanoseconds(start));
    }
    put_fixed64(out, field::TIME, nanoseconds(point.timestamp));
    match &point.measurement {
        Measurement::Gauge(number) | Measurement::Counter { total: number, .. } => {
            put_point_attributes(out, field::NUMBER_ATTRIBUTES, &point.attributes);
            // Choices come last, as Go writes them.
            match number {
                Number::Float(number) => put_double(out, field::NUMBER_DOUBLE, *number),
                // `sfixed64`
                Number::Integer(number) => {
                    put_fixed64(out, field::NUMBER_INT, number.cast_unsigned());
                }
            }
        }
        Measurement::Distribution { value, .. } => {
            put_distribution(out, value);
            put_point_attributes(out, field::HISTOGRAM_ATTRIBUTES, &point.attributes);
        }
    }
}

fn put_distribution(out: &mut Vec<u8>, value: &Distribution) {
    put_fixed64(out, field::COUNT, value.count());
    put_double(out, field::SUM_OF_VALUES, value.sum);
    put_message(out, field::BUCKET_COUNTS, |out| {
        for count in value.bucket_counts() {
            out.extend_from_slice(&count.to_le_bytes());
        }
    });
    if !value.bounds().is_empty() {
        put_message(out, field::BOUNDS, |out| {
            for bound in value.bounds() {
                out.extend_from_slice(&bound.to_le_bytes());
            }
        });
    }
    for exemplar in &value.exemplars {
        put_message(out, field::EXEMPLARS, |out| {
            put_fixed64(out, field::EXEMPLAR_TIME, nanoseconds(exemplar.timestamp));
            for (name, value) in exemplar.attributes.iter() {
                put_attribute(out, field::EXEMPLAR_ATTRIBUTES, name, value);
            }
            put_double(out, field::EXEMPLAR_DOUBLE, exemplar.value);
        });
    }
}

fn put_point_attributes(out: &mut Vec<u8>, number: u32, attributes: &Attributes) {
    for (name, value) in attributes.iter().filter(|(name, _)| !is_of_resource(name)) {
        put_attribute(out, number, name, value);
    }
}

#[cfg(test)]
mod tests;

//! Data points as time series: resource, labels, interval and value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

use hashbrown::DefaultHashBuilder;
use kubevitals_sink::{Attributes, DataPoint, Distribution, Kind, Measurement, Number};
use serde_json::{Value, json};

use crate::metrics::Code;
use crate::settings::Place;

/// Maximum number of labels of a metric.
const MAX_LABELS: usize = 30;

/// Maximum length of the key of a label.
const MAX_KEY: usize = 100;

/// Maximum length of the value of a label, in bytes.
const MAX_VALUE: usize = 1024;

/// Maximum number of buckets of a distribution.
const MAX_BUCKETS: usize = 200;

mod attribute {
    pub(super) const CLUSTER: &str = "k8s.cluster.name";
    pub(super) const NODE: &str = "k8s.node.name";
    pub(super) const NAMESPACE: &str = "k8s.namespace.name";
    pub(super) const POD: &str = "k8s.pod.name";
    pub(super) const CONTAINER: &str = "k8s.container.name";
}

/// The point of one series, as the interface has it.
#[derive(Debug)]
pub(crate) struct Series {
    /// Equal for points of one series. Seeded, so that equal ones of two series are an accident.
    pub(crate) key: u64,
    /// The keys of its labels.
    pub(crate) label_keys: Vec<String>,
    pub(crate) json: Value,
}

struct Resource<'p> {
    kind: &'static str,
    labels: BTreeMap<&'static str, Cow<'p, str>>,
    /// The attributes that are no labels of the metric, because the resource has them.
    used: &'static [&'static str],
}

/// Converts a point; an error is the reason why the backend would not take it.
pub(crate) fn series(
    prefix: &str,
    place: &Place,
    hasher: &DefaultHashBuilder,
    point: &DataPoint,
) -> Result<Series, Code> {
    let resource = resource(place, &point.attributes);
    let labels = labels(&point.attributes, resource.used)?;
    let mut interval = json!({"endTime": point.timestamp.rfc3339_millis().as_str()});
    if let Some(start) = point.start() {
        if start >= point.timestamp {
            return Err(Code::Interval);
        }
        if let Some(fields) = interval.as_object_mut() {
            let start = json!(start.rfc3339_millis().as_str());
            fields.insert("startTime".to_owned(), start);
        }
    }
    let key = hasher.hash_one((&*point.name, resource.kind, &resource.labels, &labels));
    let mut json = json!({
        "metric": {"type": metric_type(prefix, &point.name), "labels": labels},
        "resource": {"type": resource.kind, "labels": resource.labels},
        "metricKind": kind_name(point.kind()),
        "valueType": value_type(&point.measurement),
        "points": [{"interval": interval, "value": value(&point.measurement)?}],
    });
    if let Some(fields) = json.as_object_mut().filter(|_| !point.unit.is_empty()) {
        fields.insert("unit".to_owned(), json!(&*point.unit));
    }
    Ok(Series {
        key,
        label_keys: labels.into_keys().collect(),
        json,
    })
}

pub(crate) fn metric_type(prefix: &str, name: &str) -> String {
    format!("{prefix}/{name}")
}

pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Gauge => "GAUGE",
        Kind::Counter | Kind::Distribution => "CUMULATIVE",
    }
}

pub(crate) fn value_type(measurement: &Measurement) -> &'static str {
    match measurement {
        Measurement::Gauge(number) | Measurement::Counter { total: number, .. } => match number {
            Number::Integer(_) => "INT64",
            Number::Float(_) => "DOUBLE",
        },
        Measurement::Distribution { .. } => "DISTRIBUTION",
    }
}

/// The resource that the attributes name, as precisely as they do.
fn resource<'p>(place: &'p Place, attributes: &'p Attributes) -> Resource<'p> {
    let get = |name| {
        let value = attributes.get(name).map(|value| &**value);
        value.filter(|value| !value.is_empty()).map(cut)
    };
    let mut labels = BTreeMap::from([
        ("project_id", Cow::Borrowed(&*place.project)),
        ("location", Cow::Borrowed(&*place.location)),
    ]);
    let node = get(attribute::NODE);
    let cluster = get(attribute::CLUSTER).or(place.cluster.as_deref().map(Cow::Borrowed));
    let Some(cluster) = cluster else {
        labels.insert("namespace", Cow::Borrowed(""));
        let Some(node) = node else {
            labels.insert("job", Cow::Borrowed("kubevitals"));
            labels.insert("task_id", Cow::Borrowed(&*place.instance));
            return Resource {
                kind: "generic_task",
                labels,
                used: &[],
            };
        };
        labels.insert("node_id", node);
        return Resource {
            kind: "generic_node",
            labels,
            used: &[attribute::NODE],
        };
    };
    labels.insert("cluster_name", cluster);
    let pod = get(attribute::NAMESPACE).zip(get(attribute::POD));
    let (kind, used): (_, &[_]) = match (pod, node) {
        (Some((namespace, pod)), _) => {
            labels.insert("namespace_name", namespace);
            labels.insert("pod_name", pod);
            match get(attribute::CONTAINER) {
                Some(container) => {
                    labels.insert("container_name", container);
                    let used = &[
                        attribute::CLUSTER,
                        attribute::NAMESPACE,
                        attribute::POD,
                        attribute::CONTAINER,
                    ];
                    ("k8s_container", used)
                }
                None => (
                    "k8s_pod",
                    &[attribute::CLUSTER, attribute::NAMESPACE, attribute::POD],
                ),
            }
        }
        (None, Some(node)) => {
            labels.insert("node_name", node);
            ("k8s_node", &[attribute::CLUSTER, attribute::NODE])
        }
        (None, None) => ("k8s_cluster", &[attribute::CLUSTER]),
    };
    Resource { kind, labels, used }
}

/// The labels of the metric: the attributes that the resource has not.
fn labels<'p>(
    attributes: &'p Attributes,
    used: &[&str],
) -> Result<BTreeMap<String, Cow<'p, str>>, Code> {
    let mut labels = BTreeMap::new();
    for (name, value) in attributes.iter() {
        if used.contains(&&**name) {
            continue;
        }
        let key = label_key(name).ok_or(Code::Labels)?;
        if labels.insert(key, cut(value)).is_some() {
            return Err(Code::Labels);
        }
    }
    if labels.len() > MAX_LABELS {
        return Err(Code::Labels);
    }
    Ok(labels)
}

/// A key of letters, digits and underscores that begins with a letter; `None` if it is too long.
fn label_key(name: &str) -> Option<String> {
    let mut key: String = name
        .chars()
        .map(|char| {
            if char.is_ascii_alphanumeric() {
                char
            } else {
                '_'
            }
        })
        .collect();
    if !key.starts_with(|first: char| first.is_ascii_alphabetic()) {
        key.insert_str(0, "key_");
    }
    (key.len() <= MAX_KEY).then_some(key)
}

fn cut(value: &str) -> Cow<'_, str> {
    let end = value.floor_char_boundary(MAX_VALUE);
    Cow::Borrowed(value.get(..end).unwrap_or_default())
}

fn value(measurement: &Measurement) -> Result<Value, Code> {
    match measurement {
        Measurement::Gauge(number) | Measurement::Counter { total: number, .. } => match number {
            // Numbers of 64 bits are strings in JSON.
            Number::Integer(number) => Ok(json!({"int64Value": number.to_string()})),
            Number::Float(number) if number.is_finite() => Ok(json!({"doubleValue": number})),
            Number::Float(_) => Err(Code::Value),
        },
        Measurement::Distribution { value, .. } => {
            Ok(json!({"distributionValue": distribution(value)?}))
        }
    }
}

fn distribution(value: &Distribution) -> Result<Value, Code> {
    let counts = value.bucket_counts();
    if counts.len() > MAX_BUCKETS || !value.sum.is_finite() {
        return Err(Code::Value);
    }
    let count = value.count();
    #[expect(clippy::cast_precision_loss, reason = "a mean is not exact")]
    let mean = if count == 0 {
        0.0
    } else {
        value.sum / count as f64
    };
    let mut json = json!({"count": count.to_string(), "mean": mean});
    let Some(fields) = json.as_object_mut() else {
        return Ok(json);
    };
    // Without a bound there is one bucket, which the count says all of.
    if !value.bounds().is_empty() {
        let bounds = json!({"explicitBuckets": {"bounds": value.bounds()}});
        fields.insert("bucketOptions".to_owned(), bounds);
        let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
        fields.insert("bucketCounts".to_owned(), json!(counts));
    }
    let mut exemplars: Vec<_> = value
        .exemplars
        .iter()
        .filter(|exemplar| exemplar.value.is_finite())
        .take(counts.len())
        .collect();
    exemplars.sort_by(|a, b| a.value.total_cmp(&b.value));
    if !exemplars.is_empty() {
        let exemplars: Vec<Value> = exemplars
            .into_iter()
            .map(|exemplar| {
                let labels: BTreeMap<&str, Cow<'_, str>> = exemplar
                    .attributes
                    .iter()
                    .map(|(name, value)| (&**name, cut(value)))
                    .collect();
                let mut json = json!({
                    "value": exemplar.value,
                    "timestamp": exemplar.timestamp.rfc3339_millis().as_str(),
                });
                if let Some(fields) = json.as_object_mut().filter(|_| !labels.is_empty()) {
                    let dropped = json!({
                        "@type": "type.googleapis.com/google.monitoring.v3.DroppedLabels",
                        "label": labels,
                    });
                    fields.insert("attachments".to_owned(), json!([dropped]));
                }
                json
            })
            .collect();
        fields.insert("exemplars".to_owned(), json!(exemplars));
    }
    Ok(json)
}

#[cfg(test)]
mod tests;

//! The rules of `timeSeries.create`, as Google documents them or as its errors tell.

use std::collections::BTreeMap;
use std::time::Duration;

use kubevitals_model::Timestamp;
use serde_json::Value as Json;

use super::monitoring::WrittenPoint;

/// The least distance of two points of a series.
const SAMPLING_PERIOD: Duration = Duration::from_secs(5);

/// The oldest end of a point.
const MAX_AGE: Duration = Duration::from_hours(25);

/// How far ahead the end of a point may be.
const MAX_AHEAD: Duration = Duration::from_mins(5);

const MAX_LABELS: usize = 30;
const MAX_KEY: usize = 100;
const MAX_VALUE: usize = 1024;
const MAX_BUCKETS: usize = 200;

pub(super) const ORDER: &str = "Points must be written in order. One or more of the points specified had an older end time than the most recent point.";
pub(super) const START: &str = "Points must be written in order. One or more of the points specified had an older start time than the most recent point.";
pub(super) const RATE: &str = "One or more points were written more frequently than the maximum sampling period configured for the metric.";
pub(super) const INTERNAL: &str = "Internal error encountered. Please retry after a few seconds. If internal errors persist, contact support at https://cloud.google.com/support/docs.";
pub(super) const DUPLICATE: &str =
    "Duplicate TimeSeries encountered. Only one point can be written per TimeSeries per request.";

/// What is known of a series.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) start: Option<Timestamp>,
    pub(super) end: Timestamp,
}

/// A monitored resource and its labels.
const RESOURCES: &[(&str, &[&str])] = &[
    ("k8s_cluster", &["cluster_name", "location", "project_id"]),
    (
        "k8s_node",
        &["cluster_name", "location", "node_name", "project_id"],
    ),
    (
        "k8s_pod",
        &[
            "cluster_name",
            "location",
            "namespace_name",
            "pod_name",
            "project_id",
        ],
    ),
    (
        "k8s_container",
        &[
            "cluster_name",
            "container_name",
            "location",
            "namespace_name",
            "pod_name",
            "project_id",
        ],
    ),
    (
        "generic_node",
        &["location", "namespace", "node_id", "project_id"],
    ),
    (
        "generic_task",
        &["job", "location", "namespace", "project_id", "task_id"],
    ),
];

/// Reads a series with one point; an error is the reason why it is refused.
pub(super) fn read(series: &Json, project: &str, now: Timestamp) -> Result<WrittenPoint, String> {
    let points = series.get("points").and_then(Json::as_array);
    let Some([point]) = points.map(Vec::as_slice) else {
        return Err("One point must be written per TimeSeries.".to_owned());
    };
    let text = |value: &Json, path: &str| {
        let found = value.pointer(path).and_then(Json::as_str);
        found.unwrap_or_default().to_owned()
    };
    let time = |path: &str| {
        let found = text(point, path);
        if found.is_empty() {
            return Ok(None);
        }
        let parsed: Result<Timestamp, _> = found.parse();
        parsed
            .map(Some)
            .map_err(|_| format!("Invalid time: {found}."))
    };
    let written = WrittenPoint {
        metric_type: text(series, "/metric/type"),
        metric_labels: labels(series.pointer("/metric/labels"))?,
        resource_type: text(series, "/resource/type"),
        resource_labels: labels(series.pointer("/resource/labels"))?,
        kind: text(series, "/metricKind"),
        value_type: text(series, "/valueType"),
        unit: text(series, "/unit"),
        start: time("/interval/startTime")?,
        end: time("/interval/endTime")?.ok_or("The end time is required.")?,
        value: point.get("value").cloned().unwrap_or_default(),
    };
    check_names(&written, project)?;
    check_interval(&written, now)?;
    check_value(&written)?;
    Ok(written)
}

/// Checks a point against the last of its series.
pub(super) fn follow(point: &WrittenPoint, last: Option<&Known>) -> Result<(), String> {
    let Some(last) = last else {
        return Ok(());
    };
    if point.end <= last.end {
        return Err(ORDER.to_owned());
    }
    let is_near = point.end.since(last.end) < Some(SAMPLING_PERIOD);
    if is_near {
        return Err(RATE.to_owned());
    }
    // A new start is a reset, which begins after the last point.
    if point.kind == "CUMULATIVE" && point.start != last.start && point.start <= Some(last.end) {
        return Err(START.to_owned());
    }
    Ok(())
}

fn labels(value: Option<&Json>) -> Result<BTreeMap<String, String>, String> {
    let Some(value) = value else {
        return Ok(BTreeMap::new());
    };
    let labels = value.as_object().ok_or("Labels must be an object.")?;
    let label = |(key, value): (&String, &Json)| {
        let value = value.as_str().ok_or("Values of labels must be strings.")?;
        if value.len() > MAX_VALUE {
            return Err(format!("The value of label {key} is too long."));
        }
        Ok((key.clone(), value.to_owned()))
    };
    labels.iter().map(label).collect()
}

fn check_names(point: &WrittenPoint, project: &str) -> Result<(), String> {
    let prefixes = ["custom.googleapis.com/", "workload.googleapis.com/"];
    let name = prefixes
        .iter()
        .find_map(|prefix| point.metric_type.strip_prefix(prefix));
    if name.is_none_or(|name| name.is_empty() || name.split('/').any(str::is_empty)) {
        return Err(format!("Unrecognized metric type: {}.", point.metric_type));
    }
    let known = RESOURCES
        .iter()
        .find(|(kind, _)| *kind == point.resource_type);
    let Some((_, keys)) = known else {
        return Err(format!(
            "Unrecognized monitored resource type: {}.",
            point.resource_type
        ));
    };
    if !point.resource_labels.keys().eq(keys.iter()) {
        return Err(format!(
            "The set of resource labels is incomplete or wrong: {:?}.",
            point.resource_labels
        ));
    }
    if point.resource_labels.get("project_id").map(String::as_str) != Some(project) {
        return Err("The resource is of another project.".to_owned());
    }
    if point.metric_labels.len() > MAX_LABELS {
        return Err(format!("A metric has at most {MAX_LABELS} labels."));
    }
    let is_key = |key: &str| {
        key.len() <= MAX_KEY
            && key.starts_with(|first: char| first.is_ascii_alphabetic())
            && key
                .chars()
                .all(|char| char.is_ascii_alphanumeric() || char == '_')
    };
    match point.metric_labels.keys().find(|key| !is_key(key)) {
        Some(key) => Err(format!("Invalid label key: {key}.")),
        None => Ok(()),
    }
}

fn check_interval(point: &WrittenPoint, now: Timestamp) -> Result<(), String> {
    if now.since(point.end) > Some(MAX_AGE) {
        return Err("The end time must not be more than 25 hours in the past.".to_owned());
    }
    if point.end.since(now) > Some(MAX_AHEAD) {
        return Err("The end time must not be more than 5 minutes in the future.".to_owned());
    }
    match (point.kind.as_str(), point.start) {
        ("GAUGE", None) => Ok(()),
        ("GAUGE", Some(start)) if start == point.end => Ok(()),
        ("CUMULATIVE", Some(start)) if start < point.end => Ok(()),
        ("GAUGE" | "CUMULATIVE", _) => {
            Err("The start time must be before the end time, or absent for a gauge.".to_owned())
        }
        (kind, _) => Err(format!("Metric kind {kind} cannot be written.")),
    }
}

fn check_value(point: &WrittenPoint) -> Result<(), String> {
    let value = point.value.as_object().filter(|value| value.len() == 1);
    let found = value.and_then(|value| value.iter().next());
    let is_valid = match (point.value_type.as_str(), found) {
        ("INT64", Some((name, value))) => {
            let number = value.as_str().and_then(|text| text.parse::<i64>().ok());
            name == "int64Value" && number.is_some()
        }
        ("DOUBLE", Some((name, value))) => name == "doubleValue" && value.is_f64(),
        ("BOOL", Some((name, value))) => name == "boolValue" && value.is_boolean(),
        ("DISTRIBUTION", Some((name, value))) => {
            return if name == "distributionValue" {
                check_distribution(value)
            } else {
                Err("The value is no distribution.".to_owned())
            };
        }
        _ => false,
    };
    if is_valid {
        Ok(())
    } else {
        Err(format!("The value is not of type {}.", point.value_type))
    }
}

fn check_distribution(value: &Json) -> Result<(), String> {
    let numbers = |path: &str| {
        let found = value.pointer(path).and_then(Json::as_array);
        let found = found.map(|all| {
            let number = |one: &Json| one.as_f64().or_else(|| one.as_str()?.parse().ok());
            all.iter().map(number).collect::<Option<Vec<f64>>>()
        });
        found.unwrap_or_else(|| Some(Vec::new()))
    };
    let count: Option<f64> = value
        .get("count")
        .and_then(Json::as_str)
        .and_then(|count| count.parse().ok());
    let bounds = numbers("/bucketOptions/explicitBuckets/bounds");
    let counts = numbers("/bucketCounts");
    let (Some(count), Some(bounds), Some(counts)) = (count, bounds, counts) else {
        return Err("The distribution is malformed.".to_owned());
    };
    let increase = bounds.iter().zip(bounds.iter().skip(1)).all(|(a, b)| a < b);
    if !increase || bounds.len() >= MAX_BUCKETS {
        return Err("The bounds of buckets must increase.".to_owned());
    }
    if !bounds.is_empty() {
        let sum: f64 = counts.iter().sum();
        #[expect(clippy::float_cmp, reason = "both are whole numbers")]
        if counts.len() != bounds.len() + 1 || sum != count {
            return Err("The counts of buckets must add up to the count.".to_owned());
        }
    }
    let exemplars = value.get("exemplars").and_then(Json::as_array);
    let values = exemplars.into_iter().flatten();
    let values = values.map(|exemplar| exemplar.get("value").and_then(Json::as_f64));
    let values: Option<Vec<f64>> = values.collect();
    if values.is_none_or(|values| !values.is_sorted()) {
        return Err("Exemplars must be in increasing order of their values.".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;

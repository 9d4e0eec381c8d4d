//! Descriptors: what a metric is, once for each process.

use std::sync::Arc;

use hashbrown::HashMap;
use kubevitals_sink::DataPoint;
use serde_json::{Value, json};

use crate::series::{kind_name, metric_type, value_type};

/// Maximum number of metrics that are described: names are ours, so this is never reached.
const MAX_METRICS: usize = 2_000;

/// Attempts to describe a metric, after which it is written as the backend guesses it to be.
const MAX_ATTEMPTS: u32 = 5;

/// The texts of a metric.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The name in data points.
    pub name: Arc<str>,
    pub text: String,
    /// Labels that every series has, with their texts. Others are described as they occur.
    pub labels: Vec<(String, String)>,
}

/// The metrics that are described, or not yet.
#[derive(Debug, Default)]
pub(crate) struct Described {
    attempts: HashMap<Arc<str>, Attempts>,
}

#[derive(Debug, Clone, Copy)]
enum Attempts {
    Failed(u32),
    Done,
}

impl Described {
    /// Whether a metric is to be described before its points are written.
    pub(crate) fn needs(&self, name: &str) -> bool {
        match self.attempts.get(name) {
            Some(Attempts::Done) => false,
            Some(Attempts::Failed(attempts)) => *attempts < MAX_ATTEMPTS,
            None => self.attempts.len() < MAX_METRICS,
        }
    }

    /// The backend has a descriptor, or will never take ours.
    pub(crate) fn done(&mut self, name: &Arc<str>) {
        self.attempts.insert(Arc::clone(name), Attempts::Done);
    }

    /// The next batch tries again.
    pub(crate) fn failed(&mut self, name: &Arc<str>) {
        let known = self.attempts.entry(Arc::clone(name));
        let known = known.or_insert(Attempts::Failed(0));
        if let Attempts::Failed(attempts) = known {
            *attempts += 1;
        }
    }
}

/// The descriptor of a point's metric with these keys of labels.
pub(crate) fn descriptor<'k>(
    prefix: &str,
    point: &DataPoint,
    description: Option<&Description>,
    keys: impl Iterator<Item = &'k str>,
) -> Value {
    let known = description.map_or(&[][..], |description| &description.labels);
    let mut labels: Vec<Value> = known
        .iter()
        .map(|(key, text)| json!({"key": key, "valueType": "STRING", "description": text}))
        .collect();
    let further = keys.filter(|key| known.iter().all(|(name, _)| name != key));
    labels.extend(further.map(|key| json!({"key": key, "valueType": "STRING"})));
    let mut descriptor = json!({
        "type": metric_type(prefix, &point.name),
        "metricKind": kind_name(point.kind()),
        "valueType": value_type(&point.measurement),
        "labels": labels,
        "displayName": &*point.name,
    });
    if let Some(fields) = descriptor.as_object_mut() {
        if !point.unit.is_empty() {
            fields.insert("unit".to_owned(), json!(&*point.unit));
        }
        if let Some(description) = description.filter(|one| !one.text.is_empty()) {
            fields.insert("description".to_owned(), json!(description.text));
        }
    }
    descriptor
}

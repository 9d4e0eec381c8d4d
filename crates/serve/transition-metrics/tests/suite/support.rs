//! Records, and the samples of a scrape.

use std::collections::BTreeMap;

use kubevitals_model::Timestamp;
use kubevitals_promtext::{Item, parse};
use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{Metrics, SharedRegistry};
use kubevitals_transition_metrics::{FamilyConfig, Topology, TransitionMetrics};
use kubevitals_transitions::{Arrival, Output, PodRecord, Tracker};
use serde_json::{Value, json};

use crate::lifecycles::{event, patient, pod, replay};

const PODS: &str = include_str!("../../../../sources/watch/tests/fixtures/pods.watch.jsonl");
const EVENTS: &str = include_str!("../../../../sources/watch/tests/fixtures/events.watch.jsonl");

/// Everything emitted for the recorded streams of a real cluster.
pub(crate) fn recorded() -> Vec<Output> {
    replay(&[PODS, EVENTS])
}

/// The families of these settings.
pub(crate) struct Harness {
    pub(crate) metrics: TransitionMetrics,
    pub(crate) registry: SharedRegistry,
}

impl Harness {
    pub(crate) fn with(config: FamilyConfig) -> Self {
        let mut metrics = Metrics::new();
        let families = TransitionMetrics::register(&mut metrics, config);
        Self {
            metrics: families,
            registry: metrics.freeze(),
        }
    }

    /// Without labels of pods.
    pub(crate) fn bare() -> Self {
        Self::with(FamilyConfig {
            labels: "".parse().unwrap(),
            ..FamilyConfig::default()
        })
    }

    pub(crate) fn record(&self, outputs: &[Output]) -> &Self {
        for output in outputs {
            self.metrics.record(output, Topology::default());
        }
        self
    }

    pub(crate) fn text(&self) -> String {
        let text = self.registry.encode(Format::Prometheus).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Every sample as `name{labels}` with its value.
    pub(crate) fn samples(&self) -> Samples {
        samples(&self.text())
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Samples(pub(crate) BTreeMap<String, f64>);

impl Samples {
    /// The value of a series without the prefix that all have; zero if it is absent.
    pub(crate) fn get(&self, series: &str) -> f64 {
        let found = self.0.get(&format!("kubevitals_pod_{series}"));
        found.copied().unwrap_or(0.0)
    }

    /// The sum over all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let full = format!("kubevitals_pod_{name}");
        let is_of = |series: &str| series.split('{').next() == Some(full.as_str());
        let of_name = self.0.iter().filter(|(series, _)| is_of(series));
        of_name
            .map(|(_, value)| value)
            .fold(0.0, |sum, value| sum + value)
    }
}

pub(crate) fn samples(text: &str) -> Samples {
    let mut all = BTreeMap::new();
    parse(text.as_bytes(), |item| match item {
        Item::Sample(sample) => {
            let labels: Vec<String> = sample
                .labels
                .iter()
                .map(|label| format!("{}={}", label.name, label.value()))
                .collect();
            let series = if labels.is_empty() {
                sample.name.to_string()
            } else {
                format!("{}{{{}}}", sample.name, labels.join(","))
            };
            let before = all.insert(series, sample.value);
            assert_eq!(before, None, "{} comes twice", sample.name);
        }
        Item::Error(error) => panic!("{error}"),
        _ => {}
    });
    Samples(all)
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_794_773_520_000 + millis)
}

pub(crate) fn stamp(second: i64) -> String {
    at(second * 1_000).rfc3339_seconds().to_string()
}

/// Builds a pod created at second 0, and its observations.
pub(crate) struct PodBuilder {
    tracker: Tracker,
    outputs: Vec<Output>,
    version: u64,
    pub(crate) meta: Value,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

impl PodBuilder {
    pub(crate) fn new(spec: Value) -> Self {
        Self {
            tracker: patient(),
            outputs: Vec::new(),
            version: 100,
            meta: json!({}),
            spec,
            status: json!({"phase": "Pending"}),
        }
    }

    /// A condition is `Type=Status@second`.
    pub(crate) fn conditions(&mut self, conditions: &[&str]) -> &mut Self {
        let read = |text: &&str| {
            let (kind, rest) = text.split_once('=').unwrap();
            let (status, second) = rest.split_once('@').unwrap();
            json!({"type": kind, "status": status, "lastTransitionTime": stamp(second.parse().unwrap())})
        };
        self.status["conditions"] = conditions.iter().map(read).collect();
        self
    }

    /// Observes the current state.
    pub(crate) fn observe(&mut self, millis: Option<i64>) -> &mut Self {
        let pod = pod(&self.object());
        let outputs = &mut |output| self.outputs.push(output);
        self.tracker
            .pod(&pod, Arrival::Live, millis.map(at), outputs);
        self
    }

    /// The record so far.
    pub(crate) fn records(&self) -> impl Iterator<Item = &PodRecord> {
        self.tracker.starting_records()
    }

    /// Observes the deletion.
    pub(crate) fn delete(&mut self, millis: Option<i64>) -> &mut Self {
        let pod = pod(&self.object());
        let outputs = &mut |output| self.outputs.push(output);
        self.tracker
            .deleted(&pod, Arrival::Live, millis.map(at), outputs);
        self
    }

    /// An event about a container; about the pod, if the name is empty.
    pub(crate) fn event(&mut self, container: &str, reason: &str, message: &str, second: i64) {
        let name = format!("{container}.{reason}.{second}");
        let path = match container {
            "" => String::new(),
            name => format!("spec.containers{{{name}}}"),
        };
        let object = json!({
            "metadata": {"name": name, "namespace": "default", "uid": "1", "resourceVersion": "1"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "made",
                               "uid": "00000000-0000-4000-8000-000000000001",
                               "fieldPath": path},
            "reason": reason, "message": message, "type": "Normal", "count": 1,
            "firstTimestamp": stamp(second), "lastTimestamp": stamp(second),
        });
        let event = event(&object.to_string());
        let outputs = &mut |output| self.outputs.push(output);
        self.tracker.event(&event, outputs);
    }

    /// The image is already present.
    pub(crate) fn present(&mut self, container: &str) {
        let message = "Container image \"i\" already present on machine";
        self.event(container, "Pulled", message, 2);
    }

    /// All records of the pod.
    pub(crate) fn finish(&mut self) -> Vec<Output> {
        let outputs = &mut |output| self.outputs.push(output);
        self.tracker.finish(outputs);
        std::mem::take(&mut self.outputs)
    }

    fn object(&mut self) -> String {
        self.version += 1;
        let mut meta = json!({
            "name": "made", "namespace": "default", "uid": "00000000-0000-4000-8000-000000000001",
            "resourceVersion": self.version.to_string(), "creationTimestamp": stamp(0),
        });
        for (key, value) in self.meta.as_object().unwrap() {
            meta[key] = value.clone();
        }
        let object = json!({"metadata": meta, "spec": self.spec, "status": self.status});
        object.to_string()
    }
}

pub(crate) fn container(name: &str) -> Value {
    json!({"name": name, "image": "i"})
}

/// The status of a container that runs since a second.
pub(crate) fn running(name: &str, second: i64) -> Value {
    json!({"name": name, "ready": true, "started": true, "restartCount": 0,
           "state": {"running": {"startedAt": stamp(second)}}})
}

/// The status of a container that ended.
pub(crate) fn ended(name: &str, from: i64, to: i64, code: i32) -> Value {
    json!({"name": name, "ready": code == 0, "started": false, "restartCount": 0,
           "state": {"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
                                    "startedAt": stamp(from), "finishedAt": stamp(to)}}})
}

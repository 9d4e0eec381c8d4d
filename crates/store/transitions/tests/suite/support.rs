//! Streams for a tracker, and builders of pods.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Event, Pod, Timestamp};
use kubevitals_recording::{MAX_OBJECT, RecordedObject, Recording};
use kubevitals_transitions::{
    Arrival, ContainerRecord, Existing, Moment, Output, PodRecord, Tracker, TrackerConfig,
};
use kubevitals_watch::{Decoder, EventType, decode_object};
use serde_json::{Value, json};

const PODS: &str = include_str!("../../../../sources/watch/tests/fixtures/pods.watch.jsonl");
const EVENTS: &str = include_str!("../../../../sources/watch/tests/fixtures/events.watch.jsonl");

/// One item of a stream.
#[derive(Debug, Clone)]
pub(crate) enum StreamItem {
    Pod(EventType, Arc<Pod>, Option<Timestamp>),
    Event(Arc<Event>),
}

/// The two recorded streams of one cluster.
pub(crate) fn recorded() -> (Vec<StreamItem>, Vec<StreamItem>) {
    (read(PODS), read(EVENTS))
}

pub(crate) fn read(text: &str) -> Vec<StreamItem> {
    Recording::new(text.as_bytes(), Decoder::default(), MAX_OBJECT)
        .map(|item| match item.object.unwrap() {
            RecordedObject::Pod(seen) => {
                let observed = seen.written.filter(|_| seen.event != EventType::Deleted);
                StreamItem::Pod(seen.event, Arc::new(seen.object), observed)
            }
            RecordedObject::Event(seen) => StreamItem::Event(Arc::new(seen.object)),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// A tracker that emits at the end of the input, as for a recording.
pub(crate) fn patient() -> Tracker {
    Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        ..TrackerConfig::default()
    })
}

pub(crate) fn feed(tracker: &mut Tracker, outputs: &StreamItem, out: &mut Vec<Output>) {
    let mut out = |output| out.push(output);
    match outputs {
        StreamItem::Pod(EventType::Deleted, pod, observed) => {
            tracker.deleted(pod, Arrival::Live, *observed, &mut out);
        }
        StreamItem::Pod(_, pod, observed) => tracker.pod(pod, Arrival::Live, *observed, &mut out),
        StreamItem::Event(event) => tracker.event(event, &mut out),
    }
}

/// Everything emitted for these streams, at their end.
pub(crate) fn lifecycles<'t>(stream: impl IntoIterator<Item = &'t StreamItem>) -> Vec<Output> {
    let mut tracker = patient();
    let mut out = Vec::new();
    for outputs in stream {
        feed(&mut tracker, outputs, &mut out);
    }
    tracker.finish(&mut |output| out.push(output));
    out
}

/// The record of the pod of a name.
pub(crate) fn lifecycle(outputs: &[Output], name: &str) -> Arc<PodRecord> {
    let mut found = outputs.iter().filter_map(|output| match output {
        Output::Lifecycle(record) if *record.pod.summary.identity.name == *name => Some(record),
        _ => None,
    });
    let record = found
        .next()
        .unwrap_or_else(|| panic!("no lifecycle of {name}"));
    assert!(found.next().is_none(), "two lifecycles of {name}");
    Arc::clone(record)
}

pub(crate) fn container<'r>(record: &'r PodRecord, name: &str) -> &'r ContainerRecord {
    let mut containers = record.containers.iter();
    containers.find(|one| &*one.name == name).unwrap()
}

/// The API's time, without the date and zone that all have.
pub(crate) fn api(moment: Option<Moment>) -> Option<String> {
    moment.and_then(|moment| moment.api).map(clock)
}

pub(crate) fn observed(moment: Option<Moment>) -> Option<String> {
    moment.and_then(|moment| moment.observed).map(clock)
}

pub(crate) fn clock(time: Timestamp) -> String {
    let text = time.rfc3339_seconds().to_string();
    text.get(11..19).unwrap().to_owned()
}

pub(crate) fn at(second: u32) -> Timestamp {
    Timestamp::from_unix_millis(1_794_773_520_000 + i64::from(second) * 1_000)
}

pub(crate) fn stamp(second: u32) -> String {
    at(second).rfc3339_seconds().to_string()
}

/// Feeds states, each seen half a second after a second, and returns the record at the end.
pub(crate) struct Harness {
    pub(crate) tracker: Tracker,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self { tracker: patient() }
    }

    pub(crate) fn observe(&mut self, second: u32, pod: &Arc<Pod>) {
        let observed = at(second).checked_add(Duration::from_millis(500));
        self.tracker.pod(pod, Arrival::Live, observed, &mut |_| {
            panic!("nothing is due")
        });
    }

    pub(crate) fn event(&mut self, event: &Event) {
        self.tracker.event(event, &mut |_| panic!("nothing is due"));
    }

    pub(crate) fn finish(mut self) -> Arc<PodRecord> {
        let mut lifecycles = Vec::new();
        self.tracker.finish(&mut |output| lifecycles.push(output));
        match lifecycles.pop().unwrap() {
            Output::Lifecycle(record) => record,
            other => panic!("{other:?}"),
        }
    }
}

/// Builds states of a pod created at second 0.
#[derive(Debug, Clone)]
pub(crate) struct PodBuilder {
    pub(crate) uid: String,
    version: u64,
    created: u32,
    meta: Value,
    spec: Value,
    status: Value,
}

impl PodBuilder {
    pub(crate) fn new(spec: Value) -> Self {
        Self {
            uid: "00000000-0000-4000-8000-000000000001".to_owned(),
            version: 100,
            created: 0,
            meta: json!({}),
            spec,
            status: json!({"phase": "Pending"}),
        }
    }

    pub(crate) fn named(mut self, number: u32) -> Self {
        self.uid = format!("00000000-0000-4000-8000-{number:012}");
        self
    }

    /// The next state: these fields of the status are set, and a condition is `Type=Status@second`,
    /// with `/Reason`.
    pub(crate) fn status(&mut self, fields: Value, conditions: &[&str]) -> Arc<Pod> {
        let Value::Object(fields) = fields else {
            panic!("{fields}");
        };
        for (key, value) in fields {
            self.status[key] = value;
        }
        let conditions = conditions.iter().map(|text| {
            let (kind, rest) = text.split_once('=').unwrap();
            let (status, rest) = rest.split_once('@').unwrap();
            let (second, reason) = rest.split_once('/').unwrap_or((rest, ""));
            json!({"type": kind, "status": status, "reason": reason, "message": format!("because of {reason}"),
                   "lastTransitionTime": stamp(second.parse().unwrap())})
        });
        self.status["conditions"] = conditions.collect();
        self.pod()
    }

    pub(crate) fn spec(&mut self, key: &str, value: Value) {
        self.spec[key] = value;
    }

    pub(crate) fn at_version(&mut self, version: u64) {
        self.version = version;
    }

    pub(crate) fn created_at(&mut self, second: u32) {
        self.created = second;
    }

    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        self.meta["annotations"] = json!({key: value});
    }

    pub(crate) fn deleting(&mut self, second: u32, grace: u32) {
        self.meta =
            json!({"deletionTimestamp": stamp(second), "deletionGracePeriodSeconds": grace});
    }

    pub(crate) fn pod(&mut self) -> Arc<Pod> {
        self.version += 1;
        let mut meta = json!({
            "name": "made", "namespace": "default", "uid": self.uid,
            "resourceVersion": self.version.to_string(), "creationTimestamp": stamp(self.created),
        });
        for (key, value) in self.meta.as_object().unwrap() {
            meta[key] = value.clone();
        }
        let object = json!({"metadata": meta, "spec": self.spec, "status": self.status});
        Arc::new(decode_object(object.to_string().as_bytes(), &Decoder::default()).unwrap())
    }

    pub(crate) fn event(
        &self,
        name: &str,
        reason: &str,
        path: &str,
        message: &str,
        seconds: (u32, u32),
        count: u32,
    ) -> Event {
        let object = json!({
            "metadata": {"name": name, "namespace": "default", "uid": "1", "resourceVersion": "1"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "made", "uid": self.uid, "fieldPath": path},
            "reason": reason, "message": message, "type": "Normal", "count": count,
            "firstTimestamp": stamp(seconds.0), "lastTimestamp": stamp(seconds.1),
        });
        decode_object(object.to_string().as_bytes(), &Decoder::default()).unwrap()
    }
}

pub(crate) fn running(second: u32) -> Value {
    json!({"running": {"startedAt": stamp(second)}})
}

pub(crate) fn ended(from: u32, to: u32, code: i32) -> Value {
    json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
                          "startedAt": stamp(from), "finishedAt": stamp(to)}})
}

pub(crate) fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": format!("because of {reason}")}})
}

/// The status of a container.
pub(crate) fn status(name: &str, state: Value, ready: bool, started: bool) -> Value {
    let mut status = json!({"name": name, "ready": ready, "started": started, "restartCount": 0});
    status["state"] = state;
    status
}

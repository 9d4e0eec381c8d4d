//! Records of pods, from their JSON and from recorded watches.

use std::sync::Arc;

use kubevitals_model::{Event, Pod};
use kubevitals_recording::{MAX_OBJECT, RecordedObject, Recording};
use kubevitals_transitions::{Arrival, Existing, Output, Tracker, TrackerConfig};
use kubevitals_watch::{Decoder, EventType, decode_object};

/// A tracker that reports all pods and waits for the end of each.
pub(crate) fn patient() -> Tracker {
    Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        ..TrackerConfig::default()
    })
}

pub(crate) fn pod(object: &str) -> Arc<Pod> {
    Arc::new(decode_object(object.as_bytes(), &Decoder::default()).unwrap())
}

pub(crate) fn event(object: &str) -> Event {
    decode_object(object.as_bytes(), &Decoder::default()).unwrap()
}

/// All records of recorded watches, read one after the other.
pub(crate) fn replay(recordings: &[&str]) -> Vec<Output> {
    let mut tracker = patient();
    let mut records = Vec::new();
    let mut out = |output| records.push(output);
    for text in recordings {
        for item in Recording::new(text.as_bytes(), Decoder::default(), MAX_OBJECT) {
            match item.object.unwrap() {
                RecordedObject::Pod(seen) if seen.event == EventType::Deleted => {
                    tracker.deleted(&Arc::new(seen.object), Arrival::Live, None, &mut out);
                }
                RecordedObject::Pod(seen) => {
                    let pod = Arc::new(seen.object);
                    tracker.pod(&pod, Arrival::Live, seen.written, &mut out);
                }
                RecordedObject::Event(seen) => tracker.event(&seen.object, &mut out),
                _ => {}
            }
        }
    }
    tracker.finish(&mut out);
    records
}

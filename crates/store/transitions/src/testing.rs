//! Lives for the tests of those who are told of them and must not know where they come from
//! (feature `testing`).

use std::sync::Arc;

use kubevitals_recording::{MAX_OBJECT, Recording, What};
use kubevitals_watch::{Decoder, Event, EventType, Pod, decode_object};

use crate::{Arrival, Existing, Output, Tracker, TrackerConfig};

/// A tracker that tells of all pods, and waits for the end of everything.
pub fn patient() -> Tracker {
    Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        ..TrackerConfig::default()
    })
}

/// A pod from its JSON.
///
/// # Panics
///
/// If it is none.
pub fn pod(object: &str) -> Arc<Pod> {
    let pod = decode_object(object.as_bytes(), &Decoder::default());
    Arc::new(pod.expect("a test gives a pod"))
}

/// An event from its JSON.
///
/// # Panics
///
/// If it is none.
pub fn event(object: &str) -> Event {
    decode_object(object.as_bytes(), &Decoder::default()).expect("a test gives an event")
}

/// Everything that is told of recorded watch streams, one after the other.
///
/// # Panics
///
/// If they cannot be read.
pub fn replay(recordings: &[&str]) -> Vec<Output> {
    let mut tracker = patient();
    let mut told = Vec::new();
    let mut out = |output| told.push(output);
    for text in recordings {
        for item in Recording::new(text.as_bytes(), Decoder::default(), MAX_OBJECT) {
            match item.what.expect("a test gives a recording") {
                What::Pod(seen) if seen.event == EventType::Deleted => {
                    tracker.deleted(&Arc::new(seen.object), Arrival::Live, None, &mut out);
                }
                What::Pod(seen) => {
                    tracker.pod(
                        &Arc::new(seen.object),
                        Arrival::Live,
                        seen.written,
                        &mut out,
                    );
                }
                What::Event(seen) => tracker.event(&seen.object, &mut out),
                _ => {}
            }
        }
    }
    tracker.finish(&mut out);
    told
}

//! Disturbances of a stream leave no trace in the records.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kubevitals_model::{Pod, Uid};
use kubevitals_transitions::Arrival;
use kubevitals_watch::EventType;
use proptest::prelude::*;

use crate::support::{StreamItem, feed, lifecycles, patient, recorded};

static STREAMS: LazyLock<(Vec<StreamItem>, Vec<StreamItem>)> = LazyLock::new(recorded);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    /// Pods and events come over two streams, either of which may be ahead, repeat objects, and be
    /// interrupted by a list of everything.
    #[test]
    fn interleaving_repetition_and_lists_change_nothing(
        choices in prop::collection::vec((any::<bool>(), 0_u8..20, any::<prop::sample::Index>()), 350),
    ) {
        let (pods, events) = &*STREAMS;
        let expected = lifecycles(pods.iter().chain(events));
        let mut tracker = patient();
        let mut out = Vec::new();
        let (mut pods_at, mut events_at) = (0, 0);
        let mut now: HashMap<Uid, Arc<Pod>> = HashMap::new();
        for (prefers_pods, trouble, any) in choices {
            let has_pod = pods_at < pods.len();
            let has_event = events_at < events.len();
            if has_pod && (prefers_pods || !has_event) {
                feed(&mut tracker, &pods[pods_at], &mut out);
                if let StreamItem::Pod(event, pod, _) = &pods[pods_at] {
                    let uid = pod.summary.identity.uid.clone();
                    if *event == EventType::Deleted {
                        now.remove(&uid);
                    } else {
                        now.insert(uid, Arc::clone(pod));
                    }
                }
                pods_at += 1;
            } else if has_event {
                feed(&mut tracker, &events[events_at], &mut out);
                events_at += 1;
            }
            match trouble {
                0 if pods_at > 0 => feed(&mut tracker, &pods[any.index(pods_at)], &mut out),
                1 if events_at > 0 => feed(&mut tracker, &events[any.index(events_at)], &mut out),
                2 => for pod in now.values() {
                    // No receipt: what it shows was seen before.
                    tracker.pod(pod, Arrival::Relisted, None, &mut |output| out.push(output));
                },
                _ => {}
            }
        }
        for outputs in pods[pods_at..].iter().chain(&events[events_at..]) {
            feed(&mut tracker, outputs, &mut out);
        }
        tracker.finish(&mut |output| out.push(output));
        prop_assert_eq!(out, expected);
    }

    /// A missed state costs only what it alone showed: still one record for each pod, no negative
    /// duration, and segments that add up.
    #[test]
    fn a_stream_with_gaps_yields_one_sound_record_for_each_pod(
        kept in prop::collection::vec(0_u8..4, 153),
        with_events in any::<bool>(),
    ) {
        let (pods, events) = &*STREAMS;
        let some = pods.iter().zip(&kept).filter(|(outputs, kept)| {
            **kept > 0 || matches!(outputs, StreamItem::Pod(EventType::Deleted, ..))
        });
        let events = events.iter().filter(|_| with_events);
        let outputs = lifecycles(some.map(|(outputs, _)| outputs).chain(events));
        let mut uids: Vec<Uid> = Vec::new();
        for output in &outputs {
            if let kubevitals_transitions::Output::Lifecycle(record) = output {
                uids.push(record.pod.summary.identity.uid.clone());
                prop_assert_eq!(record.is_complete(), record.blocker().is_none());
                let pieces = record.critical_path();
                let sum: std::time::Duration = pieces.iter().map(kubevitals_transitions::Segment::took).sum();
                prop_assert_eq!(Some(sum), record.total());
                for (one, two) in pieces.iter().zip(pieces.iter().skip(1)) {
                    prop_assert_eq!(one.to, two.from);
                }
                prop_assert!(!record.cause().is_empty());
            }
        }
        uids.sort();
        let all = uids.len();
        uids.dedup();
        prop_assert_eq!(uids.len(), all);
    }
}

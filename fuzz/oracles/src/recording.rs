//! Recorded watch streams, and the pod lifecycles derived from them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_recording::{Piece, RecordedObject, Recording, Splitter};
use kubevitals_transitions::{Arrival, Existing, Output, Segment, Tracker, TrackerConfig};
use kubevitals_watch::{Decoder, EventType};

/// Tokens of recordings.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"{",
    b"}",
    b"\n{",
    b"\n",
    b"\"",
    b"\\",
    b"[",
    b"]",
    b",",
    b"\0",
    b"\xff",
    b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",",
    b"{\"type\":\"DELETED\",\"object\":{\"kind\":\"Pod\",",
    b"{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"Event\",",
    b"\"metadata\":{\"name\":\"a\",\"uid\":\"1\",\"resourceVersion\":\"7\",\"creationTimestamp\":\"2026-11-15T20:12:10Z\"},",
    b"\"managedFields\":[{\"time\":\"2026-11-15T20:12:19Z\"}]",
    b"\"deletionTimestamp\":\"2026-11-15T20:13:56Z\",\"deletionGracePeriodSeconds\":30",
    b"\"spec\":{\"nodeName\":\"n\",\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"readinessProbe\":{}}]},",
    b"\"initContainers\":[{\"name\":\"s\",\"restartPolicy\":\"Always\",\"startupProbe\":{}}]",
    b"\"status\":{\"phase\":\"Running\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\",\"lastTransitionTime\":\"2026-11-15T20:12:12Z\"}]}}}",
    b"\"containerStatuses\":[{\"name\":\"c\",\"ready\":true,\"restartCount\":1,\"state\":{\"running\":{\"startedAt\":\"2026-11-15T20:12:14Z\"}}}]",
    b"\"lastState\":{\"terminated\":{\"startedAt\":\"2026-11-15T20:12:12Z\",\"finishedAt\":\"2026-11-15T20:12:13Z\",\"exitCode\":3}}",
    b"\"involvedObject\":{\"kind\":\"Pod\",\"name\":\"a\",\"uid\":\"1\",\"fieldPath\":\"spec.containers{c}\"},\"reason\":\"Pulled\"",
    b"\"message\":\"Successfully pulled image \\\"i\\\" in 1.2s (3s including waiting). Image size: 9 bytes.\"",
    b"1969-12-31T23:59:59Z",
    b"9999-12-31T23:59:59Z",
];

/// No bytes make the reader panic; pieces do not depend on how the bytes are chunked, and are in
/// order without overlap; and every pod has one record, whose critical path adds up.
///
/// # Panics
///
/// If the property is violated.
pub fn recording(bytes: &[u8]) {
    for limit in [40, 1 << 20] {
        let whole = pieces(&[bytes], limit);
        let middle = bytes.len() / 2;
        let (one, two) = bytes.split_at(middle);
        assert_eq!(pieces(&[one, two], limit), whole, "split in two");
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(pieces(&single, limit), whole, "byte by byte");
        let mut end = 0;
        for (offset, length) in whole {
            assert!(offset >= end && length > 0, "pieces follow one another");
            end = offset + length;
        }
        assert!(end <= bytes.len() as u64);
    }
    track(bytes);
}

/// Returns offset and length of each piece.
fn pieces(chunks: &[&[u8]], limit: usize) -> Vec<(u64, u64)> {
    let mut splitter = Splitter::new(limit);
    let mut found = Vec::new();
    let mut take = |piece: Piece<'_>| {
        found.push(match piece {
            Piece::Object { offset, bytes } => {
                assert!(bytes.len() <= limit && bytes.starts_with(b"{"));
                (offset, bytes.len() as u64)
            }
            Piece::TooLarge { offset, length } => {
                assert!(length > limit as u64);
                (offset, length)
            }
            Piece::CutOff { offset, length } | Piece::Garbage { offset, length, .. } => {
                (offset, length)
            }
        });
    };
    for chunk in chunks {
        splitter.feed(chunk, &mut take);
    }
    splitter.end(&mut take);
    found
}

fn track(bytes: &[u8]) {
    let mut tracker = Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        ..TrackerConfig::default()
    });
    let mut recorded = HashSet::new();
    let mut out = |output: Output| {
        let Output::Lifecycle(record) = output else {
            return;
        };
        let is_new = recorded.insert(record.pod.summary.identity.uid.clone());
        assert!(is_new, "each pod has one record");
        assert_eq!(record.is_complete(), record.blocker().is_none());
        let path = record.critical_path();
        let sum: Duration = path.iter().map(Segment::took).sum();
        if record.milestones.created.best().is_some() {
            assert_eq!(sum, record.total().unwrap_or_default(), "the path adds up");
        }
        let _ = record.cause();
    };
    for item in Recording::new(bytes, Decoder::default(), 1 << 20) {
        match item.object {
            Ok(RecordedObject::Pod(seen)) if seen.event == EventType::Deleted => {
                tracker.deleted(&Arc::new(seen.object), Arrival::Live, None, &mut out);
            }
            Ok(RecordedObject::Pod(seen)) => {
                tracker.pod(
                    &Arc::new(seen.object),
                    Arrival::Live,
                    seen.written,
                    &mut out,
                );
            }
            Ok(RecordedObject::Event(seen)) => tracker.event(&seen.object, &mut out),
            Ok(_) | Err(_) => {}
        }
    }
    tracker.finish(&mut out);
}

//! Lines, whoever reads them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubevitals_jsonl::{JsonLines, LineCounts, SCHEMA};
use proptest::prelude::*;

const LONG: Duration = Duration::from_mins(1);

/// Where lines go in a test.
type Sink = Arc<Mutex<Vec<u8>>>;

/// Takes each write as the next of its answers says, and everything once there are no more.
struct Fickle {
    sink: Sink,
    answers: Vec<Answer>,
}

#[derive(Debug, Clone, Copy)]
enum Answer {
    Take(usize),
    Fail(ErrorKind),
}

/// Takes a write when it is allowed to, and then all at once.
struct Stuck {
    sink: Sink,
    began: Sender<()>,
    go: Receiver<()>,
}

impl Write for Fickle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = match self.answers.pop() {
            Some(Answer::Take(length)) => length.clamp(1, bytes.len()),
            Some(Answer::Fail(kind)) => return Err(kind.into()),
            None => bytes.len(),
        };
        self.sink
            .lock()
            .unwrap()
            .extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.began.send(());
        let _ = self.go.recv();
        self.sink.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn counts(written: u64, dropped: u64, waiting: u64) -> LineCounts {
    LineCounts {
        written,
        dropped,
        waiting,
    }
}

#[test]
fn a_slow_reader_costs_lines_that_are_counted_and_no_time() {
    let sink = Sink::default();
    let (began, has_begun) = channel();
    let (go, allowed) = channel();
    let stuck = Stuck {
        sink: Arc::clone(&sink),
        began,
        go: allowed,
    };
    let lines = JsonLines::begin(stuck, 12).unwrap();
    assert!(lines.push(b"one\n".to_vec()));
    has_begun.recv().unwrap();
    // The first is being written and still counts; two more fit.
    assert!(lines.push(b"two\n".to_vec()));
    assert!(!lines.push(b"aa\nbb\ncc\n".to_vec()));
    assert!(lines.push(b"six\n".to_vec()));
    assert_eq!(lines.counts(), counts(0, 3, 3));
    drop(go);
    assert_eq!(lines.finish(LONG), counts(3, 3, 0));
    assert_eq!(&*sink.lock().unwrap(), b"one\ntwo\nsix\n");
    assert!(!lines.push(b"late\n".to_vec()));
    assert_eq!(lines.counts(), counts(3, 4, 0));
}

#[test]
fn a_reader_that_is_stuck_at_the_end_holds_nobody_up() {
    let (began, has_begun) = channel();
    let (go, allowed) = channel();
    let stuck = Stuck {
        sink: Sink::default(),
        began,
        go: allowed,
    };
    let lines = JsonLines::begin(stuck, 100).unwrap();
    assert!(lines.push(b"one\n".to_vec()) && lines.push(b"two\n".to_vec()));
    has_begun.recv().unwrap();
    assert_eq!(lines.finish(Duration::ZERO), counts(0, 2, 0));
    drop(go);
}

#[test]
fn a_reader_that_goes_away_leaves_everything_counted() {
    let sink = Sink::default();
    let out = Fickle {
        sink: Arc::clone(&sink),
        answers: vec![Answer::Fail(ErrorKind::BrokenPipe), Answer::Take(6)],
    };
    let lines = JsonLines::begin(out, 100).unwrap();
    assert!(lines.push(b"one\ntwo\nsix\n".to_vec()));
    assert_eq!(lines.finish(LONG), counts(1, 2, 0));
    // What was begun cannot be taken back, and nothing follows it.
    assert_eq!(&*sink.lock().unwrap(), b"one\ntw");
    assert!(!lines.push(b"ten\n".to_vec()));
    assert_eq!(lines.counts(), counts(1, 3, 0));
}

#[test]
fn the_schema_is_json_and_closed() {
    fn check(value: &serde_json::Value) {
        if let Some(object) = value.as_object() {
            if object.contains_key("properties") {
                assert_eq!(object["additionalProperties"], false, "{value}");
            }
            object.values().for_each(check);
        } else if let Some(list) = value.as_array() {
            list.iter().for_each(check);
        }
    }
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    check(&schema);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// However little is taken at once, and however often it must be tried again, lines are whole
    /// and in order.
    #[test]
    fn lines_are_whole(
        texts in prop::collection::vec("[a-z]{0,9}", 1..30),
        answers in prop::collection::vec(prop_oneof![
            8 => (1_usize..6).prop_map(Answer::Take),
            1 => Just(Answer::Fail(ErrorKind::Interrupted)),
        ], 0..60),
    ) {
        let sink = Sink::default();
        let out = Fickle { sink: Arc::clone(&sink), answers };
        let lines = JsonLines::begin(out, 1 << 20).unwrap();
        let mut expected = Vec::new();
        for text in &texts {
            let line = format!("{text}\n");
            expected.extend_from_slice(line.as_bytes());
            prop_assert!(lines.push(line.into_bytes()));
        }
        prop_assert_eq!(lines.finish(LONG), counts(texts.len() as u64, 0, 0));
        prop_assert_eq!(&*sink.lock().unwrap(), &expected);
    }
}

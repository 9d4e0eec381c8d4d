//! Lines, and readers that are slow, stuck or gone.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod points;
mod records;
// The validator of the program's tests.
#[path = "../../../../../bin/kubevitals/tests/suite/schema.rs"]
mod schema;

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubevitals_jsonl::{JsonLines, POINT_SCHEMA, SCHEMA};
use kubevitals_sink::{SinkCounts, SinkMetrics};
use proptest::prelude::*;

const LONG: Duration = Duration::from_mins(1);

type Written = Arc<Mutex<Vec<u8>>>;

/// Handles each write as its script says, and accepts everything after its end.
struct ScriptedOutput {
    written: Written,
    script: Vec<Step>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Accept(usize),
    Fail(ErrorKind),
}

/// Blocks each write until it is allowed to go on.
struct StuckOutput {
    written: Written,
    began: Sender<()>,
    go: Receiver<()>,
}

impl Write for ScriptedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = match self.script.pop() {
            Some(Step::Accept(length)) => length.clamp(1, bytes.len()),
            Some(Step::Fail(kind)) => return Err(kind.into()),
            None => bytes.len(),
        };
        self.written
            .lock()
            .unwrap()
            .extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for StuckOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.began.send(());
        let _ = self.go.recv();
        self.written.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn counts(exported: u64, dropped: u64, queued: u64) -> SinkCounts {
    SinkCounts {
        exported,
        dropped,
        queued,
    }
}

fn start(out: impl Write + Send + 'static, capacity: usize) -> JsonLines {
    JsonLines::start(out, capacity, SinkMetrics::unregistered()).unwrap()
}

#[tokio::test]
async fn a_slow_reader_costs_lines_that_are_counted_and_no_time() {
    let written = Written::default();
    let (began, has_begun) = channel();
    let (go, allowed) = channel();
    let stuck = StuckOutput {
        written: Arc::clone(&written),
        began,
        go: allowed,
    };
    let lines = start(stuck, 12);
    assert!(lines.push(b"one\n".to_vec()));
    has_begun.recv().unwrap();
    // The first is in flight and still counts; two more fit.
    assert!(lines.push(b"two\n".to_vec()));
    assert!(!lines.push(b"aa\nbb\ncc\n".to_vec()));
    assert!(lines.push(b"six\n".to_vec()));
    assert_eq!(lines.counts(), counts(0, 3, 3));
    drop(go);
    assert_eq!(lines.shutdown(LONG).await, counts(3, 3, 0));
    assert_eq!(&*written.lock().unwrap(), b"one\ntwo\nsix\n");
    assert!(!lines.push(b"late\n".to_vec()));
    assert_eq!(lines.counts(), counts(3, 4, 0));
}

#[tokio::test]
async fn a_stuck_reader_does_not_delay_shutdown() {
    let (began, has_begun) = channel();
    let (go, allowed) = channel();
    let stuck = StuckOutput {
        written: Written::default(),
        began,
        go: allowed,
    };
    let lines = start(stuck, 100);
    assert!(lines.push(b"one\n".to_vec()) && lines.push(b"two\n".to_vec()));
    has_begun.recv().unwrap();
    assert_eq!(lines.shutdown(Duration::ZERO).await, counts(0, 2, 0));
    drop(go);
}

#[tokio::test]
async fn lines_that_a_closed_reader_missed_are_counted() {
    let written = Written::default();
    let out = ScriptedOutput {
        written: Arc::clone(&written),
        script: vec![Step::Fail(ErrorKind::BrokenPipe), Step::Accept(6)],
    };
    let lines = start(out, 100);
    assert!(lines.push(b"one\ntwo\nsix\n".to_vec()));
    assert_eq!(lines.shutdown(LONG).await, counts(1, 2, 0));
    // What was written cannot be taken back, and nothing follows it.
    assert_eq!(&*written.lock().unwrap(), b"one\ntw");
    assert!(!lines.push(b"ten\n".to_vec()));
    assert_eq!(lines.counts(), counts(1, 3, 0));
}

#[test]
fn the_schemas_are_json_and_closed() {
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
    for schema in [SCHEMA, POINT_SCHEMA] {
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        check(&schema);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// However little one write accepts, and however often it fails, lines are whole and in order.
    #[test]
    fn lines_are_whole(
        texts in prop::collection::vec("[a-z]{0,9}", 1..30),
        script in prop::collection::vec(prop_oneof![
            8 => (1_usize..6).prop_map(Step::Accept),
            1 => Just(Step::Fail(ErrorKind::Interrupted)),
            1 => Just(Step::Fail(ErrorKind::StorageFull)),
        ], 0..40),
    ) {
        let written = Written::default();
        let out = ScriptedOutput { written: Arc::clone(&written), script };
        let lines = start(out, 1 << 20);
        let mut expected = Vec::new();
        for text in &texts {
            let line = format!("{text}\n");
            expected.extend_from_slice(line.as_bytes());
            prop_assert!(lines.push(line.into_bytes()));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let ended = runtime.unwrap().block_on(lines.shutdown(LONG));
        prop_assert_eq!(ended, counts(texts.len() as u64, 0, 0));
        prop_assert_eq!(&*written.lock().unwrap(), &expected);
    }
}

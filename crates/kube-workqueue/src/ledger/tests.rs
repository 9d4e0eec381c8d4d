use std::collections::HashSet;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The values that the metrics would have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Recorded {
    adds: u64,
    depth: i64,
    waited: Vec<Duration>,
    worked: Vec<Duration>,
    retries: u64,
    unfinished: Duration,
    longest: Duration,
}

#[derive(Debug, Default)]
struct Recorder(Mutex<Recorded>);

impl Recorder {
    fn recorded(&self) -> Recorded {
        self.0.lock().unwrap().clone()
    }
}

impl WorkqueueMetrics for Recorder {
    fn added(&self) {
        let mut recorded = self.0.lock().unwrap();
        recorded.adds += 1;
        recorded.depth += 1;
    }

    fn taken(&self, waited: Duration) {
        let mut recorded = self.0.lock().unwrap();
        recorded.depth -= 1;
        recorded.waited.push(waited);
    }

    fn done(&self, worked: Duration) {
        self.0.lock().unwrap().worked.push(worked);
    }

    fn retried(&self) {
        self.0.lock().unwrap().retries += 1;
    }

    fn in_progress(&self, unfinished: Duration, longest: Duration) {
        let mut recorded = self.0.lock().unwrap();
        (recorded.unfinished, recorded.longest) = (unfinished, longest);
    }

    fn abandoned(&self, items: u64) {
        self.0.lock().unwrap().depth -= i64::try_from(items).unwrap();
    }
}

fn ledger() -> (Ledger, Arc<Recorder>, Instant) {
    let recorder = Arc::new(Recorder::default());
    let metrics = Arc::clone(&recorder) as Arc<dyn WorkqueueMetrics>;
    (Ledger::new(metrics), recorder, Instant::now())
}

fn key(name: &str) -> Key {
    Key {
        name: name.to_owned(),
        namespace: Some("default".to_owned()),
    }
}

#[test]
fn triggers_of_a_queued_object_count_once_and_it_waits_since_the_first() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("a"), start);
    ledger.trigger(key("a"), start + SECOND);
    ledger.trigger(key("b"), start + SECOND);
    assert_eq!(
        (recorder.recorded().adds, recorder.recorded().depth),
        (2, 2)
    );
    let run = ledger.start(&key("a"), start + 3 * SECOND);
    ledger.end(run, start + 5 * SECOND);
    let recorded = recorder.recorded();
    assert_eq!((recorded.adds, recorded.depth), (2, 1));
    assert_eq!(recorded.waited, [3 * SECOND]);
    assert_eq!(recorded.worked, [2 * SECOND]);
}

#[test]
fn a_trigger_during_a_reconciliation_is_queued_until_its_end() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("a"), start);
    let run = ledger.start(&key("a"), start);
    ledger.trigger(key("a"), start + SECOND);
    ledger.trigger(key("a"), start + 2 * SECOND);
    assert_eq!(
        (recorder.recorded().adds, recorder.recorded().depth),
        (2, 1)
    );
    ledger.end(run, start + 4 * SECOND);
    let run = ledger.start(&key("a"), start + 4 * SECOND);
    ledger.end(run, start + 4 * SECOND);
    let recorded = recorder.recorded();
    assert_eq!(recorded.waited, [Duration::ZERO, 3 * SECOND]);
    assert_eq!(recorded.depth, 0);
}

#[test]
fn a_delayed_object_is_queued_once_it_is_due() {
    let (mut ledger, recorder, start) = ledger();
    assert!(ledger.requeue(key("a"), Requeue::After(10 * SECOND), start));
    assert!(ledger.requeue(key("b"), Requeue::After(5 * SECOND), start));
    assert!(!ledger.requeue(key("c"), Requeue::After(7 * SECOND), start));
    assert_eq!(ledger.next_due(), Some(start + 5 * SECOND));
    assert_eq!(
        (recorder.recorded().retries, recorder.recorded().adds),
        (3, 0)
    );
    ledger.advance(start + 8 * SECOND);
    assert_eq!(
        (recorder.recorded().adds, recorder.recorded().depth),
        (2, 2)
    );
    assert_eq!(ledger.next_due(), Some(start + 10 * SECOND));
    // It has waited since it was due, whenever the ledger was advanced.
    ledger.start(&key("a"), start + 11 * SECOND);
    assert_eq!(recorder.recorded().waited, [SECOND]);
}

#[test]
fn a_trigger_replaces_a_delay() {
    let (mut ledger, recorder, start) = ledger();
    ledger.requeue(key("a"), Requeue::After(10 * SECOND), start);
    ledger.trigger(key("a"), start + SECOND);
    assert_eq!(ledger.next_due(), None);
    ledger.start(&key("a"), start + 2 * SECOND);
    ledger.advance(start + 20 * SECOND);
    let recorded = recorder.recorded();
    assert_eq!((recorded.adds, recorded.depth, recorded.retries), (1, 0, 1));
}

#[test]
fn a_queued_object_is_not_delayed() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("a"), start);
    let run = ledger.start(&key("a"), start);
    ledger.trigger(key("a"), start);
    ledger.requeue(key("a"), Requeue::After(SECOND), start);
    ledger.end(run, start);
    assert_eq!(ledger.next_due(), None);
    ledger.start(&key("a"), start);
    assert_eq!(
        (recorder.recorded().adds, recorder.recorded().retries),
        (2, 1)
    );
}

#[test]
fn zero_endless_and_unknown_delays() {
    let (mut ledger, recorder, start) = ledger();
    ledger.requeue(key("now"), Requeue::After(Duration::ZERO), start);
    assert_eq!(
        (recorder.recorded().adds, recorder.recorded().depth),
        (1, 1)
    );
    ledger.requeue(key("unknown"), Requeue::AfterUnknownDelay, start);
    ledger.requeue(key("never"), Requeue::After(Duration::MAX), start);
    ledger.requeue(key("change"), Requeue::OnChange, start);
    assert_eq!(
        (recorder.recorded().adds, recorder.recorded().retries),
        (1, 3)
    );
    // It counts as added when its reconciliation starts; its queue duration is unknown.
    ledger.start(&key("unknown"), start + SECOND);
    let recorded = recorder.recorded();
    assert_eq!((recorded.adds, recorded.depth), (2, 1));
    assert_eq!(recorded.waited, [Duration::ZERO]);
}

#[test]
fn a_cluster_scoped_owner_is_found_under_the_namespace_of_what_it_owns() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("node"), start);
    let node = Key {
        name: "node".to_owned(),
        namespace: None,
    };
    ledger.start(&node, start + SECOND);
    assert_eq!(
        (recorder.recorded().adds, recorder.recorded().depth),
        (1, 0)
    );
    // But not the other way round.
    ledger.trigger(node, start);
    ledger.start(&key("node"), start);
    assert_eq!(
        (recorder.recorded().adds, recorder.recorded().depth),
        (3, 1)
    );
}

#[test]
fn unfinished_work_is_the_sum_of_its_ages() {
    let (mut ledger, recorder, start) = ledger();
    let first = ledger.start(&key("a"), start);
    let second = ledger.start(&key("b"), start + 2 * SECOND);
    ledger.report_unfinished(start + 3 * SECOND);
    let recorded = recorder.recorded();
    assert_eq!(
        (recorded.unfinished, recorded.longest),
        (4 * SECOND, 3 * SECOND)
    );
    ledger.end(first, start + 3 * SECOND);
    ledger.end(second, start + 3 * SECOND);
    ledger.report_unfinished(start + 3 * SECOND);
    assert_eq!(recorder.recorded().longest, Duration::ZERO);
}

#[test]
fn a_closed_queue_is_empty() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("a"), start);
    ledger.trigger(key("b"), start);
    ledger.requeue(key("c"), Requeue::After(SECOND), start);
    let run = ledger.start(&key("a"), start);
    ledger.close();
    assert_eq!((recorder.recorded().depth, ledger.next_due()), (0, None));
    ledger.trigger(key("a"), start);
    ledger.requeue(key("a"), Requeue::After(SECOND), start);
    assert_eq!(
        (recorder.recorded().depth, recorder.recorded().retries),
        (0, 1)
    );
    // Work in progress continues and is recorded.
    assert!(ledger.is_working());
    ledger.end(run, start + SECOND);
    assert_eq!(recorder.recorded().worked, [SECOND]);
}

/// An operation on one of a few objects.
#[derive(Debug, Clone, Copy)]
enum Step {
    Add(u8),
    Get,
    Done(u8),
}

/// A model of client-go's queue as it is documented.
#[derive(Debug, Default)]
struct ClientGo {
    queue: Vec<u8>,
    dirty: HashSet<u8>,
    processing: HashSet<u8>,
    adds: u64,
    depth: i64,
}

impl ClientGo {
    fn add(&mut self, item: u8) {
        if !self.dirty.insert(item) {
            return;
        }
        self.adds += 1;
        self.depth += 1;
        if !self.processing.contains(&item) {
            self.queue.push(item);
        }
    }

    fn get(&mut self) -> Option<u8> {
        let item = (!self.queue.is_empty()).then(|| self.queue.remove(0))?;
        self.depth -= 1;
        self.dirty.remove(&item);
        self.processing.insert(item);
        Some(item)
    }

    fn done(&mut self, item: u8) -> bool {
        let was_processed = self.processing.remove(&item);
        if was_processed && self.dirty.contains(&item) {
            self.queue.push(item);
        }
        was_processed
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u8..5).prop_map(Step::Add),
        2 => Just(Step::Get),
        2 => (0_u8..5).prop_map(Step::Done),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn adds_and_depth_are_those_of_client_go(steps in proptest::collection::vec(step(), 0..80)) {
        let (mut ledger, recorder, start) = ledger();
        let mut client_go = ClientGo::default();
        let mut runs: HashMap<u8, RunId> = HashMap::new();
        for step in steps {
            match step {
                Step::Add(item) => {
                    client_go.add(item);
                    ledger.trigger(key(&item.to_string()), start);
                }
                Step::Get => {
                    if let Some(item) = client_go.get() {
                        runs.insert(item, ledger.start(&key(&item.to_string()), start));
                    }
                }
                Step::Done(item) => {
                    if client_go.done(item) {
                        ledger.end(runs.remove(&item).unwrap(), start);
                    }
                }
            }
            let recorded = recorder.recorded();
            prop_assert_eq!(recorded.adds, client_go.adds);
            prop_assert_eq!(recorded.depth, client_go.depth);
        }
        let recorded = recorder.recorded();
        prop_assert_eq!(recorded.waited.len(), recorded.worked.len() + runs.len());
    }
}

use std::collections::HashSet;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// What was told, as the metrics would show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Told {
    adds: u64,
    depth: i64,
    waited: Vec<Duration>,
    worked: Vec<Duration>,
    retries: u64,
    unfinished: Duration,
    longest: Duration,
}

#[derive(Debug, Default)]
struct Recorder(Mutex<Told>);

impl Recorder {
    fn told(&self) -> Told {
        self.0.lock().unwrap().clone()
    }
}

impl WorkqueueMetrics for Recorder {
    fn added(&self) {
        let mut told = self.0.lock().unwrap();
        told.adds += 1;
        told.depth += 1;
    }

    fn taken(&self, waited: Duration) {
        let mut told = self.0.lock().unwrap();
        told.depth -= 1;
        told.waited.push(waited);
    }

    fn done(&self, worked: Duration) {
        self.0.lock().unwrap().worked.push(worked);
    }

    fn retried(&self) {
        self.0.lock().unwrap().retries += 1;
    }

    fn in_progress(&self, unfinished: Duration, longest: Duration) {
        let mut told = self.0.lock().unwrap();
        (told.unfinished, told.longest) = (unfinished, longest);
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
fn triggers_of_what_waits_count_once_and_it_waits_since_the_first() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("a"), start);
    ledger.trigger(key("a"), start + SECOND);
    ledger.trigger(key("b"), start + SECOND);
    assert_eq!((recorder.told().adds, recorder.told().depth), (2, 2));
    let run = ledger.begin(&key("a"), start + 3 * SECOND);
    ledger.end(run, start + 5 * SECOND);
    let told = recorder.told();
    assert_eq!((told.adds, told.depth), (2, 1));
    assert_eq!(told.waited, [3 * SECOND]);
    assert_eq!(told.worked, [2 * SECOND]);
}

#[test]
fn a_trigger_during_the_work_waits_for_its_end() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("a"), start);
    let run = ledger.begin(&key("a"), start);
    ledger.trigger(key("a"), start + SECOND);
    ledger.trigger(key("a"), start + 2 * SECOND);
    assert_eq!((recorder.told().adds, recorder.told().depth), (2, 1));
    ledger.end(run, start + 4 * SECOND);
    let run = ledger.begin(&key("a"), start + 4 * SECOND);
    ledger.end(run, start + 4 * SECOND);
    let told = recorder.told();
    assert_eq!(told.waited, [Duration::ZERO, 3 * SECOND]);
    assert_eq!(told.depth, 0);
}

#[test]
fn what_is_put_off_waits_once_it_is_due() {
    let (mut ledger, recorder, start) = ledger();
    assert!(ledger.requeue(key("a"), Again::After(10 * SECOND), start));
    assert!(ledger.requeue(key("b"), Again::After(5 * SECOND), start));
    assert!(!ledger.requeue(key("c"), Again::After(7 * SECOND), start));
    assert_eq!(ledger.next_due(), Some(start + 5 * SECOND));
    assert_eq!((recorder.told().retries, recorder.told().adds), (3, 0));
    ledger.advance(start + 8 * SECOND);
    assert_eq!((recorder.told().adds, recorder.told().depth), (2, 2));
    assert_eq!(ledger.next_due(), Some(start + 10 * SECOND));
    // It has waited since it was due, whenever that was noticed.
    ledger.begin(&key("a"), start + 11 * SECOND);
    assert_eq!(recorder.told().waited, [SECOND]);
}

#[test]
fn a_trigger_takes_the_place_of_what_was_put_off() {
    let (mut ledger, recorder, start) = ledger();
    ledger.requeue(key("a"), Again::After(10 * SECOND), start);
    ledger.trigger(key("a"), start + SECOND);
    assert_eq!(ledger.next_due(), None);
    ledger.begin(&key("a"), start + 2 * SECOND);
    ledger.advance(start + 20 * SECOND);
    let told = recorder.told();
    assert_eq!((told.adds, told.depth, told.retries), (1, 0, 1));
}

#[test]
fn what_waits_is_not_put_off() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("a"), start);
    let run = ledger.begin(&key("a"), start);
    ledger.trigger(key("a"), start);
    ledger.requeue(key("a"), Again::After(SECOND), start);
    ledger.end(run, start);
    assert_eq!(ledger.next_due(), None);
    ledger.begin(&key("a"), start);
    assert_eq!((recorder.told().adds, recorder.told().retries), (2, 1));
}

#[test]
fn no_delay_and_no_readable_delay() {
    let (mut ledger, recorder, start) = ledger();
    ledger.requeue(key("now"), Again::After(Duration::ZERO), start);
    assert_eq!((recorder.told().adds, recorder.told().depth), (1, 1));
    ledger.requeue(key("some"), Again::Sometime, start);
    ledger.requeue(key("never"), Again::After(Duration::MAX), start);
    ledger.requeue(key("change"), Again::OnChange, start);
    assert_eq!((recorder.told().adds, recorder.told().retries), (1, 3));
    // When work on it begins it was added; for how long it waited is not known.
    ledger.begin(&key("some"), start + SECOND);
    let told = recorder.told();
    assert_eq!((told.adds, told.depth), (2, 1));
    assert_eq!(told.waited, [Duration::ZERO]);
}

#[test]
fn an_owner_without_a_namespace_is_found_under_that_of_what_it_owns() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("node"), start);
    let node = Key {
        name: "node".to_owned(),
        namespace: None,
    };
    ledger.begin(&node, start + SECOND);
    assert_eq!((recorder.told().adds, recorder.told().depth), (1, 0));
    // But not the other way round.
    ledger.trigger(node, start);
    ledger.begin(&key("node"), start);
    assert_eq!((recorder.told().adds, recorder.told().depth), (3, 1));
}

#[test]
fn unfinished_work_is_the_sum_of_its_ages() {
    let (mut ledger, recorder, start) = ledger();
    let first = ledger.begin(&key("a"), start);
    let second = ledger.begin(&key("b"), start + 2 * SECOND);
    ledger.tell_unfinished(start + 3 * SECOND);
    let told = recorder.told();
    assert_eq!((told.unfinished, told.longest), (4 * SECOND, 3 * SECOND));
    ledger.end(first, start + 3 * SECOND);
    ledger.end(second, start + 3 * SECOND);
    ledger.tell_unfinished(start + 3 * SECOND);
    assert_eq!(recorder.told().longest, Duration::ZERO);
}

#[test]
fn nothing_waits_in_a_queue_that_is_gone() {
    let (mut ledger, recorder, start) = ledger();
    ledger.trigger(key("a"), start);
    ledger.trigger(key("b"), start);
    ledger.requeue(key("c"), Again::After(SECOND), start);
    let run = ledger.begin(&key("a"), start);
    ledger.close();
    assert_eq!((recorder.told().depth, ledger.next_due()), (0, None));
    ledger.trigger(key("a"), start);
    ledger.requeue(key("a"), Again::After(SECOND), start);
    assert_eq!((recorder.told().depth, recorder.told().retries), (0, 1));
    // What is being worked on goes on, and is told.
    assert!(ledger.is_working());
    ledger.end(run, start + SECOND);
    assert_eq!(recorder.told().worked, [SECOND]);
}

/// What can happen to one of a few objects.
#[derive(Debug, Clone, Copy)]
enum Step {
    Add(u8),
    Get,
    Done(u8),
}

/// client-go's queue as it is documented: what is dirty, what is processed, and the order of the
/// rest.
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
        let mut runs: HashMap<u8, Run> = HashMap::new();
        for step in steps {
            match step {
                Step::Add(item) => {
                    client_go.add(item);
                    ledger.trigger(key(&item.to_string()), start);
                }
                Step::Get => {
                    if let Some(item) = client_go.get() {
                        runs.insert(item, ledger.begin(&key(&item.to_string()), start));
                    }
                }
                Step::Done(item) => {
                    if client_go.done(item) {
                        ledger.end(runs.remove(&item).unwrap(), start);
                    }
                }
            }
            let told = recorder.told();
            prop_assert_eq!(told.adds, client_go.adds);
            prop_assert_eq!(told.depth, client_go.depth);
        }
        let told = recorder.told();
        prop_assert_eq!(told.waited.len(), told.worked.len() + runs.len());
    }
}

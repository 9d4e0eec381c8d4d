//! Nothing here waits: grants are observed by polling.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

/// Counts wake-ups.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that acquires a permit.
struct Client {
    permit: Permit,
    priority: Option<Priority>,
    woken: Arc<WakeCount>,
}

impl Client {
    fn new(queue: &Arc<FairQueue>, source: u8, priority: Option<Priority>) -> Self {
        Self {
            permit: queue.permit(Source::from(IpAddr::from([10, 0, 0, source]))),
            priority,
            woken: Arc::default(),
        }
    }

    /// Acquires as a runtime would: a task that is woken is polled again.
    fn acquires(&mut self) -> bool {
        let woken = self.woken();
        self.poll() || self.woken() > woken && self.poll()
    }

    fn poll(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        self.permit
            .poll_acquire(self.priority, &mut context)
            .is_ready()
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

fn connection(number: u64, has_begun: bool) -> Priority {
    Priority::Connection { number, has_begun }
}

fn queue(permits: usize) -> Arc<FairQueue> {
    FairQueue::new(permits, QueueMetrics::default())
}

/// Releases permits one after another and returns the order of the grants.
fn order(mut all: Vec<Client>) -> Vec<usize> {
    let mut order = Vec::new();
    while order.len() < all.len() {
        let granted: Vec<usize> = (0..all.len())
            .filter(|index| !order.contains(index) && all[*index].woken() > 0)
            .collect();
        assert_eq!(
            granted.len(),
            1,
            "one release grants one: {order:?} {granted:?}"
        );
        assert!(all[granted[0]].acquires());
        all[granted[0]].permit.release();
        order.push(granted[0]);
    }
    order
}

#[test]
fn no_more_permits_are_held_than_exist() {
    let queue = queue(2);
    let mut all: Vec<_> = (0..5).map(|_| Client::new(&queue, 1, None)).collect();
    let held: Vec<bool> = all.iter_mut().map(Client::acquires).collect();
    assert_eq!(held, [true, true, false, false, false]);
    assert_eq!(queue.metrics.depth.get(), 3);
    all[1].permit.release();
    assert!(all[2].acquires() && !all[3].acquires() && !all[4].acquires());
    assert!(!all[1].acquires(), "a client that returns is last");
    all[0].permit.release();
    assert!(all[3].acquires() && !all[4].acquires());
    assert_eq!(queue.metrics.depth.get(), 2);
    assert_eq!(queue.metrics.queued.get(), 4);
}

#[test]
fn a_free_permit_is_granted_with_the_next_poll() {
    let queue = queue(1);
    let mut first = Client::new(&queue, 1, Some(connection(1, false)));
    assert!(!first.poll());
    assert_eq!((first.woken(), queue.metrics.queued.get()), (1, 0));
    // Clients that are polled meanwhile wait, whatever their order.
    let mut others: Vec<_> = (2..5)
        .map(|number| Client::new(&queue, 1, Some(connection(number, false))))
        .collect();
    assert!(others.iter_mut().all(|one| !one.poll()));
    assert!(first.poll());
    first.permit.release();
    assert_eq!(order(others), [2, 0, 1]);
}

#[test]
fn the_newest_and_the_oldest_alternate_after_those_that_have_begun() {
    let queue = queue(1);
    let mut busy = Client::new(&queue, 1, None);
    assert!(busy.acquires());
    let priorities = [(1, false), (2, true), (3, false), (4, true), (5, false)];
    let mut all: Vec<_> = priorities
        .map(|(number, begun)| Client::new(&queue, 1, Some(connection(number, begun))))
        .into();
    assert!(all.iter_mut().all(|one| !one.acquires()));
    busy.permit.release();
    assert_eq!(order(all), [3, 1, 4, 0, 2]);
}

#[test]
fn one_source_does_not_starve_another() {
    let queue = queue(1);
    let mut busy = Client::new(&queue, 1, None);
    assert!(busy.acquires());
    // Four of one source, the newest of all among them, and two of another.
    let newest = |number| Some(connection(number, false));
    let sources = [(1, 7), (1, 8), (2, 1), (2, 2), (1, 9), (1, 10)];
    let mut all: Vec<_> = sources
        .map(|(source, number)| Client::new(&queue, source, newest(number)))
        .into();
    assert!(all.iter_mut().all(|one| !one.acquires()));
    busy.permit.release();
    assert_eq!(order(all), [5, 2, 4, 3, 1, 0]);
}

#[test]
fn a_source_that_joins_late_has_no_credit() {
    let queue = queue(1);
    let mut busy = Client::new(&queue, 1, None);
    assert!(busy.acquires());
    let mut all: Vec<_> = (0..6).map(|_| Client::new(&queue, 1, None)).collect();
    assert!(all.iter_mut().all(|one| !one.acquires()));
    busy.permit.release();
    for one in &mut all[..3] {
        assert!(one.acquires());
        one.permit.release();
    }
    // The fourth is granted. Three of another source join: they alternate with the rest instead of
    // coming before all of them.
    let mut rest = all.split_off(3);
    assert!(rest[0].acquires());
    let mut others: Vec<_> = (0..3).map(|_| Client::new(&queue, 2, None)).collect();
    assert!(others.iter_mut().all(|one| !one.acquires()));
    rest[0].permit.release();
    rest.remove(0);
    rest.extend(others);
    assert_eq!(order(rest), [2, 0, 3, 1, 4]);
}

#[test]
fn a_dropped_permit_is_passed_on() {
    let queue = queue(1);
    let mut first = Client::new(&queue, 1, None);
    let mut granted = Client::new(&queue, 1, None);
    let mut waiting = Client::new(&queue, 2, None);
    let mut last = Client::new(&queue, 3, None);
    assert!(first.acquires() && !granted.acquires() && !waiting.acquires() && !last.acquires());
    drop(waiting);
    drop(first);
    assert_eq!((granted.woken(), last.woken()), (1, 0));
    // It was granted a permit, and is dropped before it is polled.
    drop(granted);
    assert_eq!(last.woken(), 1);
    assert!(last.acquires());
    drop(last);
    let state = queue.state.lock();
    assert_eq!(
        (state.free, state.waiting.len(), state.granted.len()),
        (1, 0, 0)
    );
    assert!(state.shares.is_empty());
    drop(state);
    assert_eq!(queue.metrics.depth.get(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    /// In any sequence: no more permits are held than exist, no client waits while one is free, and
    /// the queue ends empty.
    #[test]
    fn a_permit_is_never_lost_nor_granted_twice(
        permits in 1..4_usize,
        steps in prop::collection::vec((0..8_usize, 0..4_u8, any::<bool>()), 0..200),
    ) {
        let queue = queue(permits);
        let mut all: Vec<Option<Client>> = (0..8).map(|_| None).collect();
        for (index, action, has_priority) in steps {
            match (action, &mut all[index]) {
                (0, client) => {
                    let priority = has_priority.then(|| connection(index as u64, has_priority));
                    *client = Some(Client::new(&queue, u8::try_from(index % 3).unwrap(), priority));
                }
                (1, Some(one)) => { let _ = one.poll(); }
                (2, Some(one)) => one.permit.release(),
                (3, client) => *client = None,
                _ => {}
            }
            let held = all.iter().flatten().filter(|one| one.permit.is_held()).count();
            let state = queue.state.lock();
            prop_assert_eq!(held + state.granted.len() + state.free, permits);
            prop_assert!(state.free == 0 || state.waiting.is_empty());
            prop_assert_eq!(state.shares.values().map(|share| share.waiting).sum::<usize>(), state.waiting.len());
            prop_assert_eq!(queue.metrics.depth.get(), i64::try_from(state.waiting.len()).unwrap());
        }
        all.clear();
        let state = queue.state.lock();
        prop_assert_eq!((state.free, state.waiting.len()), (permits, 0));
    }
}

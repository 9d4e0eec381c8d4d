//! Nothing here waits: who is called is seen by polling.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Somebody who wants a turn.
struct Somebody {
    ticket: Ticket,
    rank: Option<Rank>,
    woken: Arc<Woken>,
}

impl Somebody {
    fn new(turns: &Arc<Turns>, source: u8, rank: Option<Rank>) -> Self {
        Self {
            ticket: turns.ticket(Source::of(IpAddr::from([10, 0, 0, source]))),
            rank,
            woken: Arc::default(),
        }
    }

    /// As a runtime does: whoever is woken is polled again.
    fn works(&mut self) -> bool {
        let woken = self.woken();
        self.poll() || self.woken() > woken && self.poll()
    }

    fn poll(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        self.ticket.poll_turn(self.rank, &mut context).is_ready()
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

fn connection(number: u64, has_begun: bool) -> Rank {
    Rank::Connection { number, has_begun }
}

fn turns(places: usize) -> Arc<Turns> {
    Turns::new(places, WaitMetrics::unregistered("handshake"))
}

/// Lets whoever works finish, again and again, and tells in which order they were called.
fn order(mut all: Vec<Somebody>) -> Vec<usize> {
    let mut order = Vec::new();
    while order.len() < all.len() {
        let called: Vec<usize> = (0..all.len())
            .filter(|at| !order.contains(at) && all[*at].woken() > 0)
            .collect();
        assert_eq!(called.len(), 1, "one turn calls one: {order:?} {called:?}");
        assert!(all[called[0]].works());
        all[called[0]].ticket.end();
        order.push(called[0]);
    }
    order
}

#[test]
fn no_more_work_than_there_are_places() {
    let turns = turns(2);
    let mut all: Vec<_> = (0..5).map(|_| Somebody::new(&turns, 1, None)).collect();
    let working: Vec<bool> = all.iter_mut().map(Somebody::works).collect();
    assert_eq!(working, [true, true, false, false, false]);
    assert_eq!(turns.metrics.waiting.get(), 3);
    all[1].ticket.end();
    assert!(all[2].works() && !all[3].works() && !all[4].works());
    assert!(!all[1].works(), "who comes back stands behind");
    all[0].ticket.end();
    assert!(all[3].works() && !all[4].works());
    assert_eq!(turns.metrics.waiting.get(), 2);
    assert_eq!(turns.metrics.waited.get(), 4);
}

#[test]
fn a_free_place_is_taken_after_one_way_through_the_queue() {
    let turns = turns(1);
    let mut first = Somebody::new(&turns, 1, Some(connection(1, false)));
    assert!(!first.poll());
    assert_eq!((first.woken(), turns.metrics.waited.get()), (1, 0));
    // Who is polled meanwhile joins the line, whatever the order.
    let mut others: Vec<_> = (2..5)
        .map(|number| Somebody::new(&turns, 1, Some(connection(number, false))))
        .collect();
    assert!(others.iter_mut().all(|one| !one.poll()));
    assert!(first.poll());
    first.ticket.end();
    assert_eq!(order(others), [2, 0, 1]);
}

#[test]
fn both_ends_come_by_turns_and_before_them_those_that_have_begun() {
    let turns = turns(1);
    let mut busy = Somebody::new(&turns, 1, None);
    assert!(busy.works());
    let ranks = [(1, false), (2, true), (3, false), (4, true), (5, false)];
    let mut all: Vec<_> = ranks
        .map(|(number, begun)| Somebody::new(&turns, 1, Some(connection(number, begun))))
        .into();
    assert!(all.iter_mut().all(|one| !one.works()));
    busy.ticket.end();
    assert_eq!(order(all), [3, 1, 4, 0, 2]);
}

#[test]
fn one_source_does_not_starve_another() {
    let turns = turns(1);
    let mut busy = Somebody::new(&turns, 1, None);
    assert!(busy.works());
    // Four of one source, the newest of all among them, and two of another.
    let newest = |number| Some(connection(number, false));
    let sources = [(1, 7), (1, 8), (2, 1), (2, 2), (1, 9), (1, 10)];
    let mut all: Vec<_> = sources
        .map(|(source, number)| Somebody::new(&turns, source, newest(number)))
        .into();
    assert!(all.iter_mut().all(|one| !one.works()));
    busy.ticket.end();
    assert_eq!(order(all), [5, 2, 4, 3, 1, 0]);
}

#[test]
fn who_joins_later_has_no_claim_to_what_others_have_had() {
    let turns = turns(1);
    let mut busy = Somebody::new(&turns, 1, None);
    assert!(busy.works());
    let mut all: Vec<_> = (0..6).map(|_| Somebody::new(&turns, 1, None)).collect();
    assert!(all.iter_mut().all(|one| !one.works()));
    busy.ticket.end();
    for one in &mut all[..3] {
        assert!(one.works());
        one.ticket.end();
    }
    // The fourth is called. Three of another source come: they are served by turns with the rest,
    // not all before them.
    let mut rest = all.split_off(3);
    assert!(rest[0].works());
    let mut others: Vec<_> = (0..3).map(|_| Somebody::new(&turns, 2, None)).collect();
    assert!(others.iter_mut().all(|one| !one.works()));
    rest[0].ticket.end();
    rest.remove(0);
    rest.extend(others);
    assert_eq!(order(rest), [2, 0, 3, 1, 4]);
}

#[test]
fn who_leaves_is_not_waited_for() {
    let turns = turns(1);
    let mut first = Somebody::new(&turns, 1, None);
    let mut called = Somebody::new(&turns, 1, None);
    let mut waiting = Somebody::new(&turns, 2, None);
    let mut last = Somebody::new(&turns, 3, None);
    assert!(first.works() && !called.works() && !waiting.works() && !last.works());
    drop(waiting);
    drop(first);
    assert_eq!((called.woken(), last.woken()), (1, 0));
    // It was called, and leaves before it notices.
    drop(called);
    assert_eq!(last.woken(), 1);
    assert!(last.works());
    drop(last);
    let line = turns.line();
    assert_eq!(
        (line.free, line.waiting.len(), line.called.len()),
        (1, 0, 0)
    );
    assert!(line.shares.is_empty());
    drop(line);
    assert_eq!(turns.metrics.waiting.get(), 0);
}

#[test]
fn addresses_of_one_owner_are_one_source() {
    let of = |text: &str| Source::of(text.parse().unwrap());
    assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
    assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    /// Whatever happens: never more at work than places, nobody waits while a place is free, and
    /// all ends empty.
    #[test]
    fn a_place_is_never_lost_nor_given_twice(
        places in 1..4_usize,
        steps in prop::collection::vec((0..8_usize, 0..4_u8, any::<bool>()), 0..200),
    ) {
        let turns = turns(places);
        let mut all: Vec<Option<Somebody>> = (0..8).map(|_| None).collect();
        for (at, action, ranked) in steps {
            match (action, &mut all[at]) {
                (0, place) => {
                    let rank = ranked.then(|| connection(at as u64, ranked));
                    *place = Some(Somebody::new(&turns, u8::try_from(at % 3).unwrap(), rank));
                }
                (1, Some(one)) => { let _ = one.poll(); }
                (2, Some(one)) => one.ticket.end(),
                (3, place) => *place = None,
                _ => {}
            }
            let working = all.iter().flatten().filter(|one| one.ticket.is_working()).count();
            let line = turns.line();
            prop_assert_eq!(working + line.called.len() + line.free, places);
            prop_assert!(line.free == 0 || line.waiting.is_empty());
            prop_assert_eq!(line.shares.values().map(|share| share.waiting).sum::<usize>(), line.waiting.len());
            prop_assert_eq!(turns.metrics.waiting.get(), i64::try_from(line.waiting.len()).unwrap());
        }
        all.clear();
        let line = turns.line();
        prop_assert_eq!((line.free, line.waiting.len()), (places, 0));
    }
}

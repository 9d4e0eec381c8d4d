//! How much a connection may make and write before others get their turn.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::turns::Ticket;

/// What every request may be answered with at once: all but long lists.
const FREE_BYTES: usize = 32 << 10;
/// What may be written in one turn: about a millisecond of work, so that taking turns costs nothing
/// beside it.
const TURN_BYTES: usize = 256 << 10;

/// What may be made of an answer before it is written. hyper would let a megabyte be made of each:
/// of two hundred lists that are asked for at once, all that before the first of them writes a
/// byte.
pub(super) const AHEAD_BYTES: usize = 64 << 10;

/// How much a connection may write before others get their turn. What it writes must be made first,
/// and no more of that is made than it can write soon, so that this paces the making of answers
/// too.
pub(crate) struct Pace(Mutex<Allowance>);

struct Allowance {
    left: usize,
    ticket: Ticket,
    /// Whether there was something to write in this poll for which it needed a turn.
    needs_turn: bool,
    /// Whether it has asked for a turn in this poll. hyper tries to write more than once in a poll,
    /// and asking wakes the connection: if the second attempt were granted the turn, one whose
    /// socket is full would be polled over and over.
    has_asked: bool,
    /// Bytes that were made and not written yet; not counted where many answers share a connection,
    /// each of which has a window of its own.
    ahead: Option<usize>,
    /// Who waits until some of them are written.
    maker: Option<Waker>,
}

impl Pace {
    pub(super) fn new(ticket: Ticket, is_http2: bool) -> Self {
        let left = FREE_BYTES;
        Self(Mutex::new(Allowance {
            left,
            ticket,
            needs_turn: false,
            has_asked: false,
            ahead: (!is_http2).then_some(0),
            maker: None,
        }))
    }

    /// A request has come.
    pub(super) fn request(&self) {
        let mut allowance = self.allowance();
        if !allowance.ticket.is_working() {
            // It stands in line only with what is left of this.
            allowance.ticket.leave();
            allowance.left = FREE_BYTES;
        }
        allowance.ahead = allowance.ahead.map(|_| 0);
    }

    /// Ready if more of an answer may be made.
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut allowance = self.allowance();
        if allowance.ahead.is_none_or(|ahead| ahead < AHEAD_BYTES) {
            return Poll::Ready(());
        }
        allowance.maker = Some(context.waker().clone());
        Poll::Pending
    }

    /// So much was made.
    pub(crate) fn made(&self, bytes: usize) {
        let mut allowance = self.allowance();
        allowance.ahead = allowance.ahead.map(|ahead| ahead.saturating_add(bytes));
    }

    /// Ready if so many bytes may be written.
    pub(super) fn poll_turn(&self, bytes: usize, context: &mut Context<'_>) -> Poll<()> {
        let mut allowance = self.allowance();
        // In its turn somebody may begin whatever it can end.
        let wanted = if allowance.ticket.is_working() {
            1
        } else {
            bytes
        };
        if wanted <= allowance.left {
            return Poll::Ready(());
        }
        allowance.needs_turn = true;
        if allowance.has_asked {
            return Poll::Pending;
        }
        // Whose turn it was goes to the end of the line, and of the runtime's queue.
        allowance.ticket.end();
        if allowance.ticket.poll_turn(None, context).is_pending() {
            allowance.has_asked = true;
            return Poll::Pending;
        }
        allowance.left = TURN_BYTES;
        Poll::Ready(())
    }

    /// So much was written.
    pub(super) fn written(&self, bytes: usize) {
        let mut allowance = self.allowance();
        allowance.left = allowance.left.saturating_sub(bytes);
        allowance.ahead = allowance.ahead.map(|ahead| ahead.saturating_sub(bytes));
        if allowance.ahead.is_some_and(|ahead| ahead >= AHEAD_BYTES) {
            return;
        }
        let maker = allowance.maker.take();
        drop(allowance);
        if let Some(maker) = maker {
            maker.wake();
        }
    }

    /// The connection has been polled, and waits for something: others may work meanwhile.
    pub(super) fn end_turn(&self) {
        let mut allowance = self.allowance();
        if allowance.ticket.is_working() {
            allowance.ticket.end();
            allowance.left = 0;
        } else if !allowance.needs_turn {
            // There is nothing of the kind any more, as when a reader has gone: it must not keep a
            // place that it does not use.
            allowance.ticket.leave();
        }
        allowance.needs_turn = false;
        allowance.has_asked = false;
    }

    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    use super::super::turns::{Source, Turns};
    use super::*;
    use crate::metrics::WaitMetrics;

    const STEP: usize = 16 << 10;

    /// Whether somebody was woken since it was last looked.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn pace(turns: &Arc<Turns>) -> Pace {
        of_version(turns, false)
    }

    fn of_version(turns: &Arc<Turns>, is_http2: bool) -> Pace {
        let ticket = turns.ticket(Source::of(IpAddr::from([10, 0, 0, 1])));
        Pace::new(ticket, is_http2)
    }

    fn may_write(pace: &Pace) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pace.poll_turn(STEP, &mut context).is_ready()
    }

    /// Writes as much as it may in one poll of the connection.
    fn poll(pace: &Pace) -> usize {
        let mut written = 0;
        while may_write(pace) {
            pace.written(STEP);
            written += STEP;
        }
        pace.end_turn();
        written
    }

    #[test]
    fn long_answers_take_turns_and_short_ones_do_not_wait() {
        let turns = Turns::new(1, WaitMetrics::unregistered("answer"));
        let long: Vec<Pace> = (0..3).map(|_| pace(&turns)).collect();
        for one in &long {
            assert_eq!(poll(one), FREE_BYTES);
        }
        for turn in 0..7 {
            let next = turn % long.len();
            let others = long.iter().enumerate().filter(|(at, _)| *at != next);
            assert!(others.map(|(_, one)| poll(one)).all(|written| written == 0));
            assert_eq!(poll(&long[next]), TURN_BYTES);
        }
        let short = pace(&turns);
        assert_eq!(poll(&short), FREE_BYTES, "although others are in line");
        short.request();
        assert_eq!(poll(&short), FREE_BYTES, "so is the next one");
    }

    #[test]
    fn who_is_called_and_has_nothing_to_write_leaves_its_place_to_others() {
        let turns = Turns::new(1, WaitMetrics::unregistered("answer"));
        let (gone, other) = (pace(&turns), pace(&turns));
        assert_eq!((poll(&gone), poll(&other)), (FREE_BYTES, FREE_BYTES));
        // It was called, and only answers a ping.
        gone.request();
        let mut context = Context::from_waker(Waker::noop());
        assert!(gone.poll_turn(STEP * 3, &mut context).is_pending());
        gone.end_turn();
        assert!(gone.poll_turn(17, &mut context).is_ready());
        gone.written(17);
        gone.end_turn();
        assert_eq!(poll(&other), TURN_BYTES);
    }

    #[test]
    fn a_connection_whose_socket_is_full_was_polled_over_and_over() {
        let turns = Turns::new(1, WaitMetrics::unregistered("answer"));
        let pace = pace(&turns);
        pace.written(FREE_BYTES);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let (mut polls, mut attempts) = (0, 0);
        loop {
            polls += 1;
            // As hyper does; the socket takes nothing.
            for _ in 0..2 {
                attempts += usize::from(pace.poll_turn(STEP, &mut context).is_ready());
            }
            pace.end_turn();
            if !woken.0.swap(false, Ordering::SeqCst) {
                break;
            }
            assert!(polls < 10, "it never rests");
        }
        assert_eq!((polls, attempts), (2, 2), "one asks, the next has the turn");
    }

    #[test]
    fn who_has_used_its_turn_up_gets_the_next_one_in_another_poll() {
        let turns = Turns::new(1, WaitMetrics::unregistered("answer"));
        let pace = pace(&turns);
        assert_eq!(poll(&pace), FREE_BYTES);
        assert!(may_write(&pace));
        pace.written(TURN_BYTES);
        assert!(!may_write(&pace) && !may_write(&pace), "in this poll");
        pace.end_turn();
        assert!(may_write(&pace));
    }

    #[test]
    fn no_more_is_made_than_can_be_written_soon() {
        let turns = Turns::new(1, WaitMetrics::unregistered("answer"));
        let pace = pace(&turns);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let is_woken = || woken.0.swap(false, Ordering::SeqCst);
        assert!(pace.poll_room(&mut context).is_ready());
        pace.made(AHEAD_BYTES + STEP);
        assert!(pace.poll_room(&mut context).is_pending());
        pace.written(STEP);
        assert!(!is_woken(), "that is not enough");
        pace.written(1);
        assert!(is_woken() && pace.poll_room(&mut context).is_ready());
        pace.made(2 * AHEAD_BYTES);
        pace.request();
        assert!(
            pace.poll_room(&mut context).is_ready(),
            "it is another answer"
        );
    }

    #[test]
    fn answers_that_share_a_connection_do_not_wait_for_one_another() {
        let turns = Turns::new(1, WaitMetrics::unregistered("answer"));
        let pace = of_version(&turns, true);
        pace.made(10 * AHEAD_BYTES);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pace.poll_room(&mut context).is_ready());
    }

    #[test]
    fn a_long_answer_waits_from_its_first_byte() {
        let turns = Turns::new(1, WaitMetrics::unregistered("answer"));
        let pace = pace(&turns);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pace.poll_turn(FREE_BYTES + 1, &mut context).is_pending());
        pace.end_turn();
        assert!(pace.poll_turn(FREE_BYTES + 1, &mut context).is_ready());
        pace.written(TURN_BYTES + 1);
        assert!(pace.poll_turn(1, &mut context).is_pending());
    }

    #[test]
    fn a_turn_ends_with_the_poll_in_which_it_was_taken() {
        let turns = Turns::new(1, WaitMetrics::unregistered("answer"));
        let (slow, fast) = (pace(&turns), pace(&turns));
        assert_eq!((poll(&slow), poll(&fast)), (FREE_BYTES, FREE_BYTES));
        assert!(may_write(&slow));
        slow.written(STEP);
        assert!(!may_write(&fast));
        fast.end_turn();
        // Its socket is full: it waits for its reader, and nobody for it.
        slow.end_turn();
        assert!(may_write(&fast));
        assert!(!may_write(&slow), "what was left of its turn is gone");
    }
}

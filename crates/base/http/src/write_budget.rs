//! The bytes that a connection may write before it waits for a permit.

use std::task::{Context, Poll};

use parking_lot::Mutex;

use crate::fair_queue::Permit;

/// Bytes that every response may write without a permit: all but long lists.
const FREE_BYTES: usize = 32 << 10;
/// Bytes that may be written with one permit: about a millisecond of work, so that the queue costs
/// nothing beside it.
const PERMIT_BYTES: usize = 256 << 10;

/// Limits the bytes that a connection writes before other connections are served. Written bytes
/// must be produced first, and the `SendWindow` bounds those, so that this paces the producers too.
#[derive(Debug)]
pub(crate) struct WriteBudget(Mutex<Budget>);

#[derive(Debug)]
struct Budget {
    remaining: usize,
    permit: Permit,
    /// Whether a write of this poll needed a permit.
    needs_permit: bool,
    /// Whether this poll has requested a permit. hyper attempts more than one write in a poll, and
    /// the request wakes the connection: if the second attempt were granted the permit, a
    /// connection with a full socket would be polled again and again.
    has_requested: bool,
}

impl WriteBudget {
    pub(crate) const fn new(permit: Permit) -> Self {
        Self(Mutex::new(Budget {
            remaining: FREE_BYTES,
            permit,
            needs_permit: false,
            has_requested: false,
        }))
    }

    /// Begins with the next response.
    pub(crate) fn reset(&self) {
        let mut budget = self.0.lock();
        if !budget.permit.is_held() {
            // It waits only for the rest of the previous response.
            budget.permit.cancel();
            budget.remaining = FREE_BYTES;
        }
    }

    /// Ready if this many bytes may be written.
    pub(crate) fn poll_acquire(&self, bytes: usize, context: &mut Context<'_>) -> Poll<()> {
        let mut budget = self.0.lock();
        // A write that begins with a permit may exceed it.
        let needed = if budget.permit.is_held() { 1 } else { bytes };
        if needed <= budget.remaining {
            return Poll::Ready(());
        }
        budget.needs_permit = true;
        if budget.has_requested {
            return Poll::Pending;
        }
        // A used-up permit goes to the end of the queue, and of the runtime's queue.
        budget.permit.release();
        if budget.permit.poll_acquire(None, context).is_pending() {
            budget.has_requested = true;
            return Poll::Pending;
        }
        budget.remaining = PERMIT_BYTES;
        Poll::Ready(())
    }

    /// Records written bytes.
    pub(crate) fn written(&self, bytes: usize) {
        let mut budget = self.0.lock();
        budget.remaining = budget.remaining.saturating_sub(bytes);
    }

    /// Releases the permit at the end of a poll of the connection: no connection holds one while it
    /// waits for the network.
    pub(crate) fn end_poll(&self) {
        let mut budget = self.0.lock();
        if budget.permit.is_held() {
            budget.permit.release();
            budget.remaining = 0;
        } else if !budget.needs_permit {
            // Nothing is left to write, as when the client has gone: the place in the queue is
            // not needed.
            budget.permit.cancel();
        }
        budget.needs_permit = false;
        budget.has_requested = false;
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::fair_queue::{FairQueue, QueueMetrics};
    use crate::source::Source;

    const STEP: usize = 16 << 10;

    #[derive(Default)]
    struct WakeFlag(AtomicBool);

    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn queue() -> Arc<FairQueue> {
        FairQueue::new(1, QueueMetrics::default())
    }

    fn budget(queue: &Arc<FairQueue>) -> WriteBudget {
        WriteBudget::new(queue.permit(Source::from(IpAddr::from([10, 0, 0, 1]))))
    }

    fn may_write(budget: &WriteBudget) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        budget.poll_acquire(STEP, &mut context).is_ready()
    }

    /// Writes as much as is allowed in one poll of the connection.
    fn poll(budget: &WriteBudget) -> usize {
        let mut written = 0;
        while may_write(budget) {
            budget.written(STEP);
            written += STEP;
        }
        budget.end_poll();
        written
    }

    #[test]
    fn long_responses_alternate_and_short_ones_do_not_wait() {
        let queue = queue();
        let long: Vec<WriteBudget> = (0..3).map(|_| budget(&queue)).collect();
        for one in &long {
            assert_eq!(poll(one), FREE_BYTES);
        }
        for round in 0..7 {
            let next = round % long.len();
            let others = long.iter().enumerate().filter(|(index, _)| *index != next);
            assert!(others.map(|(_, one)| poll(one)).all(|written| written == 0));
            assert_eq!(poll(&long[next]), PERMIT_BYTES);
        }
        let short = budget(&queue);
        assert_eq!(poll(&short), FREE_BYTES, "although others wait");
        short.reset();
        assert_eq!(poll(&short), FREE_BYTES, "so is the next one");
    }

    #[test]
    fn a_granted_permit_that_is_not_needed_is_passed_on() {
        let queue = queue();
        let (gone, other) = (budget(&queue), budget(&queue));
        assert_eq!((poll(&gone), poll(&other)), (FREE_BYTES, FREE_BYTES));
        // It was granted a permit, and only acknowledges a ping.
        gone.reset();
        let mut context = Context::from_waker(Waker::noop());
        assert!(gone.poll_acquire(STEP * 3, &mut context).is_pending());
        gone.end_poll();
        assert!(gone.poll_acquire(17, &mut context).is_ready());
        gone.written(17);
        gone.end_poll();
        assert_eq!(poll(&other), PERMIT_BYTES);
    }

    /// Such a connection used to wake itself with every poll.
    #[test]
    fn a_full_socket_is_not_polled_again_until_writable() {
        let queue = queue();
        let budget = budget(&queue);
        budget.written(FREE_BYTES);
        let flag = Arc::new(WakeFlag::default());
        let waker = Waker::from(Arc::clone(&flag));
        let mut context = Context::from_waker(&waker);
        let (mut polls, mut attempts) = (0, 0);
        loop {
            polls += 1;
            // As hyper does; the socket accepts nothing.
            for _ in 0..2 {
                attempts += usize::from(budget.poll_acquire(STEP, &mut context).is_ready());
            }
            budget.end_poll();
            if !flag.0.swap(false, Ordering::SeqCst) {
                break;
            }
            assert!(polls < 10, "it never rests");
        }
        assert_eq!(
            (polls, attempts),
            (2, 2),
            "one poll requests, the next has the permit"
        );
    }

    #[test]
    fn a_used_up_permit_is_renewed_in_another_poll() {
        let queue = queue();
        let budget = budget(&queue);
        assert_eq!(poll(&budget), FREE_BYTES);
        assert!(may_write(&budget));
        budget.written(PERMIT_BYTES);
        assert!(!may_write(&budget) && !may_write(&budget), "in this poll");
        budget.end_poll();
        assert!(may_write(&budget));
    }

    #[test]
    fn a_long_response_waits_from_its_first_byte() {
        let queue = queue();
        let budget = budget(&queue);
        let mut context = Context::from_waker(Waker::noop());
        assert!(
            budget
                .poll_acquire(FREE_BYTES + 1, &mut context)
                .is_pending()
        );
        budget.end_poll();
        assert!(budget.poll_acquire(FREE_BYTES + 1, &mut context).is_ready());
        budget.written(PERMIT_BYTES + 1);
        assert!(budget.poll_acquire(1, &mut context).is_pending());
    }

    #[test]
    fn a_permit_ends_with_the_poll_that_acquired_it() {
        let queue = queue();
        let (slow, fast) = (budget(&queue), budget(&queue));
        assert_eq!((poll(&slow), poll(&fast)), (FREE_BYTES, FREE_BYTES));
        assert!(may_write(&slow));
        slow.written(STEP);
        assert!(!may_write(&fast));
        fast.end_poll();
        // Its socket is full: it waits for its client, and no other connection waits for it.
        slow.end_poll();
        assert!(may_write(&fast));
        assert!(!may_write(&slow), "the rest of its permit is gone");
    }
}

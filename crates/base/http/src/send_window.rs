//! The bound on response bytes that are produced before they are written.

use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Maximum number of bytes that are produced and not yet written. hyper would let a megabyte be
/// produced for each response: of two hundred lists requested at once, all of that before the first
/// of them writes a byte.
pub(crate) const MAX_PENDING_BYTES: usize = 64 << 10;

/// Bytes of a response that are produced and not yet written. Inactive on HTTP/2 connections, where
/// each of many responses has a window of its own (`max_send_buf_size`).
#[derive(Debug)]
pub struct SendWindow(Option<Mutex<Pending>>);

#[derive(Debug, Default)]
struct Pending {
    bytes: usize,
    producer: Option<Waker>,
}

impl SendWindow {
    pub(crate) fn new(is_http2: bool) -> Self {
        Self((!is_http2).then(Mutex::default))
    }

    /// Begins with the next response.
    pub(crate) fn reset(&self) {
        if let Some(pending) = &self.0 {
            pending.lock().bytes = 0;
        }
    }

    /// Ready if more of the response may be produced.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(pending) = &self.0 else {
            return Poll::Ready(());
        };
        let mut pending = pending.lock();
        if pending.bytes < MAX_PENDING_BYTES {
            return Poll::Ready(());
        }
        pending.producer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Records produced bytes.
    pub fn produced(&self, bytes: usize) {
        if let Some(pending) = &self.0 {
            let mut pending = pending.lock();
            pending.bytes = pending.bytes.saturating_add(bytes);
        }
    }

    /// Records written bytes, and wakes the producer once there is room.
    pub(crate) fn written(&self, bytes: usize) {
        let Some(pending) = &self.0 else { return };
        let mut pending = pending.lock();
        pending.bytes = pending.bytes.saturating_sub(bytes);
        if pending.bytes >= MAX_PENDING_BYTES {
            return;
        }
        let producer = pending.producer.take();
        drop(pending);
        if let Some(producer) = producer {
            producer.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    const STEP: usize = 16 << 10;

    #[derive(Default)]
    struct WakeFlag(AtomicBool);

    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn no_more_is_produced_than_can_be_written_soon() {
        let window = SendWindow::new(false);
        let flag = Arc::new(WakeFlag::default());
        let waker = Waker::from(Arc::clone(&flag));
        let mut context = Context::from_waker(&waker);
        let is_woken = || flag.0.swap(false, Ordering::SeqCst);
        assert!(window.poll_ready(&mut context).is_ready());
        window.produced(MAX_PENDING_BYTES + STEP);
        assert!(window.poll_ready(&mut context).is_pending());
        window.written(STEP);
        assert!(!is_woken(), "that is not enough");
        window.written(1);
        assert!(is_woken() && window.poll_ready(&mut context).is_ready());
        window.produced(2 * MAX_PENDING_BYTES);
        window.reset();
        assert!(
            window.poll_ready(&mut context).is_ready(),
            "another response"
        );
    }

    #[test]
    fn responses_that_share_a_connection_do_not_wait_for_one_another() {
        let window = SendWindow::new(true);
        window.produced(10 * MAX_PENDING_BYTES);
        let mut context = Context::from_waker(Waker::noop());
        assert!(window.poll_ready(&mut context).is_ready());
    }
}

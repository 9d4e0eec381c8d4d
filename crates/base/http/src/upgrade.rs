//! A stream after an upgrade.
//!
//! hyper gives the stream to the handler and is done with it. The task of the connection then waits
//! until the stream is dropped, so that the connection still counts. When that task ends first, at
//! the end of a drain, the stream is cut: its reads and writes fail.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What became of the stream of a connection.
#[derive(Debug, Default)]
pub(crate) struct Upgrade {
    /// A handler has responded with 101.
    has_begun: AtomicBool,
    is_cut: AtomicBool,
    dropped: Notify,
    /// The tasks that wait for the stream, by direction.
    waiting: Mutex<[Option<Waker>; 2]>,
}

/// Who waits for a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Cuts the stream when it is dropped.
pub(crate) struct CutOnDrop<'a>(&'a Upgrade);

impl Upgrade {
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Release);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Fails if the stream is cut; otherwise the task is woken when it is.
    pub(crate) fn check(&self, direction: Direction, context: &Context<'_>) -> io::Result<()> {
        {
            let mut waiting = self.waiting.lock();
            let [read, write] = &mut *waiting;
            let own = match direction {
                Direction::Read => read,
                Direction::Write => write,
            };
            if !own
                .as_ref()
                .is_some_and(|own| own.will_wake(context.waker()))
            {
                *own = Some(context.waker().clone());
            }
        }
        if self.is_cut.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    pub(crate) const fn cut_on_drop(&self) -> CutOnDrop<'_> {
        CutOnDrop(self)
    }

    pub(crate) fn stream_dropped(&self) {
        self.dropped.notify_one();
    }

    /// Waits until the stream is dropped.
    pub(crate) async fn dropped(&self) {
        self.dropped.notified().await;
    }
}

impl Drop for CutOnDrop<'_> {
    fn drop(&mut self) {
        self.0.is_cut.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

//! The deadline of a scrape.
//!
//! It does not run while a scrape waits for a permit of our own, for a handshake or for buffers:
//! when thousands of nodes are scraped at once, above all after a restart, kubelets must not be
//! reported as slow because the scraper is busy.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

/// Maximum duration of one pause. Permits come sooner unless something is very wrong.
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// A point in time that pauses move.
pub(crate) struct Deadline<'a> {
    at: Mutex<Instant>,
    /// The deadline of the whole scrape, which pauses move too.
    parent: Option<&'a Deadline<'a>>,
}

/// The deadline has passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

impl Deadline<'static> {
    pub(crate) fn at(at: Instant) -> Self {
        Self {
            at: Mutex::new(at),
            parent: None,
        }
    }
}

impl<'a> Deadline<'a> {
    /// Returns a deadline for a part of the work.
    pub(crate) fn child(&'a self, time: Duration) -> Self {
        Self {
            at: Mutex::new(Instant::now() + time),
            parent: Some(self),
        }
    }

    /// Returns the time until the deadline.
    pub(crate) fn remaining(&self) -> Duration {
        self.get().saturating_duration_since(Instant::now())
    }

    /// Runs a future until the deadline.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> Result<T, Elapsed> {
        tokio::pin!(future);
        loop {
            let at = self.get();
            match timeout_at(at, &mut future).await {
                Ok(output) => return Ok(output),
                Err(_) if self.get() == at => return Err(Elapsed),
                // A pause has moved it.
                Err(_) => {}
            }
        }
    }

    /// Pauses the deadline while a future runs.
    pub(crate) async fn paused<T>(&self, future: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        self.shift(|at| at + MAX_PAUSE);
        let output = future.await;
        let waited = begun.elapsed();
        self.shift(|at| at.checked_sub(MAX_PAUSE).unwrap_or(at) + waited);
        output
    }

    fn get(&self) -> Instant {
        *self.at.lock()
    }

    fn shift(&self, by: impl Fn(Instant) -> Instant) {
        {
            let mut at = self.at.lock();
            *at = by(*at);
        }
        if let Some(parent) = self.parent {
            parent.shift(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn work_ends_at_the_deadline() {
        let deadline = Deadline::at(Instant::now() + SECOND * 7);
        assert_eq!(deadline.run(sleep(SECOND * 6)).await, Ok(()));
        assert_eq!(deadline.remaining(), SECOND);
        assert_eq!(deadline.run(sleep(SECOND * 2)).await, Err(Elapsed));
        assert_eq!(deadline.remaining(), Duration::ZERO);
    }

    /// Waiting for a permit once counted as time that the kubelet took.
    #[tokio::test(start_paused = true)]
    async fn a_pause_does_not_count() {
        let deadline = Deadline::at(Instant::now() + SECOND * 7);
        let work = async {
            sleep(SECOND * 3).await;
            deadline.paused(sleep(SECOND * 20)).await;
            sleep(SECOND * 3).await;
        };
        assert_eq!(deadline.run(work).await, Ok(()));
        assert_eq!(deadline.remaining(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_bounded() {
        let begun = Instant::now();
        let deadline = Deadline::at(begun + SECOND * 7);
        let never = deadline.paused(std::future::pending::<()>());
        assert_eq!(deadline.run(never).await, Err(Elapsed));
        assert_eq!(begun.elapsed(), MAX_PAUSE + SECOND * 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_a_child_moves_the_parent() {
        let parent = Deadline::at(Instant::now() + SECOND * 7);
        let child = parent.child(SECOND * 3);
        child.paused(sleep(SECOND * 30)).await;
        assert_eq!(
            (child.remaining(), parent.remaining()),
            (SECOND * 3, SECOND * 7)
        );
        assert_eq!(child.run(sleep(SECOND * 4)).await, Err(Elapsed));
        assert_eq!(parent.remaining(), SECOND * 4);
    }
}

//! The time that a kubelet has to answer.
//!
//! It stands still while a scrape waits for its turn here, for a handshake or for a buffer:
//! thousands of nodes that are met at once, after a restart above all, must not be told to be slow
//! because we are busy.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// The longest wait for one turn. Turns come sooner unless something is very wrong.
const MAX_PATIENCE: Duration = Duration::from_mins(1);

/// When something must be over. Waits for a turn move it.
pub(crate) struct Deadline<'a> {
    at: Mutex<Instant>,
    /// What this is a part of, and what is moved with it.
    whole: Option<&'a Deadline<'a>>,
}

/// The time was over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLate;

impl Deadline<'static> {
    pub(crate) fn at(at: Instant) -> Self {
        Self {
            at: Mutex::new(at),
            whole: None,
        }
    }
}

impl<'a> Deadline<'a> {
    /// An earlier one for a part.
    pub(crate) fn part(&'a self, time: Duration) -> Self {
        Self {
            at: Mutex::new(Instant::now() + time),
            whole: Some(self),
        }
    }

    /// How much time there is.
    pub(crate) fn left(&self) -> Duration {
        self.get().saturating_duration_since(Instant::now())
    }

    /// Does something within the time there is.
    pub(crate) async fn bound<T>(&self, work: impl Future<Output = T>) -> Result<T, TooLate> {
        tokio::pin!(work);
        loop {
            let at = self.get();
            match timeout_at(at, &mut work).await {
                Ok(done) => return Ok(done),
                Err(_) if self.get() == at => return Err(TooLate),
                // It was moved meanwhile.
                Err(_) => {}
            }
        }
    }

    /// Waits for a turn while the clock stands still.
    pub(crate) async fn turn<T>(&self, turn: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        self.shift(|at| at + MAX_PATIENCE);
        let turn = turn.await;
        let waited = begun.elapsed();
        self.shift(|at| {
            let granted = at.checked_sub(MAX_PATIENCE).unwrap_or(at);
            granted + waited
        });
        turn
    }

    fn get(&self) -> Instant {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shift(&self, by: impl Fn(Instant) -> Instant) {
        {
            let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
            *at = by(*at);
        }
        if let Some(whole) = self.whole {
            whole.shift(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn work_is_ended_in_time() {
        let deadline = Deadline::at(Instant::now() + SECOND * 7);
        assert_eq!(deadline.bound(sleep(SECOND * 6)).await, Ok(()));
        assert_eq!(deadline.left(), SECOND);
        assert_eq!(deadline.bound(sleep(SECOND * 2)).await, Err(TooLate));
        assert_eq!(deadline.left(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_for_a_turn_was_taken_for_slow() {
        let deadline = Deadline::at(Instant::now() + SECOND * 7);
        let work = async {
            sleep(SECOND * 3).await;
            deadline.turn(sleep(SECOND * 20)).await;
            sleep(SECOND * 3).await;
        };
        assert_eq!(deadline.bound(work).await, Ok(()));
        assert_eq!(deadline.left(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_never_comes_is_given_up() {
        let begun = Instant::now();
        let deadline = Deadline::at(begun + SECOND * 7);
        let never = deadline.turn(std::future::pending::<()>());
        assert_eq!(deadline.bound(never).await, Err(TooLate));
        assert_eq!(begun.elapsed(), MAX_PATIENCE + SECOND * 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_within_a_part_moves_the_whole() {
        let whole = Deadline::at(Instant::now() + SECOND * 7);
        let part = whole.part(SECOND * 3);
        part.turn(sleep(SECOND * 30)).await;
        assert_eq!((part.left(), whole.left()), (SECOND * 3, SECOND * 7));
        assert_eq!(part.bound(sleep(SECOND * 4)).await, Err(TooLate));
        assert_eq!(whole.left(), SECOND * 4);
    }
}

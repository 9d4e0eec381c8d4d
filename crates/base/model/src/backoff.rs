//! Exponential backoff with jitter.

use std::time::Duration;

use crate::random::Rng;

/// The waits after consecutive failures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffPolicy {
    /// The wait after the first failure.
    pub first: Duration,
    /// The wait after the second failure; each further one doubles it.
    pub second: Duration,
    /// The maximum wait, before jitter.
    pub max: Duration,
    pub jitter: Jitter,
}

/// The randomness of waits, which keeps clients that fail together apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// A random wait from zero up to that of the policy. After a restart of a server all its
    /// clients return at once; spreading them over the whole interval is what lets it recover.
    Full,
    /// Adds up to this fraction of the wait.
    Added(f64),
}

/// Counts consecutive failures and returns the wait after each.
#[derive(Debug, Clone)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
    rng: Rng,
}

impl Backoff {
    pub const fn new(policy: BackoffPolicy, rng: Rng) -> Self {
        Self {
            policy,
            failures: 0,
            rng,
        }
    }

    /// The number of failures since the last reset.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure and returns the wait before the next attempt.
    pub fn next_wait(&mut self) -> Duration {
        let wait = match self.failures.checked_sub(1) {
            None => self.policy.first,
            Some(doublings) => {
                let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
                self.policy.second.saturating_mul(factor)
            }
        };
        let wait = wait.min(self.policy.max);
        self.failures = self.failures.saturating_add(1);
        match self.policy.jitter {
            Jitter::Full => self.rng.duration_up_to(wait),
            Jitter::Added(fraction) => {
                let added = wait.as_secs_f64() * fraction * self.rng.fraction();
                wait.saturating_add(Duration::try_from_secs_f64(added).unwrap_or_default())
            }
        }
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: BackoffPolicy = BackoffPolicy {
        first: Duration::from_millis(800),
        second: Duration::from_millis(1_600),
        max: Duration::from_secs(30),
        jitter: Jitter::Full,
    };

    #[test]
    fn full_jitter_spreads_waits_from_zero_up_to_a_bound_that_doubles() {
        let mut longest = [Duration::ZERO; 12];
        let mut shortest = [Duration::MAX; 12];
        for seed in 0..500 {
            let mut backoff = Backoff::new(FULL, Rng::seeded(seed));
            for (longest, shortest) in longest.iter_mut().zip(&mut shortest) {
                let wait = backoff.next_wait();
                *longest = wait.max(*longest);
                *shortest = wait.min(*shortest);
            }
        }
        for (failures, (longest, shortest)) in (0..).zip(longest.into_iter().zip(shortest)) {
            let bound = (FULL.first * 2_u32.pow(failures)).min(FULL.max);
            assert!(
                longest <= bound && longest > bound * 9 / 10,
                "{failures}: {longest:?}"
            );
            assert!(shortest < bound / 10, "{failures}: {shortest:?}");
        }
    }

    #[test]
    fn added_jitter_never_shortens_a_wait() {
        let policy = BackoffPolicy {
            first: Duration::from_secs(5),
            second: Duration::from_secs(15),
            max: Duration::from_mins(1),
            jitter: Jitter::Added(0.125),
        };
        let mut backoff = Backoff::new(policy, Rng::named("node-a"));
        let waits: Vec<f64> = (0..6).map(|_| backoff.next_wait().as_secs_f64()).collect();
        for (wait, shortest) in waits.iter().zip([5.0, 15.0, 30.0, 60.0, 60.0, 60.0]) {
            assert!((shortest..=shortest * 1.126).contains(wait), "{waits:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait() < Duration::from_secs(6));
    }

    #[test]
    fn waits_never_overflow() {
        let mut backoff = Backoff::new(FULL, Rng::seeded(1));
        for _ in 0..100 {
            assert!(backoff.next_wait() <= FULL.max);
        }
        backoff.reset();
        assert!(backoff.next_wait() <= FULL.first);
        for jitter in [Jitter::Full, Jitter::Added(1.0)] {
            let endless = BackoffPolicy {
                first: Duration::MAX,
                second: Duration::MAX,
                max: Duration::MAX,
                jitter,
            };
            let mut backoff = Backoff::new(endless, Rng::random());
            backoff.next_wait();
            backoff.next_wait();
        }
    }
}

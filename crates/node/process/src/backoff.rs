//! The crash back-off of containers, by the kubelet's rules.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::CrashBackoffConfig;

/// The back-off of one container; absent before its first restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrashBackoff {
    pub delay_ms: u64,
    updated_ms: i64,
}

impl CrashBackoff {
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    /// The entry after a restart of a container that ended at `finished_ms`.
    pub(crate) fn next(entry: Option<Self>, finished_ms: i64, config: CrashBackoffConfig) -> Self {
        let initial = millis(config.initial);
        let delay_ms = match entry {
            Some(entry) if !entry.has_expired(finished_ms, config) => {
                entry.delay_ms.saturating_mul(2).min(millis(config.max))
            }
            _ => initial,
        };
        Self {
            delay_ms,
            updated_ms: finished_ms,
        }
    }

    /// How long a container that ended at `finished_ms` must still wait. A clock that was set back
    /// lengthens no wait beyond the delay.
    pub(crate) fn remaining(
        entry: Option<Self>,
        finished_ms: i64,
        now_ms: i64,
        config: CrashBackoffConfig,
    ) -> Option<Duration> {
        let entry = entry.filter(|entry| !entry.has_expired(finished_ms, config))?;
        let passed = u64::try_from(now_ms.saturating_sub(finished_ms)).unwrap_or(0);
        let left = entry.delay_ms.checked_sub(passed)?;
        (left > 0).then(|| Duration::from_millis(left))
    }

    fn has_expired(&self, at_ms: i64, config: CrashBackoffConfig) -> bool {
        let age = u64::try_from(at_ms.saturating_sub(self.updated_ms)).unwrap_or(0);
        age > millis(config.max).saturating_mul(2)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_exit_restarts_at_once_and_then_the_wait_doubles() {
        let config = CrashBackoffConfig::default();
        let mut entry = None;
        let mut now = 1_000_000;
        let mut waits = Vec::new();
        for _ in 0..8 {
            // The container runs for a second and fails.
            now += 1000;
            let finished = now;
            let wait = CrashBackoff::remaining(entry, finished, now, config).unwrap_or_default();
            waits.push(wait.as_secs());
            now += i64::try_from(wait.as_millis()).expect("small");
            assert_eq!(CrashBackoff::remaining(entry, finished, now, config), None);
            entry = Some(CrashBackoff::next(entry, finished, config));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        // A run of more than ten minutes resets it.
        let finished = now + 601_000;
        assert_eq!(
            CrashBackoff::remaining(entry, finished, finished, config),
            None
        );
        assert_eq!(CrashBackoff::next(entry, finished, config).delay_ms, 10_000);
    }

    #[test]
    fn a_clock_that_jumps_lengthens_no_wait() {
        let config = CrashBackoffConfig::default();
        let entry = Some(CrashBackoff::next(None, 1_000_000, config));
        let back = CrashBackoff::remaining(entry, 1_000_000, 0, config);
        assert_eq!(back, Some(Duration::from_secs(10)));
        let ahead = CrashBackoff::remaining(entry, 1_000_000, i64::MAX, config);
        assert_eq!(ahead, None);
    }
}

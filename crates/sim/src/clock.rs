//! Arithmetic with timestamps.

use kubevitals_model::Timestamp;

/// `at` plus `milliseconds`, saturating.
pub(crate) fn after(at: Timestamp, milliseconds: u64) -> Timestamp {
    Timestamp::from_unix_millis(at.unix_millis().saturating_add_unsigned(milliseconds))
}

/// Milliseconds from `earlier` to `later`, or zero if they are the other way round.
pub(crate) fn millis_between(earlier: Timestamp, later: Timestamp) -> u64 {
    u64::try_from(later.unix_millis().saturating_sub(earlier.unix_millis())).unwrap_or(0)
}

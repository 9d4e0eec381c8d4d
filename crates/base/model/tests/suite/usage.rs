use std::time::Duration;

use kubevitals_model::{
    CoreNanos, CpuSample, FirstWindow, NoRate, Timestamp, container_rate, rate_between,
};
use proptest::prelude::*;

use crate::config;

fn any_sample() -> impl Strategy<Value = CpuSample> {
    (any::<i64>(), any::<u64>()).prop_map(|(at, total)| CpuSample {
        at: Timestamp::from_unix_millis(at),
        total: CoreNanos::new(total),
    })
}

/// What metrics-server computes: the product cut off, then the quotient of floating-point numbers
/// cut off.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "imitates a program that computes so"
)]
fn nanocores_by_cutting_off(from: f64, to: f64, window: Duration) -> u64 {
    let used = (to * 1e9) as u64 - (from * 1e9) as u64;
    (used as f64 / window.as_secs_f64()) as u64
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_two_samples_make_it_panic(previous in proptest::option::of(any_sample()), current in any_sample(), started in proptest::option::of(any::<i64>())) {
        let first = FirstWindow { shortest: Duration::ZERO, longest: Duration::MAX };
        let started = started.map(Timestamp::from_unix_millis);
        if let Ok(rate) = container_rate(previous, current, started, first) {
            prop_assert!(!rate.window.is_zero());
        }
    }

    #[test]
    fn a_rate_times_its_window_is_what_was_used(at in 0_i64..1 << 42, total in 0_u64..1 << 60, used in 0_u64..1 << 50, window in 1_i64..3_600_000) {
        let sample = |at, total| CpuSample { at: Timestamp::from_unix_millis(at), total: CoreNanos::new(total) };
        let rate = rate_between(sample(at, total), sample(at + window, total + used)).unwrap();
        let product = u128::from(rate.usage.nanocores()) * rate.window.as_millis();
        let used = u128::from(used) * 1000;
        prop_assert!(product <= used && used - product < rate.window.as_millis());
        prop_assert_eq!(rate_between(sample(at + window, total), sample(at, total)), Err(NoRate::OlderSample));
    }

    #[test]
    fn rates_are_those_of_metrics_server_within_a_nanocore(total in 0_u64..1 << 51, used in 0_u64..960_000_000_000, window in 9_000_u64..61_000) {
        #[expect(clippy::cast_precision_loss, reason = "52 bits are exact")]
        let [from, to] = [total, total + used].map(|nanoseconds| nanoseconds as f64 / 1e9);
        let window = Duration::from_millis(window);
        let at = Timestamp::from_unix_millis(1_763_000_000_000);
        let previous = CpuSample { at, total: CoreNanos::from_seconds(from).unwrap() };
        let current = CpuSample { at: at.checked_add(window).unwrap(), total: CoreNanos::from_seconds(to).unwrap() };
        let ours = rate_between(previous, current).unwrap().usage.nanocores();
        prop_assert!(ours.abs_diff(nanocores_by_cutting_off(from, to, window)) <= 1);
    }
}

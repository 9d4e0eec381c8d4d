#![expect(
    clippy::cast_precision_loss,
    reason = "numbers in these tests are far below 2^52"
)]

use proptest::prelude::*;

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(millis)
}

const NOW: i64 = 1_794_773_483_261;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counters_never_go_back_and_rates_stay_within_their_bounds(
        seed: u64,
        limit in 0_u32..4_000,
        from in 0_i64..100_000_000,
        length in 1_i64..100_000_000,
    ) {
        let usage = ContainerUsage::new(Seed::new(seed), at(NOW), limit, 64 << 20);
        let (from, to) = (at(NOW + from), at(NOW + from + length));
        prop_assert!(usage.cpu_nanos(from) <= usage.cpu_nanos(to));
        prop_assert!(usage.cpu_nanos(from) > 0);
        let rate = usage.cpu_rate(from, to).unwrap();
        let (low, high) = usage.cpu_rate_bounds();
        prop_assert!(rate >= low as f64 - 1.0 && rate <= high as f64 + 1.0, "{low} {rate} {high}");
    }

    #[test]
    fn the_rate_of_a_whole_is_the_weighted_mean_of_its_parts(
        seed: u64,
        first in 1_i64..10_000_000,
        second in 1_i64..10_000_000,
    ) {
        let usage = ContainerUsage::new(Seed::new(seed), at(NOW), 0, 64 << 20);
        let [a, b, c] = [at(NOW), at(NOW + first), at(NOW + first + second)];
        let rate = |x, y| usage.cpu_rate(x, y).unwrap();
        let mean = (rate(a, b) * first as f64 + rate(b, c) * second as f64) / (first + second) as f64;
        prop_assert!((rate(a, c) - mean).abs() <= mean * 1e-9 + 1e-6);
    }

    #[test]
    fn memory_stays_within_its_bounds_and_below_the_limit(seed: u64, age in 0_i64..1_000_000_000) {
        let limit = 64 << 20;
        let usage = ContainerUsage::new(Seed::new(seed), at(NOW), 0, limit);
        let (low, high) = usage.memory_bounds();
        let bytes = usage.memory_bytes(at(NOW + age));
        prop_assert!(0 < low && low <= bytes && bytes <= high && high < limit);
        prop_assert_eq!(bytes % 4_096, 0);
    }

    #[test]
    fn samples_are_ten_to_fifteen_seconds_apart_and_repeat_in_between(seed: u64, start in 0_i64..10_000_000) {
        let seed = Seed::new(seed);
        let mut last = last_sample(seed, at(NOW + start));
        prop_assert!(last <= at(NOW + start));
        let mut moves = 0;
        for second in 1..120 {
            let now = at(NOW + start + second * 500);
            let sample = last_sample(seed, now);
            prop_assert!(sample <= now && millis_between(sample, now) <= MAX_SAMPLE_GAP_MILLIS);
            if sample != last {
                let gap = millis_between(last, sample);
                prop_assert!((MIN_SAMPLE_GAP_MILLIS..=MAX_SAMPLE_GAP_MILLIS).contains(&gap), "{gap}");
                last = sample;
                moves += 1;
            }
        }
        prop_assert!((3..=6).contains(&moves), "{moves}");
    }
}

#[test]
fn containers_are_sampled_in_separate_phases() {
    let mut instants: Vec<_> = (0..200)
        .map(|seed| last_sample(Seed::new(seed), at(NOW)))
        .collect();
    instants.sort_unstable();
    instants.dedup();
    assert!(instants.len() > 190, "{}", instants.len());
}

#[test]
fn usage_stays_within_the_cpu_limit() {
    for seed in 0..200 {
        let usage = ContainerUsage::new(Seed::new(seed), at(NOW), 150, 64 << 20);
        assert!(usage.cpu_rate_bounds().1 <= 150_000_000);
    }
}

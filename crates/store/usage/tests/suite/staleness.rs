//! The staleness limit.

use std::time::Duration;

use kubevitals_model::{SteppedClock, Timestamp};

use crate::harness::{CORE_SECOND, Harness, at, batch, moment, of_node, row, uid};

const HOUR: i64 = 3_600_000;

fn served_at_16_s() -> Harness {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    harness.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
    harness
}

#[test]
fn the_last_usage_is_served_up_to_the_limit_with_its_true_timestamp() {
    let harness = served_at_16_s();
    let publications = harness.recorder.publications();
    harness.store.expire(moment(61_000));
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(harness.recorder.publications(), publications);
    harness.store.expire(moment(61_100));
    assert_eq!(harness.pods(), [""; 0]);
    harness.store.expire(moment(62_000));
    assert_eq!(
        harness.recorder.publications(),
        publications + 1,
        "the withdrawal is published once"
    );
}

#[test]
fn repeated_samples_do_not_extend_the_limit() {
    let harness = served_at_16_s();
    for now in [31_000, 46_000, 61_100] {
        harness.scrape(now, &[row("app", 15_000, 25 * CORE_SECOND)]);
        harness.store.expire(moment(now));
    }
    assert_eq!(harness.pods(), [""; 0]);
}

/// Ages once went by the wall clock: after a step back of an hour a dead node was served for an
/// hour, and after a step forward everything was withdrawn.
#[test]
fn steps_of_our_wall_clock_neither_extend_nor_shorten_the_limit() {
    for step in [-HOUR, -5_000, 5_000, HOUR] {
        let clock = SteppedClock::new(at(0));
        let harness = Harness::with_pod();
        let scrape = |sampled: i64, total| {
            let rows = batch(&[row("app", sampled, total * CORE_SECOND)]);
            let now = clock.clock().moment();
            harness.store.ingest("n1", &uid("n1"), &rows, now)
        };
        scrape(0, 10);
        clock.advance(Duration::from_secs(15));
        scrape(15_000, 25);
        let stepped = clock.now().unix_millis() + step;
        clock.set(Timestamp::from_unix_millis(stepped));
        // The node does not respond any more.
        for second in 1..=45 {
            clock.advance(Duration::from_secs(1));
            harness.store.expire(clock.clock().moment());
            let served = harness.served("app");
            assert_eq!(served, Some((1_000, 15_000, 15_000)), "{step}: {second}");
        }
        clock.advance(Duration::from_secs(1));
        harness.store.expire(clock.clock().moment());
        assert_eq!(harness.pods(), [""; 0], "{step}");
        // It returns, and its first response makes a rate.
        clock.advance(Duration::from_secs(10));
        scrape(71_000, 81);
        assert_eq!(
            harness.served("app"),
            Some((1_000, 56_000, 71_000)),
            "{step}"
        );
    }
}

#[test]
fn a_step_of_our_wall_clock_during_scraping_loses_no_sample() {
    for step in [-HOUR, HOUR] {
        let clock = SteppedClock::new(at(0));
        let harness = Harness::with_pod();
        for round in 0..8_i64 {
            if round == 3 {
                let stepped = clock.now().unix_millis() + step;
                clock.set(Timestamp::from_unix_millis(stepped));
            }
            let (sampled, total) = (round * 15_000, round.unsigned_abs() * 15 * CORE_SECOND);
            let rows = batch(&[row("app", sampled, total)]);
            let now = clock.clock().moment();
            harness.store.ingest("n1", &uid("n1"), &rows, now);
            if round > 0 {
                assert_eq!(harness.served("app"), Some((1_000, 15_000, sampled)));
            }
            // What is written follows the wall clock.
            let published = harness.recorder.node("n1").unwrap().published;
            assert_eq!(published, clock.now());
            for _ in 0..15 {
                clock.advance(Duration::from_secs(1));
                harness.store.expire(clock.clock().moment());
            }
        }
    }
}

#[test]
fn a_node_with_a_wrong_clock_is_served() {
    for skew in [-600_000, 600_000] {
        let harness = Harness::with_pod();
        harness.scrape(1_000, &[row("app", skew, 10 * CORE_SECOND)]);
        harness.scrape(16_000, &[row("app", skew + 15_000, 25 * CORE_SECOND)]);
        harness.store.expire(moment(17_000));
        assert_eq!(harness.served("app"), Some((1_000, 15_000, skew + 15_000)));
    }
}

#[test]
fn the_first_scrape_after_an_outage_makes_a_rate() {
    let harness = served_at_16_s();
    harness.store.expire(moment(100_000));
    assert_eq!(harness.pods(), [""; 0]);
    harness.scrape(116_000, &[row("app", 115_000, 35 * CORE_SECOND)]);
    assert_eq!(harness.served("app"), Some((100, 100_000, 115_000)));
}

#[test]
fn a_rate_over_a_long_outage_is_not_served() {
    let harness = served_at_16_s();
    let late = 400_000;
    harness.scrape(late, &[row("app", late, 35 * CORE_SECOND)]);
    harness.store.expire(moment(late));
    assert_eq!(harness.pods(), [""; 0]);
    harness.scrape(
        late + 15_000,
        &[row("app", late + 15_000, 38 * CORE_SECOND)],
    );
    assert_eq!(harness.served("app"), Some((200, 15_000, late + 15_000)));
}

#[test]
fn siblings_expire_independently() {
    let harness = Harness::with_pod();
    let both = |millis, total| {
        [
            row("app", millis, total * CORE_SECOND),
            row("side", millis, total * CORE_SECOND),
        ]
    };
    harness.scrape(1_000, &both(0, 10));
    harness.scrape(16_000, &both(15_000, 25));
    harness.scrape(46_000, &[row("app", 45_000, 40 * CORE_SECOND)]);
    harness.store.expire(moment(62_000));
    assert_eq!(harness.served("app"), Some((500, 30_000, 45_000)));
    assert_eq!(harness.served("side"), None);
}

#[test]
fn nodes_expire() {
    let harness = Harness::new();
    harness.store.ingest(
        "n1",
        &uid("n1"),
        &of_node(0, 10 * CORE_SECOND),
        moment(1_000),
    );
    let batch = of_node(15_000, 25 * CORE_SECOND);
    harness
        .store
        .ingest("n1", &uid("n1"), &batch, moment(16_000));
    harness.store.expire(moment(61_000));
    assert_eq!(harness.served_node(), Some((1_000, 15_000, 15_000)));
    harness.store.expire(moment(61_100));
    assert_eq!(harness.served_node(), None);
}

#[test]
fn stale_usage_is_not_published_beside_a_new_one() {
    let harness = Harness::with_pod();
    harness.pod("n1", "default/web-1");
    harness.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    harness.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
    // Without an expiry in between: the publication itself omits it.
    let other = crate::harness::row_of("default/web-1", "app", 69_000, CORE_SECOND);
    harness.scrape(70_000, &[other.started(55_000)]);
    assert_eq!(harness.pods(), ["default/web-1"]);
}

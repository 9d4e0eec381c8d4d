//! The staleness limit.

use crate::harness::{CORE_SECOND, Harness, at, of_node, row};

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
    harness.store.expire(at(61_000));
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(harness.recorder.publications(), publications);
    harness.store.expire(at(61_100));
    assert_eq!(harness.pods(), [""; 0]);
    harness.store.expire(at(62_000));
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
        harness.store.expire(at(now));
    }
    assert_eq!(harness.pods(), [""; 0]);
}

#[test]
fn setting_our_clock_back_does_not_extend_the_limit() {
    let harness = served_at_16_s();
    harness.store.expire(at(17_000));
    // By five seconds.
    harness.store.expire(at(12_000));
    harness.scrape(13_000, &[row("app", 30_000, 40 * CORE_SECOND)]);
    harness.store.expire(at(58_000));
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 30_000)));
    harness.store.expire(at(58_100));
    assert_eq!(harness.pods(), [""; 0]);
}

#[test]
fn a_node_with_a_wrong_clock_is_served() {
    for skew in [-600_000, 600_000] {
        let harness = Harness::with_pod();
        harness.scrape(1_000, &[row("app", skew, 10 * CORE_SECOND)]);
        harness.scrape(16_000, &[row("app", skew + 15_000, 25 * CORE_SECOND)]);
        harness.store.expire(at(17_000));
        assert_eq!(harness.served("app"), Some((1_000, 15_000, skew + 15_000)));
    }
}

#[test]
fn the_first_scrape_after_an_outage_makes_a_rate() {
    let harness = served_at_16_s();
    harness.store.expire(at(100_000));
    assert_eq!(harness.pods(), [""; 0]);
    harness.scrape(116_000, &[row("app", 115_000, 35 * CORE_SECOND)]);
    assert_eq!(harness.served("app"), Some((100, 100_000, 115_000)));
}

#[test]
fn a_rate_over_a_long_outage_is_not_served() {
    let harness = served_at_16_s();
    let late = 400_000;
    harness.scrape(late, &[row("app", late, 35 * CORE_SECOND)]);
    harness.store.expire(at(late));
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
    harness.store.expire(at(62_000));
    assert_eq!(harness.served("app"), Some((500, 30_000, 45_000)));
    assert_eq!(harness.served("side"), None);
}

#[test]
fn nodes_expire() {
    let harness = Harness::new();
    harness
        .store
        .ingest("n1", &of_node(0, 10 * CORE_SECOND), at(1_000));
    let batch = of_node(15_000, 25 * CORE_SECOND);
    harness.store.ingest("n1", &batch, at(16_000));
    harness.store.expire(at(61_000));
    assert_eq!(harness.served_node(), Some((1_000, 15_000, 15_000)));
    harness.store.expire(at(61_100));
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

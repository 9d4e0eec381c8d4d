//! Usage of containers and pods.

use std::time::Duration;

use kubevitals_model::{Bytes, ContainerSample};

use crate::harness::{
    CORE_SECOND, Harness, Row, batch, bytes, cpu, millicores, moment, row, row_of, uid,
};

const DAY: i64 = 86_400_000;

/// A container that started a day ago.
fn old(container: &str, millis: i64, total: u64) -> Row {
    row(container, millis, total).started(-DAY)
}

#[test]
fn the_first_sample_of_an_old_container_is_not_enough() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    assert_eq!(harness.pods(), [""; 0]);
}

#[test]
fn two_distinct_samples_make_a_rate_over_the_time_between_them() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    harness.scrape(16_000, &[old("app", 14_000, 17 * CORE_SECOND)]);
    assert_eq!(harness.served("app"), Some((500, 14_000, 14_000)));
}

#[test]
fn the_window_is_that_of_cpu_and_not_of_memory() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    let late = old("app", 10_000, 15 * CORE_SECOND).with(|own| own.memory = bytes(15_000, 7));
    harness.scrape(16_000, &[late]);
    assert_eq!(harness.served("app"), Some((500, 10_000, 10_000)));
    let usage = harness.usage("default/web-0", "app").unwrap();
    assert_eq!(usage.memory, Bytes::new(7));
}

#[test]
fn a_repeated_sample_changes_nothing() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    harness.scrape(16_000, &[old("app", 14_000, 17 * CORE_SECOND)]);
    let publications = harness.recorder.publications();
    let done = harness.scrape(31_000, &[old("app", 14_000, 17 * CORE_SECOND)]);
    assert_eq!((done.repeated, done.new_sample), (1, false));
    assert_eq!(harness.served("app"), Some((500, 14_000, 14_000)));
    assert_eq!(harness.recorder.publications(), publications);
}

#[test]
fn samples_milliseconds_apart_make_no_rate() {
    let harness = Harness::with_pod();
    // A container with a limit of 100m gets 10 ms of CPU at the start of each period of 100 ms.
    let slice = CORE_SECOND / 100;
    harness.scrape(1_000, &[old("app", 1_000, 0)]);
    let done = harness.scrape(1_023, &[old("app", 1_023, slice)]);
    assert_eq!((done.repeated, done.new_sample), (1, false));
    assert_eq!(harness.served("app"), None);
    harness.scrape(6_000, &[old("app", 6_000, 50 * slice)]);
    assert_eq!(harness.served("app"), Some((100, 5_000, 6_000)));
}

#[test]
fn an_older_sample_is_ignored_and_counted() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    harness.scrape(16_000, &[old("app", 14_000, 17 * CORE_SECOND)]);
    let done = harness.scrape(31_000, &[old("app", 7_000, 12 * CORE_SECOND)]);
    assert_eq!((done.older, done.new_sample), (1, false));
    assert_eq!(harness.served("app"), Some((500, 14_000, 14_000)));
}

#[test]
fn a_fresh_container_is_served_from_its_first_sample() {
    let harness = Harness::with_pod();
    harness.scrape(
        21_000,
        &[row("app", 20_000, 6 * CORE_SECOND).started(8_000)],
    );
    assert_eq!(harness.served("app"), Some((500, 12_000, 20_000)));
}

#[test]
fn a_container_that_only_just_started_waits_for_its_second_sample() {
    let harness = Harness::with_pod();
    harness.scrape(
        16_000,
        &[row("app", 15_000, 9 * CORE_SECOND).started(8_000)],
    );
    assert_eq!(harness.served("app"), None);
    harness.scrape(
        27_000,
        &[row("app", 25_000, 10 * CORE_SECOND).started(8_000)],
    );
    assert_eq!(harness.served("app"), Some((100, 10_000, 25_000)));
}

#[test]
fn an_average_since_a_start_long_ago_is_not_served() {
    let harness = Harness::with_pod();
    harness.scrape(
        41_000,
        &[row("app", 40_000, 9 * CORE_SECOND).started(8_000)],
    );
    assert_eq!(harness.served("app"), None);
}

#[test]
fn a_lone_sample_that_may_be_hours_old_is_not_served() {
    let harness = Harness::with_pod();
    let stuck = row("app", -3_600_000, 9 * CORE_SECOND).started(-3_612_000);
    harness.scrape(1_000, &[stuck]);
    assert_eq!(harness.served("app"), None);
}

#[test]
fn a_restarted_container_is_measured_from_its_start() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 900 * CORE_SECOND)]);
    harness.scrape(
        16_000,
        &[row("app", 15_000, 6 * CORE_SECOND).started(3_000)],
    );
    assert_eq!(harness.served("app"), Some((500, 12_000, 15_000)));
}

#[test]
fn a_container_that_only_just_restarted_keeps_its_last_usage() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 900 * CORE_SECOND)]);
    harness.scrape(16_000, &[old("app", 15_000, 915 * CORE_SECOND)]);
    harness.scrape(
        31_000,
        &[row("app", 30_000, 4 * CORE_SECOND).started(28_000)],
    );
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    harness.scrape(
        46_000,
        &[row("app", 45_000, 7 * CORE_SECOND).started(28_000)],
    );
    assert_eq!(harness.served("app"), Some((200, 15_000, 45_000)));
}

#[test]
fn a_counter_that_went_backwards_without_a_restart_keeps_the_last_usage() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 900 * CORE_SECOND)]);
    harness.scrape(16_000, &[old("app", 15_000, 915 * CORE_SECOND)]);
    harness.scrape(31_000, &[old("app", 30_000, CORE_SECOND)]);
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    harness.scrape(46_000, &[old("app", 45_000, 4 * CORE_SECOND)]);
    assert_eq!(harness.served("app"), Some((200, 15_000, 45_000)));
}

#[test]
fn a_container_without_memory_is_omitted_and_its_sibling_stays() {
    let harness = Harness::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let without = old("bad", now, total * CORE_SECOND).with(|own| own.memory = None);
        harness.scrape(now + 1, &[old("app", now, total * CORE_SECOND), without]);
    }
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(harness.served("bad"), None);
}

#[test]
fn a_container_with_only_a_start_time_hides_no_sibling() {
    let harness = Harness::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let nothing = old("new", now, 0).with(|own| {
            *own = ContainerSample {
                started: own.started,
                ..ContainerSample::default()
            };
        });
        harness.scrape(now + 1, &[nothing, old("app", now, total * CORE_SECOND)]);
    }
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(harness.served("new"), None);
}

#[test]
fn a_new_container_beside_an_old_one_has_a_plausible_window() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    let both = [
        old("app", 15_000, 25 * CORE_SECOND),
        old("side", 15_000, 5 * CORE_SECOND),
    ];
    harness.scrape(16_000, &both);
    harness.scrape(17_000, &both);
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(harness.served("side"), None);
}

#[test]
fn a_container_with_zero_usage_is_served() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 0)]);
    harness.scrape(16_000, &[old("app", 15_000, 0)]);
    assert_eq!(harness.served("app"), Some((0, 15_000, 15_000)));
}

#[test]
fn a_pod_missing_from_one_scrape_keeps_its_usage_and_samples() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    harness.scrape(16_000, &[old("app", 15_000, 25 * CORE_SECOND)]);
    harness.scrape(31_000, &[]);
    harness.store.expire(moment(31_000));
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    harness.scrape(46_000, &[old("app", 45_000, 40 * CORE_SECOND)]);
    assert_eq!(harness.served("app"), Some((500, 30_000, 45_000)));
}

#[test]
fn pods_and_containers_are_sorted_whatever_the_order_of_the_scrape() {
    let harness = Harness::new();
    let names = ["kube-system/b", "default/b", "default/a", "kube-system/a"];
    for name in names {
        harness.pod("n1", name);
    }
    for (now, total) in [(0, 10), (15_000, 25)] {
        let rows = ["z", "a", "m"].into_iter().flat_map(|container| {
            names.map(|pod| row_of(pod, container, now, total * CORE_SECOND))
        });
        let done = harness.scrape(now + 1, &rows.collect::<Vec<_>>());
        assert_eq!(done.new, 12);
    }
    // The recorder asserts the order.
    assert_eq!(harness.pods().len(), 4);
    assert_eq!(
        harness.served_of("kube-system/b", "m"),
        Some((1_000, 15_000, 15_000))
    );
}

#[test]
fn the_oldest_container_stands_for_the_pod() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND), old("side", 0, 0)]);
    harness.scrape(
        16_000,
        &[old("app", 12_000, 22 * CORE_SECOND), old("side", 15_000, 0)],
    );
    let seen = harness.recorder.node("n1").unwrap();
    let oldest = seen.pods.first().unwrap().oldest().unwrap();
    assert_eq!(&*oldest.name, "app");
    assert_eq!(oldest.usage.window, Duration::from_secs(12));
}

#[test]
fn the_window_of_the_kubelets_own_average_begins_at_the_start() {
    let harness = Harness::with_pod();
    let average = |own: &mut ContainerSample| own.cpu_now = Some(millicores(300));
    let fresh = row("app", 8_000, CORE_SECOND).started(4_000).with(average);
    let running = old("side", 8_000, 900 * CORE_SECOND).with(average);
    harness.scrape(9_000, &[fresh, running]);
    assert_eq!(harness.served("app"), Some((300, 4_000, 8_000)));
    assert_eq!(harness.served("side"), Some((300, 15_000, 8_000)));
}

#[test]
fn swap_and_ephemeral_storage_are_served_if_reported() {
    let harness = Harness::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let more = old("app", now, total * CORE_SECOND).with(|own| {
            own.swap = bytes(now, 5);
            own.ephemeral_storage = bytes(now, 6);
        });
        harness.scrape(now + 1, &[more, old("side", now, total * CORE_SECOND)]);
    }
    let usage = harness.usage("default/web-0", "app").unwrap();
    assert_eq!(usage.swap, Some(Bytes::new(5)));
    assert_eq!(usage.ephemeral_storage, Some(Bytes::new(6)));
    let usage = harness.usage("default/web-0", "side").unwrap();
    assert_eq!((usage.swap, usage.ephemeral_storage), (None, None));
}

#[test]
fn zero_swap_is_as_old_as_the_scrape_that_reported_it() {
    let harness = Harness::with_pod();
    let scrape = |seconds: u64, swap: Option<u64>, storage: Option<u64>| {
        let millis = i64::try_from(seconds).unwrap() * 1_000;
        let row = old("app", millis, (10 + seconds) * CORE_SECOND).with(|own| {
            own.swap = swap.and_then(|swap| bytes(millis, swap));
            own.ephemeral_storage = storage.and_then(|storage| bytes(millis, storage));
        });
        harness.scrape(millis + 1, &[row]);
        let usage = harness.usage("default/web-0", "app");
        usage.map(|usage| usage.swap.map(Bytes::count))
    };
    assert_eq!(scrape(0, Some(0), None), None);
    assert_eq!(scrape(15, Some(0), None), Some(Some(0)));
    // Later scrapes report memory alone: they do not make the zero younger.
    assert_eq!(scrape(30, None, None), Some(Some(0)));
    assert_eq!(scrape(59, None, None), Some(Some(0)));
    assert_eq!(scrape(61, None, None), Some(None));
    assert_eq!(scrape(75, Some(7), None), Some(Some(7)));
    assert_eq!(scrape(90, Some(0), Some(1)), Some(Some(0)));

    let harness = Harness::with_pod();
    let both = |seconds: u64| {
        let millis = i64::try_from(seconds).unwrap() * 1_000;
        let row = old("app", millis, (10 + seconds) * CORE_SECOND).with(|own| {
            own.swap = bytes(millis, 0);
            own.ephemeral_storage = bytes(millis, 6);
        });
        harness.scrape(millis + 1, &[row]);
        harness.usage("default/web-0", "app")
    };
    for seconds in [0, 15, 30, 45] {
        let usage = both(seconds);
        let amounts = usage.map(|usage| (usage.swap, usage.ephemeral_storage));
        let all = (Some(Bytes::new(0)), Some(Bytes::new(6)));
        assert_eq!(amounts, (seconds > 0).then_some(all));
    }
}

#[test]
fn a_sample_from_before_a_restart_makes_no_rate_with_the_new_start() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 900 * CORE_SECOND)]);
    // The start time is new already, the counter is still that of the predecessor.
    harness.scrape(
        16_000,
        &[row("app", 15_000, 915 * CORE_SECOND).started(16_000)],
    );
    assert_eq!(harness.served("app"), None);
    harness.scrape(
        31_000,
        &[row("app", 30_000, 7 * CORE_SECOND).started(16_000)],
    );
    assert_eq!(harness.served("app"), Some((500, 14_000, 30_000)));
}

#[test]
fn a_memory_sample_that_is_much_older_than_cpu_is_ignored() {
    let harness = Harness::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let stuck = old("app", now, 0).with(|own| {
            own.cpu = cpu(now, total * CORE_SECOND);
            own.memory = bytes(-60_000, 1);
        });
        harness.scrape(now + 1, &[stuck]);
    }
    assert_eq!(harness.served("app"), None);
}

/// A scrape between two slots, since a pod has started, replaced the samples of all pods of the
/// node: this replica was ahead of the others for the rest of the resolution.
#[test]
fn a_scrape_between_slots_adds_what_is_missing_and_replaces_nothing() {
    let harness = Harness::with_pod();
    let rows = |millis, total: u64| [old("app", millis, total * CORE_SECOND)];
    harness.scrape(1_000, &rows(0, 10));
    harness.scrape(16_000, &rows(15_000, 25));
    let served = harness.served("app");
    assert!(served.is_some());
    harness.pod("n1", "default/web-1");
    let missing = |now: i64, rows: &[Row]| {
        let (uid, rows) = (uid("n1"), batch(rows));
        harness.store.ingest_missing("n1", &uid, &rows, moment(now))
    };
    for (now, total) in [(20_000, 30), (25_000, 35)] {
        let new = row_of("default/web-1", "app", now, total * CORE_SECOND).started(-DAY);
        let [app] = rows(now, total);
        let ingested = missing(now + 100, &[app, new]);
        assert_eq!((ingested.known_node, ingested.new), (true, 1));
    }
    assert_eq!(harness.served("app"), served);
    let new = harness.served_of("default/web-1", "app");
    assert_eq!(new, Some((1_000, 5_000, 25_000)));
    // The rate at the next slot is that of a replica without these scrapes.
    harness.scrape(31_000, &rows(30_000, 40));
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 30_000)));
}

/// What is stale is not served, so that any scrape may replace it.
#[test]
fn a_scrape_between_slots_replaces_stale_usage() {
    let harness = Harness::with_pod();
    let rows = |millis, total: u64| [old("app", millis, total * CORE_SECOND)];
    harness.scrape(1_000, &rows(0, 10));
    harness.scrape(16_000, &rows(15_000, 25));
    harness.store.expire(moment(70_000));
    assert_eq!(harness.served("app"), None);
    let (uid, late) = (uid("n1"), batch(&rows(70_000, 80)));
    harness
        .store
        .ingest_missing("n1", &uid, &late, moment(71_000));
    assert_eq!(harness.served("app"), Some((1_000, 55_000, 70_000)));
}

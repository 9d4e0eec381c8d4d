//! What is served of containers, and of pods with them.

use std::time::Duration;

use kubevitals_model::{Bytes, ContainerSample};

use crate::world::{CORE_SECOND, Row, World, bytes, cpu, millicores, row, row_of};

const DAY: i64 = 86_400_000;

/// A container that has been running for long.
fn old(container: &str, millis: i64, total: u64) -> Row {
    row(container, millis, total).started(-DAY)
}

#[test]
fn the_first_sample_of_an_old_container_is_not_enough() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    assert_eq!(world.pods(), [""; 0]);
}

#[test]
fn two_distinct_samples_make_a_rate_over_the_time_between_them() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    world.scrape(16_000, &[old("app", 14_000, 17 * CORE_SECOND)]);
    assert_eq!(world.served("app"), Some((500, 14_000, 14_000)));
}

#[test]
fn the_time_between_is_that_of_cpu_and_not_of_memory() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    let late = old("app", 10_000, 15 * CORE_SECOND).with(|own| own.memory = bytes(15_000, 7));
    world.scrape(16_000, &[late]);
    assert_eq!(world.served("app"), Some((500, 10_000, 10_000)));
    let usage = world.usage("default/web-0", "app").unwrap();
    assert_eq!(usage.memory, Bytes::new(7));
}

#[test]
fn a_repeated_sample_changes_nothing() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    world.scrape(16_000, &[old("app", 14_000, 17 * CORE_SECOND)]);
    let publications = world.recorder.publications();
    let done = world.scrape(31_000, &[old("app", 14_000, 17 * CORE_SECOND)]);
    assert_eq!((done.repeated, done.new_sample), (1, false));
    assert_eq!(world.served("app"), Some((500, 14_000, 14_000)));
    assert_eq!(world.recorder.publications(), publications);
}

#[test]
fn an_older_sample_is_ignored_and_counted() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    world.scrape(16_000, &[old("app", 14_000, 17 * CORE_SECOND)]);
    let done = world.scrape(31_000, &[old("app", 7_000, 12 * CORE_SECOND)]);
    assert_eq!((done.older, done.new_sample), (1, false));
    assert_eq!(world.served("app"), Some((500, 14_000, 14_000)));
}

#[test]
fn a_fresh_container_is_served_from_its_first_sample() {
    let world = World::with_pod();
    world.scrape(
        21_000,
        &[row("app", 20_000, 6 * CORE_SECOND).started(8_000)],
    );
    assert_eq!(world.served("app"), Some((500, 12_000, 20_000)));
}

#[test]
fn a_container_that_only_just_started_waits_for_its_second_sample() {
    let world = World::with_pod();
    world.scrape(
        16_000,
        &[row("app", 15_000, 9 * CORE_SECOND).started(8_000)],
    );
    assert_eq!(world.served("app"), None);
    world.scrape(
        27_000,
        &[row("app", 25_000, 10 * CORE_SECOND).started(8_000)],
    );
    assert_eq!(world.served("app"), Some((100, 10_000, 25_000)));
}

#[test]
fn an_average_since_a_start_long_ago_is_not_served() {
    let world = World::with_pod();
    world.scrape(
        41_000,
        &[row("app", 40_000, 9 * CORE_SECOND).started(8_000)],
    );
    assert_eq!(world.served("app"), None);
}

#[test]
fn a_lone_sample_that_may_be_hours_old_is_not_served() {
    let world = World::with_pod();
    let stuck = row("app", -3_600_000, 9 * CORE_SECOND).started(-3_612_000);
    world.scrape(1_000, &[stuck]);
    assert_eq!(world.served("app"), None);
}

#[test]
fn a_restarted_container_is_counted_from_its_start() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 900 * CORE_SECOND)]);
    world.scrape(
        16_000,
        &[row("app", 15_000, 6 * CORE_SECOND).started(3_000)],
    );
    assert_eq!(world.served("app"), Some((500, 12_000, 15_000)));
}

#[test]
fn a_container_that_only_just_restarted_keeps_its_last_value() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 900 * CORE_SECOND)]);
    world.scrape(16_000, &[old("app", 15_000, 915 * CORE_SECOND)]);
    world.scrape(
        31_000,
        &[row("app", 30_000, 4 * CORE_SECOND).started(28_000)],
    );
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
    world.scrape(
        46_000,
        &[row("app", 45_000, 7 * CORE_SECOND).started(28_000)],
    );
    assert_eq!(world.served("app"), Some((200, 15_000, 45_000)));
}

#[test]
fn a_counter_that_went_backwards_without_a_restart_keeps_the_last_value() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 900 * CORE_SECOND)]);
    world.scrape(16_000, &[old("app", 15_000, 915 * CORE_SECOND)]);
    world.scrape(31_000, &[old("app", 30_000, CORE_SECOND)]);
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
    world.scrape(46_000, &[old("app", 45_000, 4 * CORE_SECOND)]);
    assert_eq!(world.served("app"), Some((200, 15_000, 45_000)));
}

#[test]
fn a_container_without_memory_is_left_out_and_its_sibling_stays() {
    let world = World::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let without = old("bad", now, total * CORE_SECOND).with(|own| own.memory = None);
        world.scrape(now + 1, &[old("app", now, total * CORE_SECOND), without]);
    }
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(world.served("bad"), None);
}

#[test]
fn a_container_of_which_only_the_start_is_known_hides_nobody() {
    let world = World::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let nothing = old("new", now, 0).with(|own| {
            *own = ContainerSample {
                started: own.started,
                ..ContainerSample::default()
            };
        });
        world.scrape(now + 1, &[nothing, old("app", now, total * CORE_SECOND)]);
    }
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(world.served("new"), None);
}

#[test]
fn a_container_that_is_new_beside_an_old_one_has_no_window_of_centuries() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    let both = [
        old("app", 15_000, 25 * CORE_SECOND),
        old("side", 15_000, 5 * CORE_SECOND),
    ];
    world.scrape(16_000, &both);
    world.scrape(17_000, &both);
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(world.served("side"), None);
}

#[test]
fn a_container_that_used_nothing_is_served_as_such() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 0)]);
    world.scrape(16_000, &[old("app", 15_000, 0)]);
    assert_eq!(world.served("app"), Some((0, 15_000, 15_000)));
}

#[test]
fn a_pod_missing_from_one_answer_keeps_its_last_value_and_its_history() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    world.scrape(16_000, &[old("app", 15_000, 25 * CORE_SECOND)]);
    world.scrape(31_000, &[]);
    world.store.expire(crate::world::at(31_000));
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
    world.scrape(46_000, &[old("app", 45_000, 40 * CORE_SECOND)]);
    assert_eq!(world.served("app"), Some((500, 30_000, 45_000)));
}

#[test]
fn pods_and_containers_are_published_in_order_whatever_the_order_of_the_answer() {
    let world = World::new();
    let names = ["kube-system/b", "default/b", "default/a", "kube-system/a"];
    for name in names {
        world.pod("n1", name);
    }
    for (now, total) in [(0, 10), (15_000, 25)] {
        let rows = ["z", "a", "m"].into_iter().flat_map(|container| {
            names.map(|pod| row_of(pod, container, now, total * CORE_SECOND))
        });
        let done = world.scrape(now + 1, &rows.collect::<Vec<_>>());
        assert_eq!(done.taken, 12);
    }
    // The order itself is what the recorder insists on.
    assert_eq!(world.pods().len(), 4);
    assert_eq!(
        world.served_of("kube-system/b", "m"),
        Some((1_000, 15_000, 15_000))
    );
}

#[test]
fn the_oldest_container_stands_for_the_pod() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND), old("side", 0, 0)]);
    world.scrape(
        16_000,
        &[old("app", 12_000, 22 * CORE_SECOND), old("side", 15_000, 0)],
    );
    let seen = world.recorder.node("n1").unwrap();
    let oldest = seen.pods.first().unwrap().oldest().unwrap();
    assert_eq!(&*oldest.name, "app");
    assert_eq!(oldest.usage.window, Duration::from_secs(12));
}

#[test]
fn the_kubelets_own_average_covers_no_time_before_the_start() {
    let world = World::with_pod();
    let average = |own: &mut ContainerSample| own.cpu_now = Some(millicores(300));
    let fresh = row("app", 8_000, CORE_SECOND).started(4_000).with(average);
    let running = old("side", 8_000, 900 * CORE_SECOND).with(average);
    world.scrape(9_000, &[fresh, running]);
    assert_eq!(world.served("app"), Some((300, 4_000, 8_000)));
    assert_eq!(world.served("side"), Some((300, 15_000, 8_000)));
}

#[test]
fn swap_and_ephemeral_storage_are_served_where_they_are_known() {
    let world = World::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let more = old("app", now, total * CORE_SECOND).with(|own| {
            own.swap = bytes(now, 5);
            own.ephemeral_storage = bytes(now, 6);
        });
        world.scrape(now + 1, &[more, old("side", now, total * CORE_SECOND)]);
    }
    let usage = world.usage("default/web-0", "app").unwrap();
    assert_eq!(usage.swap, Some(Bytes::new(5)));
    assert_eq!(usage.ephemeral_storage, Some(Bytes::new(6)));
    let usage = world.usage("default/web-0", "side").unwrap();
    assert_eq!((usage.swap, usage.ephemeral_storage), (None, None));
}

#[test]
fn swap_of_zero_is_as_old_as_the_answer_that_said_so() {
    let world = World::with_pod();
    let scrape = |seconds: u64, swap: Option<u64>, storage: Option<u64>| {
        let millis = i64::try_from(seconds).unwrap() * 1_000;
        let row = old("app", millis, (10 + seconds) * CORE_SECOND).with(|own| {
            own.swap = swap.and_then(|swap| bytes(millis, swap));
            own.ephemeral_storage = storage.and_then(|storage| bytes(millis, storage));
        });
        world.scrape(millis + 1, &[row]);
        let usage = world.usage("default/web-0", "app");
        usage.map(|usage| usage.swap.map(Bytes::count))
    };
    assert_eq!(scrape(0, Some(0), None), None);
    assert_eq!(scrape(15, Some(0), None), Some(Some(0)));
    // Later answers state memory alone: they do not make the zero younger.
    assert_eq!(scrape(30, None, None), Some(Some(0)));
    assert_eq!(scrape(59, None, None), Some(Some(0)));
    assert_eq!(scrape(61, None, None), Some(None));
    assert_eq!(scrape(75, Some(7), None), Some(Some(7)));
    assert_eq!(scrape(90, Some(0), Some(1)), Some(Some(0)));

    let world = World::with_pod();
    let both = |seconds: u64| {
        let millis = i64::try_from(seconds).unwrap() * 1_000;
        let row = old("app", millis, (10 + seconds) * CORE_SECOND).with(|own| {
            own.swap = bytes(millis, 0);
            own.ephemeral_storage = bytes(millis, 6);
        });
        world.scrape(millis + 1, &[row]);
        world.usage("default/web-0", "app")
    };
    for seconds in [0, 15, 30, 45] {
        let usage = both(seconds);
        let amounts = usage.map(|usage| (usage.swap, usage.ephemeral_storage));
        let all = (Some(Bytes::new(0)), Some(Bytes::new(6)));
        assert_eq!(amounts, (seconds > 0).then_some(all));
    }
}

#[test]
fn a_sample_of_the_container_before_makes_no_rate_with_the_start_of_the_next() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 900 * CORE_SECOND)]);
    // The start is new already, the counter still that of the one before.
    world.scrape(
        16_000,
        &[row("app", 15_000, 915 * CORE_SECOND).started(16_000)],
    );
    assert_eq!(world.served("app"), None);
    world.scrape(
        31_000,
        &[row("app", 30_000, 7 * CORE_SECOND).started(16_000)],
    );
    assert_eq!(world.served("app"), Some((500, 14_000, 30_000)));
}

#[test]
fn a_memory_sample_that_is_much_older_than_cpu_is_not_taken() {
    let world = World::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let stuck = old("app", now, 0).with(|own| {
            own.cpu = cpu(now, total * CORE_SECOND);
            own.memory = bytes(-60_000, 1);
        });
        world.scrape(now + 1, &[stuck]);
    }
    assert_eq!(world.served("app"), None);
}

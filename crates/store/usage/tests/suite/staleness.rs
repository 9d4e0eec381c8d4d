//! How long a value is served when no newer one comes.

use crate::world::{CORE_SECOND, World, at, of_node, row};

fn served_at_16_s() -> World {
    let world = World::with_pod();
    world.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    world.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
    world
}

#[test]
fn the_last_value_is_served_up_to_the_bound_with_its_true_time() {
    let world = served_at_16_s();
    let publications = world.recorder.publications();
    world.store.expire(at(61_000));
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(world.recorder.publications(), publications);
    world.store.expire(at(61_100));
    assert_eq!(world.pods(), [""; 0]);
    world.store.expire(at(62_000));
    assert_eq!(
        world.recorder.publications(),
        publications + 1,
        "that it is gone is told once"
    );
}

#[test]
fn a_kubelet_that_repeats_itself_does_not_keep_a_value_alive() {
    let world = served_at_16_s();
    for now in [31_000, 46_000, 61_100] {
        world.scrape(now, &[row("app", 15_000, 25 * CORE_SECOND)]);
        world.store.expire(at(now));
    }
    assert_eq!(world.pods(), [""; 0]);
}

#[test]
fn after_our_clock_was_set_back_nothing_is_served_for_longer() {
    let world = served_at_16_s();
    world.store.expire(at(17_000));
    // By five seconds.
    world.store.expire(at(12_000));
    world.scrape(13_000, &[row("app", 30_000, 40 * CORE_SECOND)]);
    world.store.expire(at(58_000));
    assert_eq!(world.served("app"), Some((1_000, 15_000, 30_000)));
    world.store.expire(at(58_100));
    assert_eq!(world.pods(), [""; 0]);
}

#[test]
fn a_node_whose_clock_is_wrong_is_served_as_well() {
    for skew in [-600_000, 600_000] {
        let world = World::with_pod();
        world.scrape(1_000, &[row("app", skew, 10 * CORE_SECOND)]);
        world.scrape(16_000, &[row("app", skew + 15_000, 25 * CORE_SECOND)]);
        world.store.expire(at(17_000));
        assert_eq!(world.served("app"), Some((1_000, 15_000, skew + 15_000)));
    }
}

#[test]
fn the_first_answer_after_an_outage_is_enough() {
    let world = served_at_16_s();
    world.store.expire(at(100_000));
    assert_eq!(world.pods(), [""; 0]);
    world.scrape(116_000, &[row("app", 115_000, 35 * CORE_SECOND)]);
    assert_eq!(world.served("app"), Some((100, 100_000, 115_000)));
}

#[test]
fn an_average_over_a_long_outage_is_not_served() {
    let world = served_at_16_s();
    let late = 400_000;
    world.scrape(late, &[row("app", late, 35 * CORE_SECOND)]);
    world.store.expire(at(late));
    assert_eq!(world.pods(), [""; 0]);
    world.scrape(
        late + 15_000,
        &[row("app", late + 15_000, 38 * CORE_SECOND)],
    );
    assert_eq!(world.served("app"), Some((200, 15_000, late + 15_000)));
}

#[test]
fn siblings_grow_old_each_for_itself() {
    let world = World::with_pod();
    let both = |millis, total| {
        [
            row("app", millis, total * CORE_SECOND),
            row("side", millis, total * CORE_SECOND),
        ]
    };
    world.scrape(1_000, &both(0, 10));
    world.scrape(16_000, &both(15_000, 25));
    world.scrape(46_000, &[row("app", 45_000, 40 * CORE_SECOND)]);
    world.store.expire(at(62_000));
    assert_eq!(world.served("app"), Some((500, 30_000, 45_000)));
    assert_eq!(world.served("side"), None);
}

#[test]
fn nodes_grow_old_too() {
    let world = World::new();
    world
        .store
        .ingest("n1", &of_node(0, 10 * CORE_SECOND), at(1_000));
    let batch = of_node(15_000, 25 * CORE_SECOND);
    world.store.ingest("n1", &batch, at(16_000));
    world.store.expire(at(61_000));
    assert_eq!(world.served_node(), Some((1_000, 15_000, 15_000)));
    world.store.expire(at(61_100));
    assert_eq!(world.served_node(), None);
}

#[test]
fn a_value_that_is_too_old_is_not_published_beside_a_new_one() {
    let world = World::with_pod();
    world.pod("n1", "default/web-1");
    world.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    world.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
    // No expiry in between: the publication itself leaves it out.
    let other = crate::world::row_of("default/web-1", "app", 69_000, CORE_SECOND);
    world.scrape(70_000, &[other.started(55_000)]);
    assert_eq!(world.pods(), ["default/web-1"]);
}

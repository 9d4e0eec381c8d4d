//! What is served of nodes.

use kubevitals_model::{Labels, NodeName};

use crate::world::{CORE_SECOND, World, at, millicores, of_node, uid};

fn scrape(world: &World, now: i64, sampled: i64, total: u64) -> bool {
    let batch = of_node(sampled, total);
    world.store.ingest("n1", &batch, at(now)).new_sample
}

#[test]
fn one_sample_is_not_enough() {
    let world = World::new();
    assert!(scrape(&world, 1_000, 0, 10 * CORE_SECOND));
    assert_eq!(world.served_node(), None);
}

#[test]
fn two_distinct_samples_make_a_rate_over_the_time_between_them() {
    let world = World::new();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    assert!(scrape(&world, 16_000, 12_000, 16 * CORE_SECOND));
    assert_eq!(world.served_node(), Some((500, 12_000, 12_000)));
}

#[test]
fn a_repeated_sample_changes_nothing_and_is_not_published() {
    let world = World::new();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    scrape(&world, 16_000, 12_000, 16 * CORE_SECOND);
    let publications = world.recorder.publications();
    assert!(!scrape(&world, 17_000, 12_000, 16 * CORE_SECOND));
    assert_eq!(world.served_node(), Some((500, 12_000, 12_000)));
    assert_eq!(world.recorder.publications(), publications);
    scrape(&world, 31_000, 24_000, 28 * CORE_SECOND);
    assert_eq!(world.served_node(), Some((1_000, 12_000, 24_000)));
}

#[test]
fn an_older_sample_is_ignored() {
    let world = World::new();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    scrape(&world, 16_000, 12_000, 16 * CORE_SECOND);
    assert!(!scrape(&world, 17_000, 6_000, 13 * CORE_SECOND));
    scrape(&world, 31_000, 24_000, 28 * CORE_SECOND);
    assert_eq!(world.served_node(), Some((1_000, 12_000, 24_000)));
}

#[test]
fn a_counter_that_began_anew_keeps_the_last_rate_until_the_next() {
    let world = World::new();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    scrape(&world, 16_000, 12_000, 16 * CORE_SECOND);
    assert!(scrape(&world, 31_000, 24_000, CORE_SECOND));
    assert_eq!(world.served_node(), Some((500, 12_000, 12_000)));
    scrape(&world, 46_000, 36_000, 4 * CORE_SECOND);
    assert_eq!(world.served_node(), Some((250, 12_000, 36_000)));
}

#[test]
fn a_lost_scrape_costs_nothing() {
    let world = World::new();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    scrape(&world, 16_000, 15_000, 25 * CORE_SECOND);
    world.fail(31_000, "connection refused");
    world.store.expire(at(31_000));
    assert_eq!(world.served_node(), Some((1_000, 15_000, 15_000)));
    // The next good one continues from the last: the window is as long as it was.
    scrape(&world, 46_000, 45_000, 40 * CORE_SECOND);
    assert_eq!(world.served_node(), Some((500, 30_000, 45_000)));
}

#[test]
fn a_clock_that_was_set_back_begins_anew_after_the_second_older_sample() {
    let world = World::new();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    scrape(&world, 16_000, 15_000, 25 * CORE_SECOND);
    let hour = 3_600_000;
    assert!(!scrape(&world, 31_000, 30_000 - hour, 26 * CORE_SECOND));
    assert!(scrape(&world, 46_000, 45_000 - hour, 27 * CORE_SECOND));
    assert_eq!(world.served_node(), Some((1_000, 15_000, 15_000)));
    scrape(&world, 61_000, 60_000 - hour, 30 * CORE_SECOND);
    assert_eq!(world.served_node(), Some((200, 15_000, 60_000 - hour)));
}

#[test]
fn a_clock_that_was_set_forward_makes_no_rate_over_time_that_never_passed() {
    let world = World::new();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    scrape(&world, 16_000, 15_000, 25 * CORE_SECOND);
    scrape(&world, 31_000, 150_000, 40 * CORE_SECOND);
    assert_eq!(world.served_node(), Some((1_000, 15_000, 15_000)));
    scrape(&world, 46_000, 165_000, 55 * CORE_SECOND);
    assert_eq!(world.served_node(), Some((1_000, 15_000, 165_000)));
}

#[test]
fn a_node_that_left_is_withdrawn_and_a_late_answer_does_not_bring_it_back() {
    let world = World::with_pod();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    world.store.node_deleted("n1");
    assert_eq!(world.recorder.node("n1"), None);
    assert!(!scrape(&world, 16_000, 15_000, 25 * CORE_SECOND));
    assert_eq!(world.recorder.node("n1"), None);
    // Back under the same name it starts from nothing.
    world.node("n1");
    scrape(&world, 31_000, 30_000, 40 * CORE_SECOND);
    assert_eq!(world.served_node(), None);
}

#[test]
fn another_machine_under_the_same_name_starts_from_nothing() {
    let world = World::new();
    scrape(&world, 1_000, 0, 10 * CORE_SECOND);
    scrape(&world, 16_000, 15_000, 25 * CORE_SECOND);
    let (name, labels) = (NodeName::new("n1"), Labels::default());
    world.store.node_applied(&name, &labels, &uid("another"));
    world.store.flush(at(17_000));
    assert_eq!(world.served_node(), None);
    scrape(&world, 31_000, 30_000, 40 * CORE_SECOND);
    assert_eq!(world.served_node(), None);
}

#[test]
fn the_labels_of_a_node_are_published_when_they_change() {
    let world = World::new();
    let labels = Labels::from_sorted([("zone".into(), "a".into())].into());
    let before = world.recorder.publications();
    for _ in 0..2 {
        let name = NodeName::new("n1");
        world.store.node_applied(&name, &labels, &uid("n1"));
        world.store.flush(at(1_000));
    }
    assert_eq!(world.recorder.node("n1").unwrap().labels, labels);
    assert_eq!(world.recorder.publications(), before + 1);
}

#[test]
fn the_kubelets_own_average_serves_until_two_samples_are_there() {
    let world = World::new();
    let mut batch = of_node(0, 10 * CORE_SECOND);
    batch.node.cpu_now = Some(millicores(700));
    world.store.ingest("n1", &batch, at(1_000));
    assert_eq!(world.served_node(), Some((700, 15_000, 0)));
    batch = of_node(12_000, 13 * CORE_SECOND);
    batch.node.cpu_now = Some(millicores(700));
    world.store.ingest("n1", &batch, at(16_000));
    assert_eq!(world.served_node(), Some((250, 12_000, 12_000)));
}

#[test]
fn an_average_of_the_kubelet_that_may_be_hours_old_does_not_serve() {
    let world = World::new();
    let mut batch = of_node(-3_600_000, 10 * CORE_SECOND);
    batch.node.cpu_now = Some(millicores(700));
    world.store.ingest("n1", &batch, at(1_000));
    assert_eq!(world.served_node(), None);
}

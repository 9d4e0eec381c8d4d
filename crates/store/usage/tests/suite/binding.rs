//! Whose word counts: pods as the API knows them, against what kubelets say.

use std::sync::Arc;

use kubevitals_model::{Labels, PodPhase, PodSummary};

use crate::world::{CORE_SECOND, World, at, batch, pod, row, row_of, uid};

fn two_samples(world: &World) {
    world.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    world.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
}

fn apply(world: &World, pod: PodSummary) {
    world.store.pod_applied(&Arc::new(pod));
    world.store.flush(at(17_000));
}

#[test]
fn a_pod_that_is_bound_to_another_node_is_dropped_and_counted() {
    let world = World::new();
    world.node("n2");
    world.pod("n2", "default/web-0");
    let done = world.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    assert_eq!((done.foreign, done.held, done.taken), (1, 0, 0));
    world.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
    assert_eq!(world.pods(), [""; 0]);
    // Its own node speaks for it.
    for (now, total) in [(0, 10), (15_000, 25)] {
        let batch = batch(&[row("app", now, total * CORE_SECOND)]);
        world.store.ingest("n2", &batch, at(now + 1));
    }
    assert_eq!(world.recorder.node("n2").unwrap().pods.len(), 1);
}

#[test]
fn a_pod_that_the_api_tells_of_later_has_lost_no_time() {
    let world = World::new();
    let publications = world.recorder.publications();
    let done = world.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    assert_eq!((done.held, done.new_sample), (1, true));
    let done = world.scrape(2_000, &[row("app", 0, 10 * CORE_SECOND)]);
    assert_eq!((done.held, done.new_sample), (1, false));
    world.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
    assert_eq!(world.recorder.publications(), publications);
    assert_eq!(world.pods(), [""; 0], "it is not known");
    apply(&world, pod("n1", "default/web-0"));
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
}

#[test]
fn samples_of_pods_that_are_never_told_of_are_forgotten() {
    let world = World::new();
    two_samples(&world);
    world.store.expire(at(61_100));
    apply(&world, pod("n1", "default/web-0"));
    assert_eq!(world.pods(), [""; 0]);
}

#[test]
fn what_is_held_for_unknown_pods_is_bounded() {
    let world = World::with_pod();
    let unknown = (0..600).map(|n| row_of(&format!("default/x-{n}"), "app", 0, CORE_SECOND));
    let mut rows: Vec<_> = unknown.collect();
    rows.push(row("app", 0, CORE_SECOND));
    for _ in 0..2 {
        let done = world.scrape(1_000, &rows);
        assert_eq!((done.held, done.overflowed), (512, 88));
        assert_eq!(done.taken + done.repeated, 1);
    }
}

#[test]
fn a_pod_has_no_more_containers_than_is_sane() {
    let world = World::with_pod();
    let rows: Vec<_> = (0..600).map(|n| row(&format!("c-{n}"), 0, 1)).collect();
    let done = world.scrape(1_000, &rows);
    assert_eq!((done.taken, done.overflowed), (512, 88));
}

#[test]
fn only_running_pods_are_served_but_their_samples_count_before() {
    let world = World::new();
    let mut pending = pod("n1", "default/web-0");
    pending.phase = PodPhase::Pending;
    apply(&world, pending);
    two_samples(&world);
    assert_eq!(world.pods(), [""; 0]);
    apply(&world, pod("n1", "default/web-0"));
    assert_eq!(world.served("app"), Some((1_000, 15_000, 15_000)));
    let mut done = pod("n1", "default/web-0");
    done.phase = PodPhase::Succeeded;
    apply(&world, done);
    assert_eq!(world.pods(), [""; 0]);
    let done = world.scrape(31_000, &[row("app", 30_000, 30 * CORE_SECOND)]);
    assert_eq!((done.foreign, done.held), (1, 0));
}

#[test]
fn a_deleted_pod_goes_at_the_next_flush() {
    let world = World::with_pod();
    two_samples(&world);
    world.store.pod_deleted(&pod("n1", "default/web-0"));
    world.store.flush(at(17_000));
    assert_eq!(world.pods(), [""; 0]);
}

#[test]
fn a_pod_that_was_made_again_does_not_inherit() {
    let world = World::with_pod();
    two_samples(&world);
    let mut again = pod("n1", "default/web-0");
    again.identity.uid = uid("another");
    apply(&world, again);
    assert_eq!(world.pods(), [""; 0]);
    // A late word of the one before takes nothing from it.
    world.scrape(31_000, &[row("app", 30_000, 10 * CORE_SECOND)]);
    world.scrape(46_000, &[row("app", 45_000, 13 * CORE_SECOND)]);
    world.store.pod_deleted(&pod("n1", "default/web-0"));
    world.store.flush(at(46_000));
    assert_eq!(world.served("app"), Some((200, 15_000, 45_000)));
}

#[test]
fn a_pod_that_was_made_again_elsewhere_leaves_its_old_node() {
    let world = World::with_pod();
    world.node("n2");
    two_samples(&world);
    let mut again = pod("n2", "default/web-0");
    again.identity.uid = uid("another");
    apply(&world, again);
    assert_eq!(world.pods(), [""; 0]);
}

#[test]
fn a_burst_of_changes_publishes_a_node_once() {
    let world = World::with_pod();
    two_samples(&world);
    let before = world.recorder.publications();
    let mut labels = Labels::default();
    for value in ["a", "b", "c"] {
        labels = Labels::from_sorted([("app".into(), value.into())].into());
        let mut changed = pod("n1", "default/web-0");
        changed.labels = labels.clone();
        world.store.pod_applied(&Arc::new(changed));
    }
    world.store.flush(at(17_000));
    world.store.flush(at(17_000));
    assert_eq!(world.recorder.publications(), before + 1);
    let seen = world.recorder.node("n1").unwrap();
    assert_eq!(seen.pods.first().unwrap().labels, labels);
    assert_eq!(seen.published, at(17_000));
}

#[test]
fn pods_missing_from_a_resync_are_gone_and_the_others_keep_their_history() {
    let world = World::with_pod();
    world.pod("n1", "default/web-1");
    for (now, total) in [(0, 10), (15_000, 25)] {
        let total = total * CORE_SECOND;
        let both = ["default/web-0", "default/web-1"];
        world.scrape(now + 1, &both.map(|pod| row_of(pod, "app", now, total)));
    }
    world
        .store
        .pods_replaced(&[Arc::new(pod("n1", "default/web-1"))]);
    world.store.flush(at(17_000));
    assert_eq!(world.pods(), ["default/web-1"]);
}

#[test]
fn nodes_missing_from_a_resync_are_gone() {
    let world = World::new();
    world.node("n2");
    let (name, labels, uid) = ("n2".into(), Labels::default(), uid("n2"));
    world.store.nodes_replaced([(&name, &labels, &uid)]);
    assert_eq!(world.recorder.node("n1"), None);
    assert!(world.recorder.node("n2").is_some());
    assert_eq!(world.store.readiness(at(0)).nodes_known, 1);
}

#[test]
fn pods_that_come_before_their_node_are_there_when_it_comes() {
    let world = World::new();
    world.pod("n2", "default/web-0");
    assert!(world.recorder.node("n2").is_none());
    world.node("n2");
    for (now, total) in [(0, 10), (15_000, 25)] {
        let batch = batch(&[row("app", now, total * CORE_SECOND)]);
        assert_eq!(world.store.ingest("n2", &batch, at(now + 1)).taken, 1);
    }
    assert_eq!(world.recorder.node("n2").unwrap().pods.len(), 1);
}

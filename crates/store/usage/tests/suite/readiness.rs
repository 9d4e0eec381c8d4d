//! Whether there is anything to serve, and what keeps the rest away.

use crate::world::{CORE_SECOND, World, at, batch, of_node, row};

fn both(millis: i64, total: u64) -> kubevitals_model::NodeBatch {
    let mut all = batch(&[row("app", millis, total * CORE_SECOND)]);
    all.node = of_node(millis, total * CORE_SECOND).node;
    all
}

#[test]
fn an_empty_store_is_not_ready() {
    let world = World::with_pod();
    let readiness = world.store.readiness(at(0));
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(
        readiness,
        @"no metrics to serve: 0 of 1 nodes and 0 of 1 running pods served; 1 × not asked yet (n1)"
    );
}

#[test]
fn one_sample_is_not_ready_and_two_are() {
    let world = World::with_pod();
    world.store.ingest("n1", &both(0, 10), at(1_000));
    let readiness = world.store.readiness(at(2_000));
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(
        readiness,
        @"no metrics to serve: 0 of 1 nodes and 0 of 1 running pods served; 1 × only one sample so far (n1)"
    );
    world.store.ingest("n1", &both(15_000, 25), at(16_000));
    let readiness = world.store.readiness(at(17_000));
    assert!(readiness.is_ready());
    insta::assert_snapshot!(readiness, @"1 of 1 nodes and 1 of 1 running pods served");
    world.store.expire(at(90_000));
    assert!(!world.store.readiness(at(90_000)).is_ready());
}

#[test]
fn a_cluster_in_which_no_pod_runs_does_not_wait_for_one() {
    let world = World::new();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let batch = of_node(now, total * CORE_SECOND);
        world.store.ingest("n1", &batch, at(now + 1_000));
    }
    assert!(world.store.readiness(at(17_000)).is_ready());
    world.pod("n1", "default/web-0");
    assert!(!world.store.readiness(at(17_000)).is_ready());
}

#[test]
fn the_most_frequent_reasons_are_named() {
    let world = World::new();
    for number in 0..9 {
        let name = format!("x{number}");
        world.node(&name);
        let why = match number {
            0..4 => "403 Forbidden: the service account may not get nodes/metrics",
            4..7 => "timed out after 10 s",
            7 => "connection refused",
            _ => "no such host",
        };
        world
            .store
            .scrape_failed(&name, why.into(), None, at(1_000));
    }
    insta::assert_snapshot!(
        world.store.readiness(at(2_000)),
        @"no metrics to serve: 0 of 10 nodes and 0 of 0 running pods served; 4 × 403 Forbidden: the service account may not get nodes/metrics (x0), 3 × timed out after 10 s (x4), 1 × not asked yet (n1)"
    );
}

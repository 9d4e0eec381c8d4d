//! Readiness, and the reasons why nodes have no usage.

use crate::harness::{CORE_SECOND, Harness, at, batch, of_node, row};

fn both(millis: i64, total: u64) -> kubevitals_model::NodeBatch {
    let mut all = batch(&[row("app", millis, total * CORE_SECOND)]);
    all.node = of_node(millis, total * CORE_SECOND).node;
    all
}

#[test]
fn an_empty_store_is_not_ready() {
    let harness = Harness::with_pod();
    let readiness = harness.store.readiness(at(0));
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(
        readiness,
        @"no metrics to serve: 0 of 1 nodes and 0 of 1 running pods have metrics; 1 × not scraped yet (n1)"
    );
}

#[test]
fn one_sample_is_not_ready_and_two_are() {
    let harness = Harness::with_pod();
    harness.store.ingest("n1", &both(0, 10), at(1_000));
    let readiness = harness.store.readiness(at(2_000));
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(
        readiness,
        @"no metrics to serve: 0 of 1 nodes and 0 of 1 running pods have metrics; 1 × only one sample so far (n1)"
    );
    harness.store.ingest("n1", &both(15_000, 25), at(16_000));
    let readiness = harness.store.readiness(at(17_000));
    assert!(readiness.is_ready());
    insta::assert_snapshot!(readiness, @"1 of 1 nodes and 1 of 1 running pods have metrics");
    harness.store.expire(at(90_000));
    assert!(!harness.store.readiness(at(90_000)).is_ready());
}

#[test]
fn a_cluster_without_running_pods_is_ready() {
    let harness = Harness::new();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let batch = of_node(now, total * CORE_SECOND);
        harness.store.ingest("n1", &batch, at(now + 1_000));
    }
    assert!(harness.store.readiness(at(17_000)).is_ready());
    harness.pod("n1", "default/web-0");
    assert!(!harness.store.readiness(at(17_000)).is_ready());
}

#[test]
fn the_most_frequent_reasons_are_named() {
    let harness = Harness::new();
    for number in 0..9 {
        let name = format!("x{number}");
        harness.node(&name);
        let reason = match number {
            0..4 => "403 Forbidden: the service account may not get nodes/metrics",
            4..7 => "timed out after 10 s",
            7 => "connection refused",
            _ => "no such host",
        };
        harness
            .store
            .scrape_failed(&name, reason.into(), None, at(1_000));
    }
    insta::assert_snapshot!(
        harness.store.readiness(at(2_000)),
        @"no metrics to serve: 0 of 10 nodes and 0 of 0 running pods have metrics; 4 × 403 Forbidden: the service account may not get nodes/metrics (x0), 3 × timed out after 10 s (x4), 1 × not scraped yet (n1)"
    );
}

//! Batches, and a queue that is full.

use kubevitals_sink::{DropReason, SinkMetrics};
use prometheus_client::registry::Registry;
use tokio::time::sleep;

use crate::support::{Harness, Step, seconds};

#[tokio::test(start_paused = true)]
async fn a_batch_is_exported_when_it_is_full_or_has_lingered() {
    let harness = Harness::start([]);
    assert_eq!(harness.push(0..9), 9);
    sleep(seconds(2)).await;
    assert_eq!(
        harness.calls(),
        [
            (seconds(0), vec![0, 1, 2, 3]),
            (seconds(0), vec![4, 5, 6, 7]),
            (seconds(1), vec![8]),
        ]
    );
    harness.push([9]);
    sleep(seconds(2)).await;
    assert_eq!(harness.calls().last(), Some(&(seconds(3), vec![9])));
    assert_eq!(harness.counts(), [10, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fills_up_does_not_linger() {
    let harness = Harness::start([]);
    harness.push([0]);
    sleep(seconds(1) / 2).await;
    harness.push(1..4);
    sleep(seconds(5)).await;
    assert_eq!(harness.calls(), [(seconds(1) / 2, vec![0, 1, 2, 3])]);
}

/// A batch in flight still counts against the capacity.
#[tokio::test(start_paused = true)]
async fn a_slow_exporter_costs_records_and_no_time() {
    let harness = Harness::start([Step::Slow(seconds(60))]);
    assert_eq!(harness.push(0..4), 4);
    sleep(seconds(1)).await;
    assert_eq!(harness.push(4..20), 6);
    assert_eq!(harness.counts(), [0, 10, 10]);
    assert_eq!(harness.dropped(DropReason::QueueFull), 10);
    assert_eq!(harness.calls().len(), 1);
    sleep(seconds(62)).await;
    assert_eq!(harness.counts(), [10, 10, 0]);
    assert_eq!(harness.calls().last(), Some(&(seconds(61), vec![8, 9])));
    assert_eq!(harness.push([20]), 1);
}

#[test]
fn every_reason_is_exposed_from_the_start() {
    let mut registry = Registry::with_prefix("test");
    let _metrics = SinkMetrics::register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for expected in [
        "test_exported_total 0",
        "test_retries_total 0",
        "test_queued 0",
        "test_dropped_total{reason=\"queue_full\"} 0",
        "test_dropped_total{reason=\"rejected\"} 0",
        "test_dropped_total{reason=\"retries_exhausted\"} 0",
        "test_dropped_total{reason=\"shutdown\"} 0",
    ] {
        assert!(series.contains(&expected), "{expected}: {text}");
    }
    assert_eq!(series.len(), 7);
}

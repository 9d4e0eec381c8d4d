//! The end of a sink.

use kubevitals_sink::{DropReason, SinkCounts};
use tokio::time::{Instant, sleep};

use crate::support::{Harness, Item, Step, retryable, seconds};

#[tokio::test(start_paused = true)]
async fn shutdown_exports_what_is_queued_without_lingering() {
    let harness = Harness::start([]);
    harness.push(0..6);
    let started = Instant::now();
    let counts = harness.sink.shutdown(seconds(10)).await;
    assert_eq!(started.elapsed(), seconds(0));
    assert_eq!((counts.exported, counts.dropped, counts.queued), (6, 0, 0));
    assert_eq!(harness.push([6]), 0);
    assert_eq!(harness.dropped(DropReason::Shutdown), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_with_the_grace_period_whatever_the_exporter_does() {
    for step in [Step::Slow(seconds(60)), retryable(Some(15))] {
        let harness = Harness::start([step]);
        harness.push(0..6);
        let started = Instant::now();
        let counts = harness.sink.shutdown(seconds(10)).await;
        assert_eq!(started.elapsed(), seconds(10));
        let expected = SinkCounts {
            exported: 0,
            dropped: 6,
            queued: 0,
        };
        assert_eq!(counts, expected);
        assert_eq!(harness.dropped(DropReason::Shutdown), 6);
        // The export is cancelled, and the worker ends.
        sleep(seconds(1)).await;
        assert!(harness.worker.is_finished());
        assert_eq!(harness.sink.counts(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_worker_ends_when_the_last_sink_is_dropped() {
    let harness = Harness::start([]);
    let other = harness.sink.clone();
    harness.push([0]);
    let Harness {
        sink,
        worker,
        metrics,
        ..
    } = harness;
    drop(sink);
    assert!(other.push(Item(1)));
    drop(other);
    worker.await.unwrap();
    assert_eq!(metrics.exported().get(), 2);
}

//! Exporters that fail.

use kubevitals_sink::{DropReason, ExportError};
use tokio::time::sleep;

use crate::support::{Harness, Step, retryable, seconds};

#[tokio::test(start_paused = true)]
async fn a_failed_batch_is_retried_with_back_off_before_any_other() {
    let harness = Harness::start([
        retryable(None),
        retryable(None),
        retryable(Some(7)),
        retryable(None),
    ]);
    harness.push(0..6);
    sleep(seconds(30)).await;
    let calls = harness.calls();
    let first = vec![0, 1, 2, 3];
    let times = [0, 1, 3, 10];
    for (call, time) in calls.iter().zip(times) {
        assert_eq!(call, &(seconds(time), first.clone()));
    }
    // The fourth failure in a row doubles the delay for the fourth time.
    assert_eq!(calls.get(4), Some(&(seconds(18), first)));
    assert_eq!(calls.get(5).map(|call| &call.1), Some(&vec![4, 5]));
    assert_eq!(harness.counts(), [6, 0, 0]);
    assert_eq!(harness.metrics.retries().get(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_dropped_when_its_retries_are_exhausted() {
    let harness = Harness::start((0..5).map(|_| retryable(None)));
    harness.push(0..5);
    sleep(seconds(60)).await;
    // At 0, 1, 3, 7 and 15 s; the next would be later than 20 s.
    assert_eq!(harness.calls().len(), 6);
    assert_eq!(harness.calls().last().map(|call| &call.1), Some(&vec![4]));
    assert_eq!(harness.counts(), [1, 4, 0]);
    assert_eq!(harness.dropped(DropReason::RetriesExhausted), 4);
}

#[tokio::test(start_paused = true)]
async fn rejected_records_are_not_retried() {
    let harness = Harness::start([Step::Fail(ExportError::Rejected {
        message: "unknown metric".to_owned(),
        records: 3,
    })]);
    harness.push(0..5);
    sleep(seconds(2)).await;
    assert_eq!(harness.calls().len(), 2);
    assert_eq!(harness.counts(), [2, 3, 0]);
    assert_eq!(harness.dropped(DropReason::Rejected), 3);
}

#[tokio::test(start_paused = true)]
async fn a_closed_exporter_ends_the_worker_and_everything_is_counted() {
    let harness = Harness::start([Step::Fail(ExportError::Closed {
        message: "broken pipe".to_owned(),
        records: 1,
    })]);
    harness.push(0..6);
    sleep(seconds(1)).await;
    assert!(harness.worker.is_finished());
    assert_eq!(harness.counts(), [3, 3, 0]);
    assert_eq!(harness.push([6]), 0);
    assert_eq!(harness.dropped(DropReason::Rejected), 4);
    assert_eq!(harness.sink.shutdown(seconds(60)).await.dropped, 4);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_worker_leaves_nothing_uncounted() {
    let harness = Harness::start([Step::Slow(seconds(60))]);
    harness.push(0..6);
    sleep(seconds(1)).await;
    harness.worker.abort();
    sleep(seconds(1)).await;
    assert_eq!(harness.counts(), [0, 6, 0]);
    assert_eq!(harness.push([6]), 0);
    assert_eq!(harness.dropped(DropReason::Shutdown), 7);
}

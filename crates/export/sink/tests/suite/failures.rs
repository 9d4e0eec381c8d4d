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

fn partial(retry: &[usize], rejected: u64) -> Step {
    Step::Fail(ExportError::Partial {
        message: "some failed".to_owned(),
        after: Some(seconds(2)),
        retry: retry.to_vec(),
        rejected,
    })
}

#[tokio::test(start_paused = true)]
async fn only_the_items_that_an_exporter_names_are_retried_and_every_record_is_counted_once() {
    let harness = Harness::start([partial(&[1, 2, 3], 1), partial(&[0, 2], 0)]);
    harness.push(0..6);
    sleep(seconds(1)).await;
    // One was rejected; three are in flight, and two wait.
    assert_eq!(harness.counts(), [0, 1, 5]);
    sleep(seconds(30)).await;
    let batches: Vec<Vec<u64>> = harness.calls().into_iter().map(|call| call.1).collect();
    assert_eq!(
        batches,
        [vec![0, 1, 2, 3], vec![1, 2, 3], vec![1, 3], vec![4, 5]]
    );
    assert_eq!(harness.counts(), [5, 1, 0]);
    assert_eq!(harness.dropped(DropReason::Rejected), 1);
    assert_eq!(harness.metrics.retries().get(), 2);
    assert_eq!(harness.metrics.queued().get(), 0);
}

/// The exporter is ours, but a wrong position must not cost more than its item.
#[tokio::test(start_paused = true)]
async fn positions_that_are_none_are_ignored() {
    let harness = Harness::start([partial(&[3, 1, 9], 7), partial(&[], 0)]);
    harness.push(0..4);
    sleep(seconds(10)).await;
    assert_eq!(harness.calls().len(), 2);
    assert_eq!(harness.calls().last().map(|call| &call.1), Some(&vec![3]));
    assert_eq!(harness.counts(), [1, 3, 0]);
}

/// The part that is left is what counts against the capacity, and what shutdown drops.
#[tokio::test(start_paused = true)]
async fn a_part_that_waits_for_its_retry_is_dropped_alone_at_shutdown() {
    let harness = Harness::start([partial(&[3], 0)]);
    harness.push(0..4);
    sleep(seconds(1)).await;
    assert_eq!(harness.push(4..20), 9);
    let counts = harness.sink.shutdown(seconds(0)).await;
    assert_eq!((counts.exported, counts.dropped, counts.queued), (3, 17, 0));
    assert_eq!(harness.dropped(DropReason::Shutdown), 10);
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

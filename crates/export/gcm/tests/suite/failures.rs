//! A backend that fails: nothing is lost that the queue can hold, and every point is counted once.

use std::time::Duration;

use kubevitals_gcm::{Code, GcmSettings};
use kubevitals_model::Rng;
use kubevitals_sim::google::{MessageStyle, MonitoringFault};
use kubevitals_sink::{DataPoint, DropReason, Measurement, Number, SinkConfig};
use tokio::time::timeout;

use crate::support::{
    DEADLINE, Pipeline, Results, at, backend, clock, counter, gauge, no_metadata, quick, settings,
    written,
};

fn status(status: u16) -> MonitoringFault {
    MonitoringFault::Status(status, Vec::new())
}

/// The ends of each series increase, and none is there twice.
fn assert_in_order(written: &[(String, i64)]) {
    let mut last = std::collections::BTreeMap::new();
    for (pool, second) in written {
        assert!(last.insert(pool, *second) < Some(*second), "{written:?}");
    }
}

#[tokio::test]
async fn a_backend_that_is_busy_gets_the_same_points_later() {
    let clock = clock();
    let backend = backend(&clock).await;
    backend.fail([
        MonitoringFault::Status(429, vec![("retry-after", "0".to_owned())]),
        status(503),
        status(500),
        status(502),
        MonitoringFault::Close,
        MonitoringFault::Hang,
    ]);
    let settings = GcmSettings {
        timeout: Duration::from_millis(200),
        ..settings(backend.address)
    };
    let pipeline = Pipeline::start(settings, &clock);
    let pushed = pipeline.push((0..30).map(|series| gauge(series, 0)));
    let results = pipeline.flush(pushed).await;
    // An answer may come after its timeout here too, if the machine is slow.
    assert_eq!(results.sent + results.duplicate, 30);
    let received = backend.received();
    assert_eq!(received.points.len(), 30);
    assert!(received.calls.len() >= 7, "{:?}", received.calls);
}

#[tokio::test]
async fn points_whose_answer_got_lost_are_duplicates_and_no_loss() {
    for fault in [
        MonitoringFault::WrittenThen(504),
        MonitoringFault::WrittenThenHang,
        MonitoringFault::WrittenThen(500),
    ] {
        for style in [
            MessageStyle::Ranges,
            MessageStyle::Resource,
            MessageStyle::Example,
        ] {
            let clock = clock();
            let backend = backend(&clock).await;
            backend.set_style(style);
            backend.fail([fault.clone()]);
            let settings = GcmSettings {
                timeout: Duration::from_millis(300),
                ..settings(backend.address)
            };
            let pipeline = Pipeline::start(settings, &clock);
            let pushed = pipeline.push([gauge(1, 0), gauge(2, 0), counter(3, -9, 0, 4)]);
            let expected = Results {
                duplicate: 3,
                ..Results::default()
            };
            assert_eq!(
                pipeline.flush(pushed).await,
                expected,
                "{fault:?} {style:?}"
            );
            assert_eq!(backend.received().points.len(), 3);
        }
    }
}

#[tokio::test]
async fn only_the_series_that_failed_inside_are_sent_again() {
    for style in [
        MessageStyle::Ranges,
        MessageStyle::Resource,
        MessageStyle::Example,
    ] {
        let clock = clock();
        let backend = backend(&clock).await;
        backend.set_style(style);
        backend.fail([
            MonitoringFault::Internal(vec![1, 2, 3, 7]),
            MonitoringFault::Internal(vec![0]),
        ]);
        let pipeline = Pipeline::start(settings(backend.address), &clock);
        let pushed = pipeline.push((0..10).map(|series| gauge(series, 0)));
        let results = pipeline.flush(pushed).await;
        assert_eq!(results, Results::sent(10), "{style:?}");
        let received = backend.received();
        let calls: Vec<(usize, u16)> = received
            .calls
            .iter()
            .map(|call| (call.series, call.status))
            .collect();
        assert_eq!(calls, [(10, 500), (4, 500), (1, 200)], "{style:?}");
    }
}

/// A later point would make the one before it too old.
#[tokio::test]
async fn a_point_that_waits_holds_up_those_that_follow_it() {
    let clock = clock();
    let backend = backend(&clock).await;
    backend.fail([MonitoringFault::Internal(vec![0])]);
    let config = SinkConfig {
        linger: Duration::from_millis(300),
        ..quick()
    };
    let pipeline = Pipeline::start_as(
        settings(backend.address),
        &clock,
        kubevitals_gcm::Credentials::Anonymous,
        no_metadata(),
        config,
    );
    let pushed = pipeline.push([gauge(1, -60), gauge(2, -60), gauge(1, 0), gauge(2, 0)]);
    assert_eq!(pipeline.flush(pushed).await, Results::sent(4));
    let found = written(&backend.received());
    assert_in_order(&found);
    assert_eq!(found.len(), 4);
}

#[tokio::test]
async fn failures_that_no_one_names_are_counted_as_unknown() {
    let clock = clock();
    let backend = backend(&clock).await;
    backend.fail([MonitoringFault::Unnamed(vec![2, 5, 6])]);
    let pipeline = Pipeline::start(settings(backend.address), &clock);
    let pushed = pipeline.push((0..8).map(|series| gauge(series, 0)));
    let results = pipeline.flush(pushed).await;
    assert_eq!((results.sent, results.unknown), (5, 3));
    assert_eq!(backend.received().points.len(), 5);
}

#[tokio::test]
async fn series_that_the_backend_refuses_are_counted_by_code_and_cost_no_other() {
    let clock = clock();
    let backend = backend(&clock).await;
    // Another process wrote these series.
    let other = Pipeline::start(settings(backend.address), &clock);
    let pushed = other.push([gauge(1, -2), gauge(2, 30)]);
    assert_eq!(other.flush(pushed).await, Results::sent(2));
    let pipeline = Pipeline::start(settings(backend.address), &clock);
    let float = DataPoint {
        measurement: Measurement::Gauge(Number::Float(1.5)),
        ..gauge(4, 0)
    };
    let pushed = pipeline.push([gauge(1, 0), gauge(2, 0), gauge(3, 0), float]);
    let counted = pipeline.results.clone();
    let results = pipeline.flush(pushed).await;
    assert_eq!((results.sent, results.rejected), (1, 3));
    for code in [Code::TooFrequent, Code::OutOfOrder, Code::InvalidArgument] {
        assert_eq!(counted.rejected(code).get(), 1, "{code:?}");
    }
}

#[tokio::test]
async fn a_new_process_continues_cumulative_series_from_a_start_of_its_own() {
    let clock = clock();
    let backend = backend(&clock).await;
    let pipeline = Pipeline::start(settings(backend.address), &clock);
    let pushed = pipeline.push([counter(1, -500, -120, 40), counter(2, -500, -120, 1)]);
    assert_eq!(pipeline.flush(pushed).await, Results::sent(2));
    let pipeline = Pipeline::start(settings(backend.address), &clock);
    // The second started before the last point of the process before it.
    let pushed = pipeline.push([
        counter(1, -119, -60, 2),
        counter(2, -121, -60, 2),
        counter(1, -119, 0, 3),
    ]);
    let counted = pipeline.results.clone();
    let results = pipeline.flush(pushed).await;
    assert_eq!((results.sent, results.rejected), (2, 1));
    assert_eq!(counted.rejected(Code::OutOfOrder).get(), 1);
    let starts: Vec<_> = backend.received().points.iter().map(|p| p.start).collect();
    let [old, new] = [Some(at(-500)), Some(at(-119))];
    assert_eq!(starts, [old, old, new, new]);
}

#[tokio::test]
async fn a_queue_that_is_full_drops_what_does_not_fit_and_counts_it() {
    let clock = clock();
    let backend = backend(&clock).await;
    backend.always(Some(MonitoringFault::Hang));
    let config = SinkConfig {
        capacity: 20,
        max_batch: 10,
        ..quick()
    };
    let pipeline = Pipeline::start_as(
        settings(backend.address),
        &clock,
        kubevitals_gcm::Credentials::Anonymous,
        no_metadata(),
        config,
    );
    let pushed = pipeline.push((0..50).map(|series| gauge(series, 0)));
    backend.until(|received| !received.calls.is_empty()).await;
    assert_eq!(pipeline.drops.dropped(DropReason::QueueFull).get(), 30);
    let shutdown = pipeline.sink.shutdown(Duration::from_millis(20));
    timeout(DEADLINE, shutdown).await.unwrap();
    let results = pipeline.flush(pushed).await;
    assert_eq!(results.dropped, 50);
    assert_eq!(backend.received().points, []);
}

/// Whatever goes wrong for a time, every point that fits the queue is written once, in order.
#[tokio::test]
async fn faults_that_end_cost_no_point() {
    const SERIES: usize = 25;
    const TICKS: i64 = 6;
    for seed in 0..12 {
        let mut rng = Rng::seeded(seed);
        let clock = clock();
        let backend = backend(&clock).await;
        let positions = |rng: &mut Rng| {
            let each = 0..SERIES;
            each.filter(|_| rng.next_u64().is_multiple_of(3))
                .collect::<Vec<usize>>()
        };
        let faults = (0..12).map(|_| match rng.next_u64() % 8 {
            0 => status(429),
            1 => status(503),
            2 => status(500),
            3 => MonitoringFault::WrittenThen(504),
            4 => MonitoringFault::Close,
            5 => MonitoringFault::WrittenThenHang,
            6 => status(403),
            _ => MonitoringFault::Internal(positions(&mut rng)),
        });
        backend.fail(faults.collect::<Vec<_>>());
        let settings = GcmSettings {
            timeout: Duration::from_millis(60),
            ..settings(backend.address)
        };
        let pipeline = Pipeline::start(settings, &clock);
        let mut pushed = 0;
        for tick in 0..TICKS {
            let second = (tick - TICKS) * 60;
            pushed += pipeline.push((0..SERIES).map(|series| gauge(series, second)));
            let counters = (0..SERIES).map(|series| counter(series, -9_000, second, tick));
            pushed += pipeline.push(counters);
            tokio::task::yield_now().await;
        }
        let results = pipeline.flush(pushed).await;
        let lost = results.unknown + results.rejected + results.dropped;
        assert_eq!(lost, 0, "seed {seed}: {results:?}");
        let points = backend.received().points;
        assert_eq!(points.len() as u64, pushed, "seed {seed}");
        let of = |name: &str| {
            let mut received = backend.received();
            received
                .points
                .retain(|point| point.metric_type.ends_with(name));
            written(&received)
        };
        assert_in_order(&of("node_condition"));
        assert_in_order(&of("restart"));
    }
}

/// Whatever goes wrong, for ever or for a time, the results add up to what was recorded, and what
/// is counted as written is written.
#[tokio::test]
async fn results_add_up_whatever_goes_wrong() {
    for seed in 100..112 {
        let mut rng = Rng::seeded(seed);
        let clock = clock();
        let backend = backend(&clock).await;
        let faults = (0..10).map(|_| match rng.next_u64() % 6 {
            0 => status(429),
            1 => MonitoringFault::Unnamed(vec![0, 3, 4]),
            2 => MonitoringFault::Internal(vec![1, 2]),
            3 => MonitoringFault::WrittenThen(504),
            4 => status(413),
            _ => MonitoringFault::Close,
        });
        backend.fail(faults.collect::<Vec<_>>());
        let config = SinkConfig {
            capacity: 40,
            max_batch: 30,
            ..quick()
        };
        let pipeline = Pipeline::start_as(
            settings(backend.address),
            &clock,
            kubevitals_gcm::Credentials::Anonymous,
            no_metadata(),
            config,
        );
        let mut pushed = 0;
        for tick in -8..0 {
            // Some are too near, and some do not fit.
            let second = tick * 60 + i64::try_from(rng.next_u64() % 20).unwrap();
            pushed += pipeline.push((0..15).map(|series| gauge(series, second)));
            tokio::task::yield_now().await;
        }
        let results = pipeline.flush(pushed).await;
        let written = backend.received().points.len() as u64;
        let known = results.sent + results.duplicate;
        let is_right = (known..=known + results.unknown).contains(&written);
        assert!(is_right, "seed {seed}: {results:?}, {written} written");
    }
}

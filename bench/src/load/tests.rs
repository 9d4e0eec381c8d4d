//! These tests run on tokio's paused clock: the service is in memory, so time advances only when
//! all tasks wait.

use std::cell::{Cell, RefCell};

use super::*;

/// Responds after a fixed delay, and records the time of each request.
struct SlowService {
    delay: Duration,
    started: Instant,
    requested: RefCell<Vec<(Duration, String)>>,
    in_flight: Cell<usize>,
    max_in_flight: Cell<usize>,
    status: http::StatusCode,
}

impl SlowService {
    fn new(delay: Duration) -> Self {
        Self {
            delay,
            started: Instant::now(),
            requested: RefCell::default(),
            in_flight: Cell::new(0),
            max_in_flight: Cell::new(0),
            status: http::StatusCode::OK,
        }
    }
}

impl Service for SlowService {
    async fn get(&self, request: &GetRequest) -> Result<ResponseStats, BenchError> {
        self.requested
            .borrow_mut()
            .push((self.started.elapsed(), request.path.clone()));
        self.in_flight.set(self.in_flight.get() + 1);
        self.max_in_flight
            .set(self.max_in_flight.get().max(self.in_flight.get()));
        tokio::time::sleep(self.delay).await;
        self.in_flight.set(self.in_flight.get() - 1);
        Ok(ResponseStats {
            status: self.status,
            head: self.delay / 4,
            first_byte: self.delay / 2,
            total: self.delay,
            bytes: 1_000,
        })
    }
}

fn kind(key: &'static str, paths: &[&str], count: u32, period: u64) -> Kind {
    let request = |path: &&str| GetRequest {
        path: (*path).to_owned(),
        accept: "application/json",
        gzip: false,
    };
    Kind {
        key,
        requests: paths.iter().map(request).collect(),
        count,
        period: Duration::from_secs(period),
    }
}

fn plan(kinds: Vec<Kind>, seconds: u64, concurrency: usize) -> LoadPlan {
    let duration = Duration::from_secs(seconds);
    LoadPlan {
        kinds,
        duration,
        concurrency,
    }
}

#[test]
fn requests_are_spread_over_their_period_and_kinds_begin_apart() {
    let plan = plan(
        vec![kind("a", &["/a"], 2, 4), kind("b", &["/b"], 1, 4)],
        8,
        10,
    );
    let found: Vec<_> = plan
        .arrivals()
        .iter()
        .map(|a| (a.at.as_millis(), a.kind, a.number))
        .collect();
    assert_eq!(
        found,
        [
            (0, 0, 0),
            (2_000, 0, 1),
            (2_000, 1, 0),
            (4_000, 0, 2),
            (6_000, 0, 3),
            (6_000, 1, 1)
        ]
    );
}

#[test]
fn a_plan_is_bounded_in_count() {
    let endless = plan(vec![kind("a", &["/a"], 4_000_000, 4)], 1_000_000, 1);
    assert_eq!(endless.arrivals().len(), MAX_REQUESTS);
    let nothing = plan(
        vec![
            kind("a", &[], 5, 4),
            kind("b", &["/b"], 0, 4),
            kind("c", &["/c"], 1, 0),
        ],
        9,
        1,
    );
    assert_eq!(nothing.arrivals(), []);
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_gets_no_fewer_requests() {
    let plan = plan(vec![kind("a", &["/1", "/2"], 1, 1)], 5, 10);
    let service = SlowService::new(Duration::from_secs(3));
    let results = plan.run(&service).await;
    let requested_at = service.requested.borrow();
    let seconds: Vec<_> = requested_at.iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(seconds, [0, 1, 2, 3, 4]);
    let paths: Vec<_> = requested_at.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths, ["/1", "/2", "/1", "/2", "/1"]);
    assert_eq!(results["a"].total.quantiles().at(1.0).unwrap().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn time_in_the_queue_counts_as_latency() {
    let plan = plan(vec![kind("a", &["/a"], 1, 1)], 3, 1);
    let service = SlowService::new(Duration::from_secs(3));
    let results = plan.run(&service).await;
    assert_eq!(service.max_in_flight.get(), 1);
    // Due at 0, 1 and 2; completed at 3, 6 and 9.
    let quantiles = results["a"].total.quantiles();
    let seconds = [0.3, 0.6, 1.0].map(|share| quantiles.at(share).unwrap().as_secs());
    assert_eq!(seconds, [3, 5, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_load_lasts_for_its_duration() {
    let plan = plan(vec![kind("a", &["/a"], 1, 60)], 20, 4);
    let started = Instant::now();
    plan.run(&SlowService::new(Duration::from_millis(1))).await;
    assert_eq!(started.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn rejections_are_counted_and_have_no_latency() {
    let plan = plan(vec![kind("a", &["/a"], 1, 1)], 2, 4);
    let mut service = SlowService::new(Duration::from_millis(1));
    service.status = http::StatusCode::TOO_MANY_REQUESTS;
    let results = plan.run(&service).await;
    let values = results["a"].values("a");
    assert_eq!(values["a.failed"].to_bits(), 2.0_f64.to_bits());
    assert!(!values.contains_key("a.p99"));
    assert_eq!(
        results["a"].first_failure.as_deref(),
        Some("status 429 Too Many Requests")
    );
}

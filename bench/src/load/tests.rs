//! The clock of these tests is tokio's paused one: the service is in memory, so time moves only
//! when all wait.

use std::cell::{Cell, RefCell};

use super::*;

/// Answers after a fixed time, and remembers who asked when.
struct Slow {
    takes: Duration,
    begun: Instant,
    asked: RefCell<Vec<(Duration, String)>>,
    under_way: Cell<usize>,
    most_under_way: Cell<usize>,
    status: http::StatusCode,
}

impl Slow {
    fn new(takes: Duration) -> Self {
        Self {
            takes,
            begun: Instant::now(),
            asked: RefCell::default(),
            under_way: Cell::new(0),
            most_under_way: Cell::new(0),
            status: http::StatusCode::OK,
        }
    }
}

impl Service for Slow {
    async fn ask(&self, ask: &Ask) -> Result<Answered, BenchError> {
        self.asked
            .borrow_mut()
            .push((self.begun.elapsed(), ask.path.clone()));
        self.under_way.set(self.under_way.get() + 1);
        self.most_under_way
            .set(self.most_under_way.get().max(self.under_way.get()));
        tokio::time::sleep(self.takes).await;
        self.under_way.set(self.under_way.get() - 1);
        Ok(Answered {
            status: self.status,
            head: self.takes / 4,
            first_byte: self.takes / 2,
            total: self.takes,
            bytes: 1_000,
        })
    }
}

fn kind(key: &'static str, paths: &[&str], count: u32, every: u64) -> Kind {
    let ask = |path: &&str| Ask {
        path: (*path).to_owned(),
        accept: "application/json",
        gzip: false,
    };
    Kind {
        key,
        asks: paths.iter().map(ask).collect(),
        count,
        every: Duration::from_secs(every),
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
async fn a_slow_server_is_not_asked_less() {
    let plan = plan(vec![kind("a", &["/1", "/2"], 1, 1)], 5, 10);
    let service = Slow::new(Duration::from_secs(3));
    let results = plan.run(&service).await;
    let asked = service.asked.borrow();
    let seconds: Vec<_> = asked.iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(seconds, [0, 1, 2, 3, 4]);
    let paths: Vec<_> = asked.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths, ["/1", "/2", "/1", "/2", "/1"]);
    assert_eq!(results["a"].total.quantiles().at(1.0).unwrap().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_turn_has_waited() {
    let plan = plan(vec![kind("a", &["/a"], 1, 1)], 3, 1);
    let service = Slow::new(Duration::from_secs(3));
    let results = plan.run(&service).await;
    assert_eq!(service.most_under_way.get(), 1);
    // Due at 0, 1 and 2; answered at 3, 6 and 9.
    let quantiles = results["a"].total.quantiles();
    let seconds = [0.3, 0.6, 1.0].map(|share| quantiles.at(share).unwrap().as_secs());
    assert_eq!(seconds, [3, 5, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_load_lasts_as_long_as_it_should() {
    let plan = plan(vec![kind("a", &["/a"], 1, 60)], 20, 4);
    let begun = Instant::now();
    plan.run(&Slow::new(Duration::from_millis(1))).await;
    assert_eq!(begun.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_and_are_no_latencies() {
    let plan = plan(vec![kind("a", &["/a"], 1, 1)], 2, 4);
    let mut service = Slow::new(Duration::from_millis(1));
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

//! An open-loop load: requests leave when they are due, whether or not earlier ones were answered.
//! A slow server is not asked less, and what its users waited is counted from the moment at which
//! they would have asked.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use crate::BenchError;
use crate::histogram::Histogram;
use crate::https::{Answered, Ask, Client};
use crate::measure::Values;

/// The most requests of one plan.
const MAX_REQUESTS: usize = 1_000_000;

/// One kind of read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Its key in the result.
    pub key: &'static str,
    /// What is asked for in turn.
    pub asks: Vec<Ask>,
    /// How many requests in each period, spread evenly over it.
    pub count: u32,
    /// The period.
    pub every: Duration,
}

/// What is asked for, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadPlan {
    /// The kinds, all at once.
    pub kinds: Vec<Kind>,
    /// Requests leave until then.
    pub duration: Duration,
    /// Requests that are under way at the same time, at most; what comes due then waits, and its
    /// waiting counts.
    pub concurrency: usize,
}

/// A request that leaves at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// After the start.
    pub at: Duration,
    /// The index of its kind.
    pub kind: usize,
    /// Its number within the kind.
    pub number: usize,
}

/// What became of the requests of one kind.
#[derive(Debug, Clone, Default)]
pub struct KindResult {
    /// From when it was due to the last byte.
    pub total: Histogram,
    /// From when it was due to the first byte of the body.
    pub first_byte: Histogram,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Answers other than 200, and failures.
    pub failed: u64,
    /// What the first failure was.
    pub first_failure: Option<String>,
}

/// What became of all of them, by the key of the kind.
pub type LoadResult = BTreeMap<&'static str, KindResult>;

/// Who answers: a server, or something in a test.
pub trait Service {
    /// Asks once.
    fn ask(&self, ask: &Ask) -> impl Future<Output = Result<Answered, BenchError>>;
}

impl Service for Client {
    fn ask(&self, ask: &Ask) -> impl Future<Output = Result<Answered, BenchError>> {
        self.get(ask)
    }
}

impl LoadPlan {
    /// All requests in the order in which they leave. Kinds begin at different moments, so that
    /// they do not all come at once, and the same plan leaves at the same moments every time.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let kinds = u32::try_from(self.kinds.len().max(1)).unwrap_or(u32::MAX);
        let mut all = Vec::new();
        for ((kind, of), position) in self.kinds.iter().enumerate().zip(0_u32..) {
            let gap = of.every / of.count.max(1);
            if gap.is_zero() || of.asks.is_empty() || of.count == 0 {
                continue;
            }
            let mut at = gap.saturating_mul(position) / kinds;
            let mut number = 0;
            while at < self.duration && all.len() < MAX_REQUESTS {
                all.push(Arrival { at, kind, number });
                at = at.saturating_add(gap);
                number += 1;
            }
        }
        all.sort_unstable();
        all
    }

    /// Sends everything and waits for the last answer, and at least until the duration is over.
    pub async fn run(&self, service: &impl Service) -> LoadResult {
        let start = Instant::now();
        let mut results: LoadResult = self
            .kinds
            .iter()
            .map(|kind| (kind.key, KindResult::default()))
            .collect();
        let mut under_way = FuturesUnordered::new();
        let mut keep =
            |(key, late, answer): (&'static str, Duration, Result<Answered, BenchError>)| {
                results.entry(key).or_default().add(late, answer);
            };
        for arrival in self.arrivals() {
            let Some(kind) = self.kinds.get(arrival.kind) else {
                continue;
            };
            let Some(ask) = kind.asks.get(arrival.number % kind.asks.len().max(1)) else {
                continue;
            };
            let due = start + arrival.at;
            loop {
                let is_full = under_way.len() >= self.concurrency.max(1);
                if !is_full && Instant::now() >= due {
                    break;
                }
                tokio::select! {
                    Some(done) = under_way.next() => keep(done),
                    () = sleep_until(due), if !is_full => {}
                }
            }
            let late = due.elapsed();
            under_way.push(async move { (kind.key, late, service.ask(ask).await) });
        }
        while let Some(done) = under_way.next().await {
            keep(done);
        }
        sleep_until(start + self.duration).await;
        results
    }
}

impl KindResult {
    fn add(&mut self, late: Duration, answer: Result<Answered, BenchError>) {
        match answer {
            Ok(answer) if answer.status == http::StatusCode::OK => {
                self.total.record(late.saturating_add(answer.total));
                self.first_byte
                    .record(late.saturating_add(answer.first_byte));
                self.bytes = self.bytes.saturating_add(answer.bytes);
            }
            Ok(answer) => self.fail(|| format!("status {}", answer.status)),
            Err(error) => self.fail(|| error.chain()),
        }
    }

    fn fail(&mut self, why: impl FnOnce() -> String) {
        self.failed = self.failed.saturating_add(1);
        self.first_failure.get_or_insert_with(why);
    }

    /// The figures under `KEY.p50`, `.p99`, `.first_byte_p50`, `.bytes`, `.count` and `.failed`.
    pub fn values(&self, key: &str) -> Values {
        let mut values = Values::new();
        let mut set = |name: &str, value: Option<f64>| {
            values.extend(value.map(|value| (format!("{key}.{name}"), value)));
        };
        let total = self.total.quantiles();
        let at = |quantile: Option<Duration>| quantile.map(|time| time.as_secs_f64());
        set("p50", at(total.at(0.5)));
        set("p99", at(total.at(0.99)));
        set("first_byte_p50", at(self.first_byte.quantiles().at(0.5)));
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts and sizes are far below 2^53"
        )]
        {
            let count = self.total.count();
            set(
                "bytes",
                (count > 0).then(|| self.bytes as f64 / count as f64),
            );
            set("count", Some(count as f64));
            set("failed", Some(self.failed as f64));
        }
        values
    }
}

#[cfg(test)]
mod tests;

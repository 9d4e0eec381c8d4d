//! An open-loop load: requests are sent when they are due, whether or not earlier ones have
//! completed. A slow server gets no fewer requests, and latencies count from the time at which a
//! request was due.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use crate::BenchError;
use crate::histogram::Histogram;
use crate::https::{Client, GetRequest, ResponseStats};
use crate::measure::Values;

/// Maximum requests of one plan.
const MAX_REQUESTS: usize = 1_000_000;

/// A kind of request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Key in the result.
    pub key: &'static str,
    /// Requests, sent in turn.
    pub requests: Vec<GetRequest>,
    /// Requests per period, spread evenly over it.
    pub count: u32,
    pub period: Duration,
}

/// The requests to send, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadPlan {
    /// Kinds, all at the same time.
    pub kinds: Vec<Kind>,
    pub duration: Duration,
    /// Maximum requests in flight; requests that are due meanwhile queue, and the time in the queue
    /// counts.
    pub concurrency: usize,
}

/// A request and the time at which it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// After the start.
    pub at: Duration,
    /// The index of its kind.
    pub kind: usize,
    /// Its number within the kind.
    pub number: usize,
}

/// Outcome of the requests of one kind.
#[derive(Debug, Clone, Default)]
pub struct KindResult {
    /// From the due time to the last byte.
    pub total: Histogram,
    /// From the due time to the first byte of the body.
    pub first_byte: Histogram,
    /// Total size of bodies.
    pub bytes: u64,
    /// Responses other than 200, and errors.
    pub failed: u64,
    pub first_failure: Option<String>,
}

/// Outcome of all requests, by the key of the kind.
pub type LoadResult = BTreeMap<&'static str, KindResult>;

/// Responds to requests: a server, or a fake in a test.
pub trait Service {
    /// Sends one request.
    fn get(&self, request: &GetRequest) -> impl Future<Output = Result<ResponseStats, BenchError>>;
}

impl Service for Client {
    fn get(&self, request: &GetRequest) -> impl Future<Output = Result<ResponseStats, BenchError>> {
        self.get(request)
    }
}

impl LoadPlan {
    /// Returns all requests in the order in which they are due. Kinds begin at different times, so
    /// that they are not all due at once, and the times of a plan never vary.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let kinds = u32::try_from(self.kinds.len().max(1)).unwrap_or(u32::MAX);
        let mut all = Vec::new();
        for ((kind, of), position) in self.kinds.iter().enumerate().zip(0_u32..) {
            let gap = of.period / of.count.max(1);
            if gap.is_zero() || of.requests.is_empty() || of.count == 0 {
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

    /// Sends everything and waits for the last response, and at least until the duration is over.
    pub async fn run(&self, service: &impl Service) -> LoadResult {
        let start = Instant::now();
        let mut results: LoadResult = self
            .kinds
            .iter()
            .map(|kind| (kind.key, KindResult::default()))
            .collect();
        let mut in_flight = FuturesUnordered::new();
        let mut record =
            |(key, late, response): (&'static str, Duration, Result<ResponseStats, BenchError>)| {
                results.entry(key).or_default().add(late, response);
            };
        for arrival in self.arrivals() {
            let Some(kind) = self.kinds.get(arrival.kind) else {
                continue;
            };
            let Some(request) = kind
                .requests
                .get(arrival.number % kind.requests.len().max(1))
            else {
                continue;
            };
            let due = start + arrival.at;
            loop {
                let is_full = in_flight.len() >= self.concurrency.max(1);
                if !is_full && Instant::now() >= due {
                    break;
                }
                tokio::select! {
                    Some(done) = in_flight.next() => record(done),
                    () = sleep_until(due), if !is_full => {}
                }
            }
            let late = due.elapsed();
            in_flight.push(async move { (kind.key, late, service.get(request).await) });
        }
        while let Some(done) = in_flight.next().await {
            record(done);
        }
        sleep_until(start + self.duration).await;
        results
    }
}

impl KindResult {
    fn add(&mut self, late: Duration, response: Result<ResponseStats, BenchError>) {
        match response {
            Ok(response) if response.status == http::StatusCode::OK => {
                self.total.record(late.saturating_add(response.total));
                self.first_byte
                    .record(late.saturating_add(response.first_byte));
                self.bytes = self.bytes.saturating_add(response.bytes);
            }
            Ok(response) => self.fail(|| format!("status {}", response.status)),
            Err(error) => self.fail(|| error.chain()),
        }
    }

    fn fail(&mut self, reason: impl FnOnce() -> String) {
        self.failed = self.failed.saturating_add(1);
        self.first_failure.get_or_insert_with(reason);
    }

    /// Returns the values `KEY.p50`, `.p99`, `.first_byte_p50`, `.bytes`, `.count` and `.failed`.
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

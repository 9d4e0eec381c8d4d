//! Requests of `/probe` at a fixed rate over kept connections, as Prometheus sends them.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kubevitals_bench::BenchError;
use kubevitals_bench::histogram::Histogram;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use crate::case::Case;

/// Maximum requests in flight.
const CONCURRENCY: usize = 64;

/// Timeout of one request: longer than that of any module.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum size of a response.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// A server of plain HTTP, and idle connections to it.
#[derive(Debug)]
pub(crate) struct PlainClient {
    address: SocketAddr,
    idle: Mutex<Vec<SendRequest<Empty<Bytes>>>>,
}

/// Results of the probes of one case.
#[derive(Debug, Default)]
pub(crate) struct Driven {
    pub(crate) probes: u64,
    pub(crate) succeeded: u64,
    /// As the program measured them.
    pub(crate) durations: Histogram,
}

/// Rate and number of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) rate: u32,
    pub(crate) seconds: u32,
}

impl Pace {
    pub(crate) fn total(self) -> u32 {
        self.rate.saturating_mul(self.seconds)
    }
}

impl PlainClient {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Requests a text.
    pub(crate) async fn get(&self, path: &str) -> Result<String, BenchError> {
        let failed = |problem: String| BenchError::Request {
            path: path.to_owned(),
            problem,
        };
        let exchange = async {
            let mut connection = self.connection().await?;
            let request = Request::get(path).header(HOST, self.address.to_string());
            let request = request
                .header("X-Prometheus-Scrape-Timeout-Seconds", "10")
                .body(Empty::new())
                .map_err(|error| error.to_string())?;
            let sent = connection.send_request(request).await;
            let response = sent.map_err(|error| error.to_string())?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
            #[expect(clippy::disallowed_methods, reason = "it is limited")]
            let body = body.collect().await.map_err(|error| error.to_string())?;
            self.idle.lock().push(connection);
            let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            if status == StatusCode::OK {
                return Ok(text);
            }
            Err(format!("{status} {text}"))
        };
        let answered = timeout(TIMEOUT, exchange).await;
        answered
            .map_err(|_| failed(format!("no response within {TIMEOUT:?}")))?
            .map_err(failed)
    }

    async fn connection(&self) -> Result<SendRequest<Empty<Bytes>>, String> {
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut connection) = idle else { break };
            if !connection.is_closed() && connection.ready().await.is_ok() {
                return Ok(connection);
            }
        }
        let connected = TcpStream::connect(self.address).await;
        let stream = connected.map_err(|error| error.to_string())?;
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Probes a target at a fixed rate.
    pub(crate) async fn drive(
        &self,
        case: Case,
        target: &str,
        pace: Pace,
    ) -> Result<Driven, BenchError> {
        let path = format!("/probe?module={}&target={target}", case.key());
        let start = Instant::now();
        let period = Duration::from_secs(1) / pace.rate.max(1);
        let mut driven = Driven::default();
        let mut results = stream::iter(0..pace.total())
            .map(|number| {
                let due = start + period * number;
                let path = &path;
                async move {
                    sleep_until(due).await;
                    self.get(path).await
                }
            })
            .buffer_unordered(CONCURRENCY);
        while let Some(text) = results.try_next().await? {
            let value = |name: &str| total(&text, name);
            let (Some(success), Some(duration)) =
                (value("probe_success"), value("probe_duration_seconds"))
            else {
                return Err(BenchError::Protocol {
                    name: path.clone(),
                    output: text,
                    expected: "probe_success and probe_duration_seconds",
                });
            };
            driven.probes += 1;
            driven.succeeded += u64::from(success > 0.5);
            let duration = Duration::try_from_secs_f64(duration);
            driven.durations.record(duration.unwrap_or_default());
        }
        Ok(driven)
    }
}

/// Returns the sum of all series of a metric; none if there is none.
pub(crate) fn total(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            // Values of labels may contain anything but the last brace is the end.
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.split_whitespace().next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_series_of_a_name_are_added() {
        let text = "# HELP a_total x\na_total{x=\"{y} 5\"} 2\na_total 3 1700000000\na_totals 9\n";
        assert_eq!(total(text, "a_total"), Some(5.0));
        assert_eq!(total(text, "b"), None);
    }
}

//! Limits and metrics of a server.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::fair_queue::QueueMetrics;

/// Limits of a server. Zero connections or streams mean one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of open connections. When it is reached, a connection that has completed no
    /// request or is idle is closed for a new one. If all are busy, new ones wait.
    pub connections: usize,
    /// Maximum number of concurrent requests on one HTTP/2 connection.
    pub streams_per_connection: u32,
    /// Maximum size of a request head; at least [`Limits::MIN_HEADER_BYTES`].
    pub header_bytes: u32,
    /// Maximum number of headers of a request over HTTP/1.
    pub headers: usize,
    /// Maximum size of all request heads of more than 64 KiB together.
    pub large_head_bytes: usize,
    /// Timeout of [`Transport::handshake`](crate::Transport::handshake), time in the queue
    /// included.
    pub handshake_timeout: Duration,
    /// Timeout from the first byte of a request to the end of its head, and from connecting to the
    /// end of the first head.
    pub header_timeout: Duration,
    /// Timeout from the end of a response to the next request.
    pub idle_timeout: Duration,
    /// Timeout from the head of a request to the last byte of its response, unless the handler sets
    /// a [`Delivery`](crate::Delivery).
    pub response_timeout: Duration,
    /// Timeout for writing what is produced of a response, also of a watch: at most 128 KiB.
    pub stall_timeout: Duration,
    /// Time from the shutdown until connections that are still active are aborted.
    pub drain_timeout: Duration,
    /// Whether handshakes and long responses wait in a fair queue.
    pub fair_queue: bool,
}

/// Metrics of a server. The default counts without being registered.
#[derive(Clone, Debug, Default)]
pub struct ServerMetrics {
    /// Number of open connections.
    pub connections: Gauge,
    /// Total number of connections closed to admit others.
    pub evictions: Counter,
    /// Total number of responses aborted because their client did not read them in time.
    pub aborted_responses: Counter,
    /// Total number of handshakes that failed.
    pub handshake_errors: Counter,
    /// Total number of handshakes that exceeded [`Limits::handshake_timeout`].
    pub handshake_timeouts: Counter,
    /// Handshakes that wait for a permit.
    pub handshake_queue: QueueMetrics,
    /// Long responses that wait for a permit.
    pub response_queue: QueueMetrics,
}

impl Limits {
    /// The smallest head buffer that hyper accepts.
    pub const MIN_HEADER_BYTES: u32 = 8 * 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            streams_per_connection: 100,
            // As in Go, which does not limit the number of headers.
            header_bytes: 1 << 20,
            headers: 1000,
            large_head_bytes: 16 << 20,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            response_timeout: Duration::from_mins(1),
            stall_timeout: Duration::from_mins(1),
            drain_timeout: Duration::from_secs(10),
            fair_queue: true,
        }
    }
}

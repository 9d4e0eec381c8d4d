//! Limits and metrics of a server.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::fair_queue::QueueMetrics;

/// Limits of a server. Zero connections or streams mean one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of open connections. When it is reached, idle connections are closed and new
    /// ones wait in the kernel's queue.
    pub connections: usize,
    /// Maximum number of concurrent requests on one HTTP/2 connection.
    pub streams_per_connection: u32,
    /// Maximum size of a request head; at least [`Limits::MIN_HEADER_BYTES`].
    pub header_bytes: u32,
    /// Timeout of [`Transport::handshake`](crate::Transport::handshake), time in the queue
    /// included.
    pub handshake_timeout: Duration,
    /// Timeout from the first byte of a request to the end of its head, and from connecting to the
    /// end of the first head.
    pub header_timeout: Duration,
    /// Timeout from the end of a response to the next request. A slow reader must have received the
    /// response by then.
    pub idle_timeout: Duration,
    /// Timeout for a connection with responses of which no part is produced or written. Watches are
    /// exempt.
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
            header_bytes: 64 * 1024,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            stall_timeout: Duration::from_secs(150),
            drain_timeout: Duration::from_secs(10),
            fair_queue: true,
        }
    }
}

//! Sessions over upgraded connections: exec, attach and port-forward.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use kubevitals_telemetry::Metrics;

use crate::provider::{PortDialer, Session, StreamOptions};

/// Limits of sessions.
#[derive(Debug, Clone, Copy)]
pub struct StreamingConfig {
    /// Time from the upgrade until the client has created all streams.
    pub creation_timeout: Duration,
    /// Time without any byte in either direction.
    pub idle_timeout: Duration,
    /// Maximum number of sessions at the same time.
    pub max_sessions: usize,
}

/// The metrics of sessions.
#[derive(Clone, Debug)]
pub struct StreamingMetrics;

/// Runs sessions.
pub struct StreamingServer {
    _config: StreamingConfig,
    _metrics: StreamingMetrics,
}

impl StreamingMetrics {
    /// Registers the metrics.
    pub fn register(_metrics: &mut Metrics) -> Self {
        Self
    }
}

impl Default for StreamingConfig {
    fn default() -> Self {
        Self {
            creation_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_hours(4),
            max_sessions: 512,
        }
    }
}

#[expect(clippy::unused_async, reason = "sessions await")]
impl StreamingServer {
    pub fn new(config: StreamingConfig, metrics: StreamingMetrics) -> Self {
        Self {
            _config: config,
            _metrics: metrics,
        }
    }

    /// Upgrades a connection and runs a session over its streams.
    pub async fn remote_command(
        &self,
        _request: Request<Incoming>,
        _options: StreamOptions,
        _session: Session,
    ) -> Response<Bytes> {
        not_implemented()
    }

    /// Upgrades a connection and forwards its streams to ports of a pod.
    pub async fn port_forward(
        &self,
        _request: Request<Incoming>,
        _ports: Vec<u16>,
        _dialer: Arc<dyn PortDialer>,
    ) -> Response<Bytes> {
        not_implemented()
    }

    /// Ends all sessions.
    pub async fn shutdown(&self) {}
}

fn not_implemented() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"sessions are not implemented\n"));
    *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    response
}

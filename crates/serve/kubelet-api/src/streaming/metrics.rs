//! Metrics of streaming.

use kubevitals_telemetry::{Metrics, RegistryExt as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::negotiate::Subresource;

/// A family with a single label.
type Labeled<M> = Family<[(&'static str, &'static str); 1], M>;

/// The metrics of streaming. Clones share them.
#[derive(Clone, Debug)]
pub struct StreamingMetrics {
    websocket_requests: Labeled<Counter>,
    sessions: Gauge,
    pub(super) received: Counter,
    pub(super) sent: Counter,
}

/// A session, until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveSession(Gauge);

impl StreamingMetrics {
    /// Registers `kubelet_websocket_streaming_requests_total`, as the kubelet has it, and
    /// `kubevitals_streaming_*`.
    pub fn register(metrics: &mut Metrics) -> Self {
        let websocket_requests = metrics.sub("kubelet").family(
            "websocket_streaming_requests",
            "Total number of streaming requests over WebSocket by subresource",
        );
        let own = metrics.sub("kubevitals_streaming");
        let bytes: Labeled<Counter> = own.family(
            "bytes",
            "Total number of bytes between clients and containers by direction",
        );
        let of = |direction| bytes.get_or_create(&[("direction", direction)]).clone();
        Self {
            websocket_requests,
            sessions: own.gauge(
                "sessions",
                "Number of sessions of exec, attach and port-forward",
            ),
            received: of("received"),
            sent: of("sent"),
        }
    }

    pub(super) fn websocket_request(&self, subresource: Subresource) {
        self.websocket_requests
            .get_or_create(&[("subresource", subresource.as_str())])
            .inc();
    }

    pub(super) fn begin_session(&self) -> ActiveSession {
        self.sessions.inc();
        ActiveSession(self.sessions.clone())
    }

    #[cfg(test)]
    pub(super) fn sessions(&self) -> i64 {
        self.sessions.get()
    }
}

impl Drop for ActiveSession {
    fn drop(&mut self) {
        self.0.dec();
    }
}

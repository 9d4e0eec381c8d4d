//! The configuration of a server, which is complete before a socket is opened.

use std::net::SocketAddr;
use std::time::Duration;

use kubevitals_apiserver::ServingCertificate;
use kubevitals_model::Clock;
use kubevitals_telemetry::{Health, OutageLog, SharedRegistry};
use kubevitals_tls::TlsPolicy;

use crate::access::AccessControl;
use crate::metrics::KubeletMetrics;
use crate::provider::Provider;
use crate::streaming::StreamingConfig;

/// The configuration of a kubelet server. The plain struct is the builder: start from
/// [`KubeletConfig::new`] and set what differs.
pub struct KubeletConfig {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// The name of the Node: the object that permissions are on.
    pub node_name: String,
    pub provider: Provider,
    pub transport: TransportConfig,
    pub access: AccessControl,
    pub telemetry: KubeletTelemetry,
    pub limits: Limits,
    /// Limits of exec, attach and port-forward.
    pub streaming: StreamingConfig,
    /// Whether `/runningpods/` is served.
    pub debug: bool,
    /// Whether `/metrics/resource` has the old `scrape_error` (`--show-hidden-metrics`).
    pub hidden_metrics: bool,
    /// Whether `/stats/summary` has totals of pressure in microseconds, as kubelets up to 1.37 do
    /// by mistake, instead of the documented nanoseconds.
    pub pressure_in_micros: bool,
    /// The response of `/configz`; without it that is not implemented.
    pub configz: Option<serde_json::Value>,
    /// The clock that `sinceSeconds` counts from.
    pub clock: Clock,
}

/// How connections are secured.
pub enum TransportConfig {
    /// TLS. A client certificate is requested and not required.
    Tls {
        certificate: ServingCertificate,
        policy: TlsPolicy,
        /// Whether HTTP/2 is offered; clients that do not negotiate it use HTTP/1.1.
        http2: bool,
    },
    /// HTTP/1.1 without TLS, for tests on loopback: bearer tokens are readable on the wire.
    Plain,
}

/// Health and metrics of a server.
pub struct KubeletTelemetry {
    /// The checks behind `/healthz`.
    pub health: Health,
    /// The metrics behind `/metrics`.
    pub registry: SharedRegistry,
    /// Metrics of the server itself, registered in `registry`.
    pub metrics: KubeletMetrics,
    /// The log of outages of the API server that reviews are sent to.
    pub outage: OutageLog,
}

/// Limits of a kubelet server. Zero means one.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Limits of connections. `response_timeout` is derived from `request_timeout`.
    pub http: kubevitals_http::Limits,
    /// Timeout of a request, its response included. Of logs and sessions it limits the time until
    /// the response begins.
    pub request_timeout: Duration,
    /// Maximum number of requests in flight, logs aside.
    pub in_flight: usize,
    /// Maximum number of logs that are read at the same time.
    pub logs: usize,
}

impl KubeletConfig {
    /// A server with the kubelet's defaults.
    pub fn new(
        address: SocketAddr,
        node_name: impl Into<String>,
        provider: Provider,
        transport: TransportConfig,
        access: AccessControl,
        telemetry: KubeletTelemetry,
    ) -> Self {
        Self {
            address,
            node_name: node_name.into(),
            provider,
            transport,
            access,
            telemetry,
            limits: Limits::default(),
            streaming: StreamingConfig::default(),
            debug: false,
            hidden_metrics: false,
            pressure_in_micros: false,
            configz: None,
            clock: Clock::system(),
        }
    }
}

impl TransportConfig {
    /// TLS with the default policy and HTTP/2.
    pub fn tls(certificate: ServingCertificate) -> Self {
        Self::Tls {
            certificate,
            policy: TlsPolicy::default(),
            http2: true,
        }
    }
}

impl Limits {
    pub(crate) fn http(&self) -> kubevitals_http::Limits {
        kubevitals_http::Limits {
            response_timeout: self.request_timeout + MIN_WRITE_TIME,
            ..self.http
        }
    }
}

/// The time that the error of a request that took too long has to be written.
pub(crate) const MIN_WRITE_TIME: Duration = Duration::from_secs(5);

impl Default for Limits {
    fn default() -> Self {
        Self {
            http: kubevitals_http::Limits::default(),
            request_timeout: Duration::from_mins(1),
            in_flight: 400,
            logs: 512,
        }
    }
}

//! The admin server: health, metrics and debug routes over plain HTTP/1.1.
//!
//! | route | response |
//! |---|---|
//! | `/livez` `/readyz` `/healthz` | health, also `?verbose`, `?exclude=name` and `/readyz/name` |
//! | `/metrics` | all metrics, in the format that `Accept` prefers |
//! | `/debug/log-level` | the log filter; `PUT` or `POST` sets it; loopback peers only |
//! | `/debug/pprof/profile`, `/debug/pprof/heap` | profiles, if compiled in and enabled; loopback peers only |
//!
//! A role may add pages of its own ([`Page`]).
//!
//! Loopback peers are those that can already enter the pod: `kubectl port-forward` and `kubectl
//! exec` arrive from there.
//!
//! Every pod in the cluster can reach the port, so everything is bounded: connections, the time for
//! a request's head, idle time, bodies. When connections run out, idle ones are closed, so that no
//! client keeps the kubelet's probes away by holding connections open.

mod handler;
mod page;
mod response;

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use kubevitals_http::{Plain, Server, ServerMetrics};

use self::handler::AdminHandler;
pub use self::page::{Page, PageRequest, PageResponse};
use crate::{AdminMetrics, Health, LogHandle, SharedRegistry, TelemetryError};

/// Everything that the admin server serves.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The checks behind `/livez`, `/readyz` and `/healthz`.
    pub health: Health,
    /// The metrics behind `/metrics`.
    pub registry: SharedRegistry,
    /// The filter behind `/debug/log-level`; without it the route is not found.
    pub logs: Option<LogHandle>,
    /// Metrics of the server itself, registered in `registry`.
    pub metrics: AdminMetrics,
    pub profiling: Profiling,
}

/// Whether `/debug/pprof/` is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profiling {
    #[default]
    Off,
    /// To loopback peers, if the crate was built with its feature `pprof`.
    Loopback,
}

/// Limits of the admin server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limits of connections and requests.
    pub http: kubevitals_http::Limits,
    /// Timeout of a request body, from the end of the head.
    pub body_timeout: Duration,
}

/// A bound admin server that does not accept yet.
#[derive(Debug)]
pub struct AdminServer {
    server: Server,
    admin: Admin,
    limits: Limits,
    pages: Vec<Page>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            http: kubevitals_http::Limits {
                connections: 128,
                header_bytes: 16 * 1024,
                headers: 100,
                header_timeout: Duration::from_secs(5),
                // A CPU profile takes up to two minutes; no other handler takes long.
                response_timeout: Duration::from_mins(4),
                drain_timeout: Duration::from_secs(5),
                // All responses are small but `/metrics`, of which few are requested.
                fair_queue: false,
                ..kubevitals_http::Limits::default()
            },
            body_timeout: Duration::from_secs(5),
        }
    }
}

impl AdminServer {
    /// Listens on `address`. From here on the kernel queues connections.
    pub async fn bind(
        address: SocketAddr,
        admin: Admin,
        limits: Limits,
    ) -> Result<Self, TelemetryError> {
        let metrics = ServerMetrics {
            connections: admin.metrics.connections.clone(),
            ..ServerMetrics::default()
        };
        let server = Server::bind("admin", address, limits.http, metrics)
            .await
            .map_err(|source| TelemetryError::Bind { address, source })?;
        Ok(Self {
            server,
            admin,
            limits,
            pages: Vec::new(),
        })
    }

    /// Adds pages. The server's own routes come first.
    #[must_use]
    pub fn with_pages(mut self, pages: Vec<Page>) -> Self {
        self.pages = pages;
        self
    }

    /// Returns the bound address, with the port that the system chose if zero was requested.
    pub const fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `shutdown` completes, then drains.
    ///
    /// Readiness fails from that moment on. Idle connections are closed, active ones get
    /// `drain_timeout`. A process that needs readiness to fail some time before the server
    /// stops calls [`Health::start_shutdown`] earlier.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let health = self.admin.health.clone();
        let handler = Arc::new(AdminHandler::new(self.admin, self.limits, self.pages));
        let shutdown = async {
            shutdown.await;
            health.start_shutdown();
        };
        self.server.serve(Plain, handler, shutdown).await;
    }
}

#[cfg(test)]
mod tests;

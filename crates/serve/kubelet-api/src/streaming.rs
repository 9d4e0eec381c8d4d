//! Exec, attach and port-forward over upgraded connections: WebSocket and SPDY.
//!
//! ```text
//! request ─► negotiate ─► 101 ─► a task for the session
//!                                 ├ websocket, channels ─┐
//!                                 ├ spdy ────────────────┴► Session over Streams
//!                                 └ spdy, tunnel ─► port_forward ─► PortDialer
//! ```
//!
//! Everything between a client and a process is bounded: a side that does not read stops the other
//! one. A client that leaves drops the session.

mod channels;
mod exec;
mod metered;
mod metrics;
mod negotiate;
mod port_forward;
mod resize;
mod status;
mod tunnel;
pub mod websocket;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

pub use self::metrics::StreamingMetrics;
use self::negotiate::{Forward, Rejection, Subresource, Upgrade};
use crate::provider::{PortDialer, Session, StreamOptions};

/// The most ports of one request over WebSocket channels.
const MAX_PORTS: usize = 64;

/// Limits of streaming.
#[derive(Debug, Clone, Copy)]
pub struct StreamingConfig {
    /// Time for a client to open the streams that its request names.
    pub creation_timeout: Duration,
    /// A session ends if nothing is sent for this long.
    pub idle_timeout: Duration,
    /// Maximum number of sessions at a time.
    pub max_sessions: usize,
}

/// Upgrades connections, and runs their sessions.
#[derive(Debug)]
pub struct StreamingServer {
    config: StreamingConfig,
    metrics: StreamingMetrics,
    permits: Arc<Semaphore>,
    /// `None` after the shutdown.
    sessions: Mutex<Option<JoinSet<()>>>,
}

/// The upgraded stream of a connection.
type Io = TokioIo<Upgraded>;

impl Default for StreamingConfig {
    fn default() -> Self {
        Self {
            creation_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_hours(4),
            max_sessions: 512,
        }
    }
}

impl StreamingServer {
    pub fn new(config: StreamingConfig, metrics: StreamingMetrics) -> Self {
        Self {
            config,
            metrics,
            permits: Arc::new(Semaphore::new(
                config.max_sessions.min(Semaphore::MAX_PERMITS),
            )),
            sessions: Mutex::new(Some(JoinSet::new())),
        }
    }

    /// Upgrades the connection of an exec or attach. The response is 101 and the session runs, or
    /// it is an error and the session is dropped.
    #[expect(
        clippy::unused_async,
        reason = "the caller awaits it, whether there is something to wait for or not"
    )]
    pub async fn remote_command(
        &self,
        request: Request<Incoming>,
        options: StreamOptions,
        session: Session,
    ) -> Response<Bytes> {
        let upgrade = match negotiate::remote_command(&request) {
            Ok(upgrade) => upgrade,
            Err(rejection) => return rejection.into_response(),
        };
        let subresource = Subresource::of(&request);
        let (config, metrics) = (self.config, self.metrics.clone());
        match upgrade {
            Upgrade::WebSocket { response, protocol } => {
                self.metrics.websocket_request(subresource);
                self.start(request, response, move |io| {
                    channels::remote_command(io, protocol, options, session, config, metrics)
                })
            }
            Upgrade::Spdy { response, protocol } => self.start(request, response, move |io| {
                exec::remote_command(io, protocol, options, session, config, metrics)
            }),
        }
    }

    /// Upgrades the connection of a port-forward. `ports` are those of the request, which only
    /// clients over WebSocket channels send.
    #[expect(
        clippy::unused_async,
        reason = "the caller awaits it, whether there is something to wait for or not"
    )]
    pub async fn port_forward(
        &self,
        request: Request<Incoming>,
        ports: Vec<u16>,
        dialer: Arc<dyn PortDialer>,
    ) -> Response<Bytes> {
        let upgrade = match negotiate::port_forward(&request) {
            Ok(upgrade) => upgrade,
            Err(rejection) => return rejection.into_response(),
        };
        let (config, metrics) = (self.config, self.metrics.clone());
        match upgrade {
            Upgrade::WebSocket { response, protocol } => {
                let encoding = match protocol {
                    Forward::Tunnel => None,
                    Forward::Channels(_) if ports.is_empty() || ports.len() > MAX_PORTS => {
                        return Rejection::bad_request(format!(
                            "query parameter \"port\" must name 1 to {MAX_PORTS} ports"
                        ))
                        .into_response();
                    }
                    Forward::Channels(encoding) => Some(encoding),
                };
                self.metrics.websocket_request(Subresource::PortForward);
                self.start(request, response, move |io| async move {
                    match encoding {
                        None => {
                            let io = tunnel::Tunnel::new(io);
                            port_forward::spdy(io, dialer, config, metrics).await;
                        }
                        Some(encoding) => {
                            channels::port_forward(io, encoding, ports, dialer, config, metrics)
                                .await;
                        }
                    }
                })
            }
            Upgrade::Spdy { response, .. } => self.start(request, response, move |io| {
                port_forward::spdy(io, dialer, config, metrics)
            }),
        }
    }

    /// Ends all sessions. Later requests are rejected.
    pub async fn shutdown(&self) {
        let sessions = self.sessions.lock().take();
        if let Some(mut sessions) = sessions {
            sessions.shutdown().await;
        }
    }

    /// Starts a session if there is room for it.
    fn start<F>(
        &self,
        request: Request<Incoming>,
        response: Response<Bytes>,
        run: impl FnOnce(Io) -> F + Send + 'static,
    ) -> Response<Bytes>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return Rejection::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many streaming sessions, try again later",
            )
            .into_response();
        };
        let mut sessions = self.sessions.lock();
        let Some(sessions) = &mut *sessions else {
            return Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "shutting down")
                .into_response();
        };
        while sessions.try_join_next().is_some() {}
        let upgraded = hyper::upgrade::on(request);
        let active = self.metrics.begin_session();
        sessions.spawn(supervise(permit, async move {
            let _active = active;
            match upgraded.await {
                Ok(upgraded) => run(TokioIo::new(upgraded)).await,
                Err(error) => tracing::debug!(%error, "connection ended before its upgrade"),
            }
        }));
        response
    }
}

/// Runs a session. One that panics ends alone.
async fn supervise(permit: OwnedSemaphorePermit, session: impl Future<Output = ()>) {
    let _permit = permit;
    if let Err(panic) = AssertUnwindSafe(session).catch_unwind().await {
        let message = kubevitals_telemetry::panic_message(&*panic);
        tracing::error!(panic = message, "streaming session panicked");
    }
}

#[cfg(test)]
mod tests;

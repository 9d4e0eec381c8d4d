//! The admin server: health, metrics and debug routes over plain HTTP/1.1.
//!
//! | route | answers |
//! |---|---|
//! | `/livez` `/readyz` `/healthz` | health, also `?verbose`, `?exclude=name` and `/readyz/name` |
//! | `/metrics` | all metrics, in the form that `Accept` asks for |
//! | `/debug/log-level` | the log filter; `PUT` or `POST` sets it; loopback peers only |
//! | `/debug/pprof/profile` | a CPU profile, if compiled in and switched on; loopback peers only |
//!
//! Loopback peers are those who can already enter the pod: `kubectl port-forward` and `kubectl
//! exec` arrive from there.
//!
//! Everyone in the cluster can reach the port, so everything is bounded: connections, the time for
//! a request's head, idle time, bodies. When connections run out the idle ones are closed, so that
//! nobody keeps the kubelet's probes away by holding connections open.

mod connection;
mod handler;
mod query;
mod response;

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinError, JoinSet},
    time,
};

use self::handler::Handler;
use crate::{AdminMetrics, Health, LogHandle, SharedRegistry, TelemetryError};

/// How long accepting rests after a failure such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What the admin server tells about.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The checks behind `/livez`, `/readyz` and `/healthz`.
    pub health: Health,
    /// The metrics behind `/metrics`.
    pub registry: SharedRegistry,
    /// The filter behind `/debug/log-level`; without it the route is not found.
    pub logs: Option<LogHandle>,
    /// What the server counts about itself, registered in `registry`.
    pub metrics: AdminMetrics,
    /// Whether profiles may be taken.
    pub profiling: Profiling,
}

/// Whether `/debug/pprof/` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profiling {
    /// Not to anyone.
    #[default]
    Off,
    /// To loopback peers, if the crate was built with its feature `pprof`.
    Loopback,
}

/// The bounds of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; at least one. At the limit idle ones are closed and new ones wait.
    pub connections: usize,
    /// From the first byte of a request to the end of its head, and from connecting to the end of
    /// the first.
    pub header_timeout: Duration,
    /// From an answer until the next request; a slow reader must have taken the answer by then.
    pub idle_timeout: Duration,
    /// For a request body, once the head is there.
    pub body_timeout: Duration,
    /// From the shutdown until connections that are still busy are cut.
    pub drain_timeout: Duration,
}

/// A bound admin server that does not answer yet.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
    admin: Admin,
    limits: Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            header_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(90),
            body_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(5),
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
        let failed = |source| TelemetryError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            admin,
            limits,
        })
    }

    /// The address in use, with the port that the system chose if zero was asked for.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown` completes, then drains.
    ///
    /// Readiness fails from that moment on. Idle connections are closed, busy ones get
    /// [`Limits::drain_timeout`]. A process that wants readiness to fail some time before the
    /// server stops calls [`Health::start_shutdown`] earlier.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let Self {
            listener,
            address,
            admin,
            limits,
        } = self;
        let health = admin.health.clone();
        let metrics = admin.metrics.clone();
        let handler = Arc::new(Handler::new(admin, limits));
        let mut connections = JoinSet::new();
        // Each change asks the connections of that moment to end once they are idle.
        let closing = watch::Sender::new(());
        let most = limits.connections.max(1);
        tracing::info!(%address, "admin server listens");

        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = connections.join_next() => {
                    reap(ended);
                    metrics.connections.dec();
                    continue;
                }
                accepted = accept(&listener), if connections.len() < most => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    if connections.len() + 1 >= most {
                        closing.send_replace(());
                    }
                    metrics.connections.inc();
                    let handler = Arc::clone(&handler);
                    let closing = closing.subscribe();
                    connections.spawn(connection::serve(
                        stream,
                        peer.ip(),
                        handler,
                        limits,
                        closing,
                    ));
                }
                Err(error) => {
                    tracing::warn!(%error, "admin server cannot accept connections");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }

        drop(listener);
        health.start_shutdown();
        closing.send_replace(());
        let ended = async {
            while let Some(ended) = connections.join_next().await {
                reap(ended);
                metrics.connections.dec();
            }
        };
        if time::timeout(limits.drain_timeout, ended).await.is_err() {
            tracing::warn!(
                open = connections.len(),
                "admin server cuts connections that are busy"
            );
            connections.shutdown().await;
            metrics.connections.set(0);
        }
        tracing::info!(%address, "admin server stopped");
    }
}

/// Accepts one connection. Those that ended while they waited are no failure of ours.
async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    loop {
        match listener.accept().await {
            Err(error)
                if matches!(
                    error.kind(),
                    ConnectionAborted | ConnectionReset | Interrupted
                ) => {}
            accepted => return accepted,
        }
    }
}

/// A panic in one request ends its connection only, and is told.
fn reap(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "admin server connection ended by a bug");
    }
}

#[cfg(test)]
mod tests;

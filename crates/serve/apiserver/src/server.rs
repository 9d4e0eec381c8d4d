//! Sockets, TLS and HTTP around the handler.

mod activity;
mod connection;
mod pace;
mod turns;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_telemetry::Health;
use kubevitals_tls::{
    Alpn, Periodic, Refresh, RequestClientCertificate, ServerOptions, ServerTls, refresh_loop,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

pub(crate) use self::activity::Activity;
use self::connection::{Accepted, Closing, Shared, Terms};
pub(crate) use self::pace::Pace;
use self::turns::{Source, Turns};
use crate::authn::{TrustStatus, lookup_loop};
use crate::config::{Lookup, ServerConfig};
use crate::error::ApiServerError;
use crate::handler::Handler;
use crate::metrics::ApiServerMetrics;

/// How long accepting rests after a failure such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// How often connections that rest are asked to leave while there is no room.
const ROOM_EVERY: Duration = Duration::from_secs(1);
/// How often certificates are looked at.
const REFRESH_EVERY: Duration = Duration::from_mins(1);

/// A bound API server that does not answer yet.
pub struct ApiServer {
    listener: TcpListener,
    address: SocketAddr,
    shared: Shared,
    most: usize,
    drain_timeout: Duration,
    draining: watch::Sender<bool>,
    trust: TrustStatus,
    lookup: Option<Lookup>,
    refreshed: Vec<Arc<dyn Refresh>>,
    health: Health,
    metrics: ApiServerMetrics,
}

impl ApiServer {
    /// Checks the configuration and listens. From here on the kernel queues connections.
    pub async fn bind(mut config: ServerConfig) -> Result<Self, ApiServerError> {
        let alpn = if config.http2 {
            vec![Alpn::H2, Alpn::Http11]
        } else {
            vec![Alpn::Http11]
        };
        let options = ServerOptions {
            policy: config.tls.clone(),
            alpn,
            client_verifier: Some(RequestClientCertificate::verifier()),
            clock: None,
        };
        let tls = ServerTls::new(config.certificate.resolver(), &options)?;
        let mut refreshed = config.certificate.refreshed().to_vec();
        let authentication = &config.authentication;
        refreshed.extend(
            authentication
                .client_ca
                .iter()
                .map(|roots| -> Arc<dyn Refresh> { Arc::clone(roots) as Arc<dyn Refresh> }),
        );
        refreshed.extend(
            authentication
                .front_proxy
                .iter()
                .map(|proxy| -> Arc<dyn Refresh> { Arc::clone(&proxy.ca) as Arc<dyn Refresh> }),
        );
        let trust = TrustStatus::new(authentication)?;
        let lookup = config.authentication.lookup.take();
        let address = config.address;
        let limits = config.limits.clone();
        let (health, metrics) = (
            config.telemetry.health.clone(),
            config.telemetry.metrics.clone(),
        );
        let draining = watch::Sender::new(false);
        let handler = Handler::new(config, trust.clone(), draining.subscribe())?;

        let failed = |source| ApiServerError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // What more threads than these would do at once only makes others wait.
        let threads = tokio::runtime::Handle::current().metrics().num_workers();
        Ok(Self {
            listener,
            address,
            shared: Shared {
                acceptor: TlsAcceptor::from(tls.config()),
                handler: Arc::new(handler),
                terms: Terms::new(&limits),
                handshakes: Turns::new(threads, metrics.turns("handshake")),
                answers: Turns::new(threads, metrics.turns("answer")),
                metrics: metrics.clone(),
            },
            most: limits.connections.max(1),
            drain_timeout: limits.drain_timeout,
            draining,
            trust,
            lookup,
            refreshed,
            health,
            metrics,
        })
    }

    /// The address in use, with the port that the system chose if zero was asked for.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Whether the server knows whom to trust, for a readiness check under a name of the caller's.
    pub fn trust_status(&self) -> TrustStatus {
        self.trust.clone()
    }

    /// Answers until `shutdown` completes, then drains: readiness fails, watches end, connections
    /// are told to go away, and what is busy gets
    /// [`Limits::drain_timeout`](crate::Limits::drain_timeout). Meanwhile certificates, authorities
    /// and the lookup are kept fresh. Dropping the future ends everything at once.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let mut upkeep = JoinSet::new();
        upkeep.spawn(lookup_loop(self.trust, self.lookup, self.metrics.clone()));
        upkeep.spawn(refresh_loop(
            self.refreshed,
            Periodic::new(REFRESH_EVERY, std::future::pending()),
        ));
        let mut connections = JoinSet::new();
        let closing = watch::Sender::new(Closing::default());
        let (address, metrics) = (self.address, &self.metrics);
        let mut number = 0;
        tracing::info!(%address, "API server listens");

        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = connections.join_next() => {
                    reap(&ended, metrics);
                    continue;
                }
                accepted = accept(&self.listener), if connections.len() < self.most => accepted,
                // Those that were busy when they were asked may rest by now.
                () = tokio::time::sleep(ROOM_EVERY), if connections.len() >= self.most => {
                    closing.send_modify(Closing::make_room);
                    continue;
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    if connections.len() + 1 >= self.most {
                        closing.send_modify(Closing::make_room);
                    }
                    let _best_effort = stream.set_nodelay(true);
                    metrics.connections.inc();
                    number += 1;
                    let accepted = Accepted {
                        stream,
                        source: Source::of(peer.ip()),
                        number,
                    };
                    let shared = self.shared.clone();
                    connections.spawn(connection::accept(accepted, shared, closing.subscribe()));
                }
                Err(error) => {
                    tracing::warn!(%error, "API server cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }

        drop(self.listener);
        self.health.start_shutdown();
        self.draining.send_replace(true);
        closing.send_modify(Closing::drain);
        let ended = async {
            while let Some(ended) = connections.join_next().await {
                reap(&ended, metrics);
            }
        };
        if tokio::time::timeout(self.drain_timeout, ended)
            .await
            .is_err()
        {
            tracing::warn!(
                open = connections.len(),
                "API server cuts connections that are busy"
            );
            connections.shutdown().await;
            metrics.connections.set(0);
        }
        tracing::info!(%address, "API server stopped");
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

/// A panic outside of a request ends its connection only, and is told.
fn reap(ended: &Result<(), tokio::task::JoinError>, metrics: &ApiServerMetrics) {
    metrics.connections.dec();
    if let Err(error) = ended {
        tracing::error!(%error, "API server connection ended by a bug");
    }
}

//! The API server: TLS and HTTP around the handler, and its background tasks.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubevitals_http::{Accepted, Server, Transport};
use kubevitals_telemetry::Health;
use kubevitals_tls::{
    Alpn, Periodic, Refresh, RequestClientCertificate, ServerOptions, ServerTls, refresh_loop,
};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authn::{Peer, TrustStatus, lookup_loop};
use crate::config::{Lookup, ServerConfig};
use crate::error::ApiServerError;
use crate::handler::ApiHandler;
use crate::metrics::ApiServerMetrics;

/// Interval of certificate reloads.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);

/// A bound API server that does not accept yet.
pub struct ApiServer {
    server: Server,
    transport: TlsTransport,
    handler: Arc<ApiHandler>,
    draining: watch::Sender<bool>,
    trust: TrustStatus,
    lookup: Option<Lookup>,
    refreshed: Vec<Arc<dyn Refresh>>,
    health: Health,
    metrics: ApiServerMetrics,
    shutdown_delay: Duration,
}

/// Performs TLS handshakes and reads client certificates.
struct TlsTransport {
    acceptor: TlsAcceptor,
}

/// Aborts a task when it is dropped.
struct AbortOnDrop(AbortHandle);

impl ApiServer {
    /// Validates the configuration and listens. From here on the kernel queues connections.
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
        let limits = config.limits.http();
        let shutdown_delay = config.shutdown_delay;
        let (health, metrics) = (
            config.telemetry.health.clone(),
            config.telemetry.metrics.clone(),
        );
        let draining = watch::Sender::new(false);
        let handler = ApiHandler::new(config, trust.clone(), draining.subscribe())?;
        let server = Server::bind("API", address, limits, metrics.server())
            .await
            .map_err(|source| ApiServerError::Bind { address, source })?;
        Ok(Self {
            server,
            transport: TlsTransport {
                acceptor: TlsAcceptor::from(tls.config()),
            },
            handler: Arc::new(handler),
            draining,
            trust,
            lookup,
            refreshed,
            health,
            metrics,
            shutdown_delay,
        })
    }

    /// Returns the bound address, with the port that the system chose if zero was requested.
    pub const fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Whether the authentication configuration is loaded, for a readiness check under a name of
    /// the caller's choice.
    pub fn trust_status(&self) -> TrustStatus {
        self.trust.clone()
    }

    /// Serves until `shutdown` completes. Then readiness fails while requests are still served, for
    /// [`shutdown_delay`](ServerConfig::shutdown_delay): load balancers learn that this server goes
    /// away before it refuses a connection. After that it drains: the port is closed, watches end,
    /// idle connections are closed, and requests in flight get
    /// [`drain_timeout`](kubevitals_http::Limits::drain_timeout).
    ///
    /// Meanwhile certificates, authorities and the authentication configuration are refreshed; it
    /// is an error if one of these tasks ends. Dropping the future aborts everything.
    pub async fn serve(
        self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ApiServerError> {
        let mut lookup = tokio::spawn(lookup_loop(self.trust, self.lookup, self.metrics));
        let mut refresh = tokio::spawn(refresh_loop(
            self.refreshed,
            Periodic::new(REFRESH_INTERVAL, std::future::pending()),
        ));
        let _aborted = [lookup.abort_handle(), refresh.abort_handle()].map(AbortOnDrop);
        let (health, draining, delay) = (self.health, self.draining, self.shutdown_delay);
        let shutdown = async {
            shutdown.await;
            health.start_shutdown();
            tokio::time::sleep(delay).await;
            draining.send_replace(true);
        };
        let ended = |task| Err(ApiServerError::Task { task });
        tokio::select! {
            () = self.server.serve(self.transport, self.handler, shutdown) => Ok(()),
            _ = &mut lookup => ended("look-up-authentication"),
            _ = &mut refresh => ended("refresh-serving-certificates"),
        }
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Transport for TlsTransport {
    type Io = TlsStream<TcpStream>;
    type Peer = Peer;

    async fn handshake(
        &self,
        stream: TcpStream,
        _address: IpAddr,
    ) -> io::Result<Accepted<Self::Io, Peer>> {
        let stream = self.acceptor.accept(stream).await?;
        let (_, session) = stream.get_ref();
        Ok(Accepted {
            peer: Peer::new(session.peer_certificates().unwrap_or_default()),
            is_http2: session.alpn_protocol() == Some(b"h2"),
            io: stream,
        })
    }
}

//! The API server: TLS and HTTP around the handler, and its background tasks.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kubevitals_http::{Accepted, Server, Transport};
use kubevitals_telemetry::Health;
use kubevitals_tls::{
    Alpn, Periodic, Refresh, RequestClientCertificate, ServerOptions, ServerTls, refresh_loop,
};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authn::{Peer, TrustStatus, lookup_loop};
use crate::config::ServerConfig;
use crate::error::ApiServerError;
use crate::handler::ApiHandler;

/// Interval of certificate reloads.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);

/// A bound API server that does not accept yet.
pub struct ApiServer {
    server: Server,
    transport: TlsTransport,
    handler: Arc<ApiHandler>,
    draining: watch::Sender<bool>,
    trust: TrustStatus,
    tasks: Vec<BackgroundTask>,
    health: Health,
    shutdown_delay: Duration,
}

/// A task that runs as long as the server, with its name.
pub type BackgroundTask = (&'static str, BoxFuture<'static, ()>);

/// Performs TLS handshakes and reads client certificates.
struct TlsTransport {
    acceptor: TlsAcceptor,
}

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
        let health = config.telemetry.health.clone();
        let metrics = config.telemetry.metrics.clone();
        let outage = config.telemetry.outage.clone();
        let draining = watch::Sender::new(false);
        let handler = ApiHandler::new(config, trust.clone(), draining.subscribe())?;
        let server = Server::bind("API", address, limits, metrics.server())
            .await
            .map_err(|source| ApiServerError::Bind { address, source })?;
        let lookup = lookup_loop(trust.clone(), lookup, metrics, outage);
        let refresh = refresh_loop(
            refreshed,
            Periodic::new(REFRESH_INTERVAL, std::future::pending()),
        );
        Ok(Self {
            server,
            transport: TlsTransport {
                acceptor: TlsAcceptor::from(tls.config()),
            },
            handler: Arc::new(handler),
            draining,
            trust,
            tasks: vec![
                ("look-up-authentication", Box::pin(lookup)),
                ("refresh-serving-certificates", Box::pin(refresh)),
            ],
            health,
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

    /// Returns the tasks that refresh certificates, authorities and the authentication
    /// configuration. The caller runs and supervises them until the server ends: if one panics,
    /// the server goes on with what it has.
    pub fn take_tasks(&mut self) -> Vec<BackgroundTask> {
        std::mem::take(&mut self.tasks)
    }

    /// Serves until `shutdown` completes. Then readiness fails while requests are still served, for
    /// [`shutdown_delay`](ServerConfig::shutdown_delay): load balancers learn that this server goes
    /// away before it refuses a connection. After that it drains: the port is closed, watches end,
    /// idle connections are closed, and requests in flight get
    /// [`drain_timeout`](kubevitals_http::Limits::drain_timeout).
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let shutdown = async {
            shutdown.await;
            self.health.start_shutdown();
            tokio::time::sleep(self.shutdown_delay).await;
            self.draining.send_replace(true);
        };
        let served = self.server.serve(self.transport, self.handler, shutdown);
        served.await;
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

//! The API server: TLS and HTTP around the handler, and its background tasks.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_http::Server;
use kubevitals_telemetry::Health;
use tokio::sync::watch;

use crate::access::Trusted;
use crate::authn::TrustStatus;
use crate::config::ServerConfig;
use crate::error::ApiServerError;
use crate::handler::ApiHandler;
use crate::transport::{BackgroundTask, TlsTransport, refresh_task};

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

impl ApiServer {
    /// Validates the configuration and listens. From here on the kernel queues connections.
    pub async fn bind(mut config: ServerConfig) -> Result<Self, ApiServerError> {
        let transport = TlsTransport::new(&config.certificate, &config.tls, config.http2)?;
        let mut refreshed = config.certificate.refreshed().to_vec();
        let telemetry = &config.telemetry;
        let trusted = Trusted::new(
            &mut config.authentication,
            telemetry.metrics.access(),
            &telemetry.outage,
        )?;
        refreshed.extend(trusted.refreshed);
        let trust = trusted.status;
        let address = config.address;
        let limits = config.limits.http();
        let shutdown_delay = config.shutdown_delay;
        let health = config.telemetry.health.clone();
        let metrics = config.telemetry.metrics.clone();
        let draining = watch::Sender::new(false);
        let handler = ApiHandler::new(config, trust.clone(), draining.subscribe())?;
        let server = Server::bind("API", address, limits, metrics.server())
            .await
            .map_err(|source| ApiServerError::Bind { address, source })?;
        Ok(Self {
            server,
            transport,
            handler: Arc::new(handler),
            draining,
            trust,
            tasks: vec![
                trusted.lookup,
                refresh_task("refresh-serving-certificates", refreshed),
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

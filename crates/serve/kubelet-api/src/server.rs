//! The kubelet server: TLS and HTTP around the handler, and its background tasks.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use kubevitals_apiserver::{BackgroundTask, PlainTransport, TlsTransport, TrustStatus};
use kubevitals_http::Server;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::AccessControl;
use crate::config::{KubeletConfig, TransportConfig};
use crate::error::KubeletError;
use crate::handler::KubeletHandler;
use crate::streaming::StreamingServer;

/// A bound kubelet server that does not accept yet.
pub struct KubeletServer {
    server: Server,
    transport: Transport,
    handler: Arc<KubeletHandler>,
    streaming: Arc<StreamingServer>,
    draining: watch::Sender<bool>,
    tasks: Vec<BackgroundTask>,
}

enum Transport {
    Tls(TlsTransport),
    Plain,
}

impl KubeletServer {
    /// Validates the configuration and listens. From here on the kernel queues connections.
    pub async fn bind(config: KubeletConfig) -> Result<Self, KubeletError> {
        let mut tasks = Vec::new();
        let transport = match &config.transport {
            TransportConfig::Plain => Transport::Plain,
            TransportConfig::Tls {
                certificate,
                policy,
                http2,
            } => {
                tasks.push(certificate.refresh_task());
                Transport::Tls(TlsTransport::new(certificate, policy, *http2)?)
            }
        };
        let address = config.address;
        let is_open = matches!(config.access, AccessControl::AlwaysAllow);
        if is_open && !address.ip().is_loopback() {
            tracing::warn!(%address, "everybody who reaches this address may run commands in containers");
        }
        let limits = config.limits.http();
        let metrics = config.telemetry.metrics.server();
        let streaming = Arc::new(StreamingServer::new(
            config.streaming,
            config.telemetry.metrics.streaming(),
        ));
        let draining = watch::Sender::new(false);
        let (handler, access_tasks) =
            KubeletHandler::new(config, Arc::clone(&streaming), draining.subscribe())?;
        tasks.extend(access_tasks);
        let server = Server::bind("kubelet", address, limits, metrics)
            .await
            .map_err(|source| KubeletError::Bind { address, source })?;
        Ok(Self {
            server,
            transport,
            handler: Arc::new(handler),
            streaming,
            draining,
            tasks,
        })
    }

    /// Returns the bound address, with the port that the system chose if zero was requested.
    pub const fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Whether the authority of client certificates is loaded, for a readiness check under a name
    /// of the caller's choice; `None` if everybody is allowed.
    pub fn trust_status(&self) -> Option<TrustStatus> {
        self.handler.trust_status()
    }

    /// Returns the tasks that refresh certificates and authorities, for a caller that supervises
    /// them. Those that are not taken run with [`KubeletServer::serve`].
    pub fn take_tasks(&mut self) -> Vec<BackgroundTask> {
        std::mem::take(&mut self.tasks)
    }

    /// Serves until `shutdown` completes, then drains: the port is closed, logs that are followed
    /// and sessions end, idle connections are closed, and requests in flight get
    /// [`drain_timeout`](kubevitals_http::Limits::drain_timeout).
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let mut tasks = JoinSet::new();
        for (_, task) in self.tasks {
            tasks.spawn(task);
        }
        let shutdown = async {
            shutdown.await;
            self.draining.send_replace(true);
            self.streaming.shutdown().await;
        };
        match self.transport {
            Transport::Tls(tls) => self.server.serve(tls, self.handler, shutdown).await,
            Transport::Plain => {
                let plain = PlainTransport;
                self.server.serve(plain, self.handler, shutdown).await;
            }
        }
    }
}

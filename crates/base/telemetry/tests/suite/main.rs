//! The admin server over loopback sockets.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod client;
mod endpoints;
mod server;
mod vectors;

use kubevitals_telemetry::{
    Admin, AdminMetrics, AdminServer, Health, Limits, LogHandle, LogOptions, Metrics, Profiling,
    logs,
};
use tokio::{sync::oneshot, task::JoinHandle};

use self::client::Client;

/// A server on a port of its own.
struct Harness {
    address: std::net::SocketAddr,
    health: Health,
    logs: LogHandle,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
    _dispatch: tracing::Dispatch,
}

impl Harness {
    async fn start(limits: Limits) -> Self {
        Self::with_metrics(Metrics::new(), limits).await
    }

    async fn with_metrics(mut metrics: Metrics, limits: Limits) -> Self {
        let (dispatch, logs) = logs::build(&LogOptions::default(), std::io::sink).unwrap();
        let health = Health::new();
        let admin_metrics = AdminMetrics::register(metrics.sub("kubevitals_admin"));
        let admin = Admin {
            health: health.clone(),
            registry: metrics.freeze(),
            logs: Some(logs.clone()),
            metrics: admin_metrics,
            profiling: Profiling::Loopback,
        };
        let server = AdminServer::bind("127.0.0.1:0".parse().unwrap(), admin, limits)
            .await
            .unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(server.serve(async move {
            let _ = stopped.await;
        }));
        Self {
            address,
            health,
            logs,
            stop,
            served,
            _dispatch: dispatch,
        }
    }

    async fn connect(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Sends one request on its own connection.
    async fn get(&self, path: &str) -> client::Response {
        self.connect().await.send("GET", path, &[], "").await
    }
}

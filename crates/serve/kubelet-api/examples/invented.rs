//! A virtual kubelet in a few lines: one pod that prints its own name.
//!
//! `cargo run -p kubevitals-kubelet-api --all-features --example invented -- 127.0.0.1:10250`

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use kubevitals_kubelet_api::provider::{
    ContainerLogs, ContainerTarget, LogOptions, ProviderFuture, Stats,
};
use kubevitals_kubelet_api::{
    AccessControl, KubeletConfig, KubeletMetrics, KubeletServer, KubeletTelemetry, Provider,
    ProviderError, TransportConfig,
};
use kubevitals_model::node_stats::{NodeStats, SwapStats};
use kubevitals_model::{Bytes as Amount, Timestamp};
use kubevitals_telemetry::{Health, Metrics, OutageLog};

struct Invented;

impl Stats for Invented {
    fn stats(&self, _only_cpu_and_memory: bool) -> ProviderFuture<'_, Arc<NodeStats>> {
        Box::pin(async {
            let mut stats = NodeStats {
                name: String::from("invented"),
                ..NodeStats::default()
            };
            stats.usage.swap = Some(SwapStats {
                at: Timestamp::from_system_time(SystemTime::now()),
                usage: Amount::new(42),
                limit: None,
            });
            Ok(Arc::new(stats))
        })
    }
}

impl ContainerLogs for Invented {
    fn logs(
        &self,
        container: ContainerTarget,
        _options: LogOptions,
    ) -> ProviderFuture<'_, BoxStream<'static, io::Result<Bytes>>> {
        Box::pin(async move {
            let name = container.pod.key.name();
            if &**name != "hello" {
                return Err(ProviderError::NotFound(format!("pod {name:?} not found")));
            }
            Ok(stream::iter([Ok(Bytes::from_static(b"hello\n"))]).boxed())
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = std::env::args().nth(1).ok_or("give an address")?.parse()?;
    let mut provider = Provider::default();
    provider.stats = Some(Arc::new(Invented));
    provider.logs = Some(Arc::new(Invented));
    let mut registry = Metrics::new();
    let metrics = KubeletMetrics::register(&mut registry);
    let telemetry = KubeletTelemetry {
        health: Health::new(),
        registry: registry.freeze(),
        metrics,
        outage: OutageLog::default(),
    };
    // On loopback only: everybody may do everything. `AccessControl::delegated` asks the cluster.
    let access = AccessControl::AlwaysAllow;
    let transport = TransportConfig::Plain;
    let config = KubeletConfig::new(address, "invented", provider, transport, access, telemetry);
    let server = KubeletServer::bind(config).await?;
    #[expect(clippy::print_stdout, reason = "the output of an example")]
    {
        println!("{}", server.local_addr());
    }
    // Serves until standard input ends.
    let stopped = async {
        let _read = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
    };
    server.serve(stopped).await;
    Ok(())
}

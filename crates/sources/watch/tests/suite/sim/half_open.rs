//! Connections on which nothing arrives any more, and nobody says so.

use std::net::SocketAddr;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_client_metrics::Hooks;
use kubevitals_model::Node;
use kubevitals_watch::{
    ConnectionTimeouts, KubeTransport, RestartReason, WatchClient, api_client_with,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{interval, timeout};

use super::{DEADLINE, count, spec, start, synced};

/// A proxy that can stop to forward, with all connections open and new ones accepted: to a client,
/// an API server that is stopped (SIGSTOP), or one behind a network that drops packets.
struct Proxy {
    address: SocketAddr,
    forwards: watch::Sender<bool>,
}

impl Proxy {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (forwards, gate) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(target).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pump(from_client, to_server, gate.clone()));
                tokio::spawn(pump(from_server, to_client, gate.clone()));
            }
        });
        Self { address, forwards }
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut gate: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let is_open = gate.wait_for(|forwards| *forwards).await.is_ok();
        if !is_open || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// A kube-apiserver that was stopped by SIGSTOP was taken for dead after 346 s.
#[tokio::test]
async fn a_half_open_connection_is_noticed_and_replaced() {
    let api = start().await;
    let proxy = Proxy::start(api.address()).await;
    let direct = api.address().to_string();
    let kubeconfig = api
        .kubeconfig()
        .replace(&direct, &proxy.address.to_string());
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let mut config = config.await.unwrap();
    config.default_retry = false;
    let timeouts = ConnectionTimeouts {
        idle: Duration::from_millis(200),
        ping: Duration::from_millis(500),
    };
    let client = api_client_with(config, &Hooks::default(), timeouts).unwrap();
    let client = WatchClient::new(KubeTransport::from_client(client));
    let nodes = client.reflector(spec::<Node>("nodes"));
    synced(&nodes).await;

    let mut ticks = interval(Duration::from_millis(20));
    for outage in 1..=2 {
        proxy.forwards.send_replace(false);
        let noticed = async {
            while count(&nodes, RestartReason::ConnectionLost) < outage {
                ticks.tick().await;
            }
        };
        let noticed = timeout(DEADLINE, noticed).await;
        assert!(noticed.is_ok(), "{:?}", nodes.state());
        proxy.forwards.send_replace(true);
        let name = format!("node-{outage}");
        let node = serde_json::json!({"metadata": {"name": name}});
        let writer = api.writer();
        writer
            .create(kubevitals_sim::objects::Resource::Nodes, node)
            .unwrap();
        let known = async {
            while nodes.objects().len() < usize::try_from(outage).unwrap() {
                ticks.tick().await;
            }
        };
        let known = timeout(DEADLINE, known).await;
        assert!(known.is_ok(), "{:?}", nodes.state());
    }
    api.shutdown().await;
}

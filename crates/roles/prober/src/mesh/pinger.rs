//! The side of node mode: connects to peers and measures.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use http_body_util::Full;
use kubevitals_http_client::HttpClient;
use kubevitals_model::Rng;
use kubevitals_telemetry::{
    HistogramFamily, HistogramSpec, LabelSet, Metrics, Page, PageResponse, RegistryExt as _,
};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::ring::MeshPeer;

/// Maximum size of an answer of the coordinator.
const MAX_ANSWER: usize = 64 << 10;

const BUCKETS: [f64; 12] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0,
];

const SPEC: HistogramSpec = HistogramSpec {
    name: "kubevitals_prober_mesh_duration_seconds",
    help: "Time from the connection to the first byte of a peer in seconds, by zones",
    bounds: &BUCKETS,
    native: None,
};

/// Settings of the mesh.
#[derive(Debug, Clone)]
pub struct MeshSettings {
    /// The name of this node.
    pub node: String,
    /// The URL of cluster mode, without a path.
    pub coordinator: String,
    pub peers: usize,
    pub interval: Duration,
    /// Of one connection.
    pub timeout: Duration,
}

/// Connects to peers at an interval. Clones share the results.
#[derive(Debug, Clone)]
pub struct MeshPinger {
    settings: MeshSettings,
    results: Arc<Mutex<BTreeMap<Arc<str>, PeerResult>>>,
    duration: HistogramFamily<Zones>,
    total: Family<PingLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Zones {
    source: Arc<str>,
    target: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PingLabels {
    source_zone: String,
    target_zone: String,
    result: &'static str,
}

/// The last result of a peer, and its counts since it became one.
#[derive(Debug, Clone, Serialize)]
struct PeerResult {
    #[serde(flatten)]
    peer: MeshPeer,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    total: u64,
    failed: u64,
}

impl LabelSet for Zones {
    fn visit(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit("source_zone", &self.source);
        visit("target_zone", &self.target);
    }
}

impl MeshPinger {
    pub fn register(metrics: &mut Metrics, settings: MeshSettings) -> Self {
        Self {
            settings,
            results: Arc::default(),
            duration: HistogramFamily::register(metrics, SPEC),
            total: metrics.sub("kubevitals_prober_mesh").family(
                "pings",
                "Total number of connections to peers, by zones and result",
            ),
        }
    }

    /// The page `/mesh`: the peers of this node.
    pub fn page(&self) -> Page {
        let results = Arc::clone(&self.results);
        Page::new("/mesh", "the peers of this node, as JSON", move |_| {
            let results: Vec<PeerResult> = results.lock().values().cloned().collect();
            let body = serde_json::to_vec(&results).unwrap_or_default();
            async move { PageResponse::json(StatusCode::OK, body) }
        })
    }

    /// Measures for ever. `port` is that of the admin server, the same on all nodes; `zone` is that
    /// of this node.
    pub async fn run(self, port: u16, zone: impl Fn() -> Arc<str> + Send) {
        let client = match HttpClient::new(&kubevitals_http_client::Options::default()) {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "the mesh does not run");
                return std::future::pending().await;
            }
        };
        // Nodes that start together must not connect together.
        let delay = Rng::random().duration_up_to(self.settings.interval);
        let mut ticks = interval_at(Instant::now() + delay, self.settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut peers = Vec::new();
        let mut is_logged = false;
        loop {
            ticks.tick().await;
            match self.ask(&client).await {
                Ok(answer) => {
                    peers = answer;
                    is_logged = false;
                }
                // The known peers are measured on.
                Err(problem) if !is_logged => {
                    tracing::warn!(problem, "failed to ask for peers of the mesh");
                    is_logged = true;
                }
                Err(_) => {}
            }
            self.forget_others(&peers);
            let source = zone();
            join_all(peers.iter().map(|peer| self.measure(peer, port, &source))).await;
        }
    }

    /// Reports the last results and asks for the peers of this node.
    async fn ask(&self, client: &HttpClient) -> Result<Vec<MeshPeer>, String> {
        let measured: Vec<String> = self
            .results
            .lock()
            .values()
            .map(|result| match result.seconds.map(Duration::from_secs_f64) {
                Some(time) => format!("{}:{}", result.peer.node, time.as_micros()),
                None => format!("{}:-", result.peer.node),
            })
            .collect();
        // Names of nodes and numbers need no escaping.
        let MeshSettings {
            coordinator, node, ..
        } = &self.settings;
        let uri = format!(
            "{}/mesh/peers?node={node}&count={}&measured={}",
            coordinator.trim_end_matches('/'),
            self.settings.peers,
            measured.join(",")
        );
        let request = Request::get(uri).body(Full::<Bytes>::default());
        let request = request.map_err(|error| error.to_string())?;
        let sent = timeout(self.settings.interval, client.send(request, MAX_ANSWER)).await;
        let (response, _) = sent
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|error| error.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("the answer is {}", response.status()));
        }
        let peers: Vec<MeshPeer> =
            serde_json::from_slice(response.body()).map_err(|error| error.to_string())?;
        Ok(peers.into_iter().take(self.settings.peers).collect())
    }

    /// A peer that is no longer one says nothing any more.
    fn forget_others(&self, peers: &[MeshPeer]) {
        self.results
            .lock()
            .retain(|node, _| peers.iter().any(|peer| peer.node == *node));
    }

    async fn measure(&self, peer: &MeshPeer, port: u16, source: &Arc<str>) {
        let address = SocketAddr::new(peer.address, port);
        let started = Instant::now();
        let pinged = timeout(self.settings.timeout, ping(address)).await;
        let elapsed = started.elapsed();
        let (result, seconds) = match pinged {
            Ok(Ok(())) => ("ok", Some(elapsed)),
            Ok(Err(error)) => (reason(&error), None),
            Err(_) => ("timeout", None),
        };
        let zones = Zones {
            source: Arc::clone(source),
            target: Arc::clone(&peer.zone),
        };
        if let Some(elapsed) = seconds {
            self.duration.observe(&zones, elapsed);
        }
        let labels = PingLabels {
            source_zone: zones.source.to_string(),
            target_zone: zones.target.to_string(),
            result,
        };
        self.total.get_or_create(&labels).inc();
        let mut results = self.results.lock();
        let known = results.entry(Arc::clone(&peer.node));
        let known = known.or_insert_with(|| PeerResult {
            peer: peer.clone(),
            result,
            seconds: None,
            total: 0,
            failed: 0,
        });
        known.peer = peer.clone();
        known.result = result;
        known.seconds = seconds.map(|elapsed| elapsed.as_secs_f64());
        known.total = known.total.saturating_add(1);
        known.failed = known.failed.saturating_add(u64::from(seconds.is_none()));
    }
}

/// Connects and waits for the first byte of an answer, whatever it is: the path is measured, not
/// the health of the peer.
async fn ping(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = b"GET /livez HTTP/1.1\r\nHost: mesh\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut first = [0; 1];
    match stream.read(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// A closed set, fit for a label.
fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused",
        io::ErrorKind::ConnectionReset => "reset",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "unreachable",
        io::ErrorKind::TimedOut => "timeout",
        io::ErrorKind::UnexpectedEof => "eof",
        _ => "error",
    }
}

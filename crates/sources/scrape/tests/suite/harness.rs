//! A simulated cluster, a scraper, and a sink that records.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kubevitals_model::{ContainerSample, Node, NodeBatch, NodeSample};
use kubevitals_scrape::{
    ANNOTATIONS, BatchInfo, Bearer, Coverage, Credentials, PORT, SCHEME, ScrapeConfig, ScrapeError,
    ScrapeMetrics, ScrapeSink, ScrapedNode, Scraper, Transport,
};
use kubevitals_sim::api::{Rule, SimApiHandle, User};
use kubevitals_sim::cluster::{SimCluster, SimClusterConfig};
use kubevitals_sim::kubelet::Binding;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::workload::WorkloadConfig;
use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{Metrics, SharedRegistry};
use kubevitals_tls::{ClientOptions, ClientTls, PemSource, TrustRoots};
use kubevitals_watch::{KubeTransport, Reflector, WatchClient, WatchSpec};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Reached only by a hang.
const DEADLINE: Duration = Duration::from_mins(1);
pub(crate) const NODES: [&str; 2] = ["node-00000", "node-00001"];

/// Waits for what must happen.
pub(crate) fn within<T>(
    what: &str,
    future: impl Future<Output = T>,
) -> Pin<Box<impl Future<Output = T>>> {
    // Boxed: futures of tests are large.
    Box::pin(async move {
        let result = tokio::time::timeout(DEADLINE, future).await;
        result.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
    })
}

/// A cluster of two nodes and a watch of them.
pub(crate) struct Harness {
    pub(crate) cluster: SimCluster,
    pub(crate) nodes: Reflector<Node>,
    token: String,
}

/// A running scraper and its results.
pub(crate) struct Running {
    pub(crate) scraper: Scraper,
    pub(crate) events: RecordingSink,
    pub(crate) registry: SharedRegistry,
}

/// A sink that records all calls in order.
#[derive(Clone)]
pub(crate) struct RecordingSink(watch::Sender<Vec<Event>>);

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Batch {
        node: String,
        sample: NodeSample,
        containers: Vec<Container>,
        info: BatchInfo,
    },
    Error {
        node: String,
        error: ScrapeError,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) name: String,
    pub(crate) sample: ContainerSample,
}

impl ScrapeSink for RecordingSink {
    fn on_batch(&self, node: &ScrapedNode, batch: &NodeBatch, info: &BatchInfo) -> Coverage {
        let containers = batch.containers().map(|(key, sample)| Container {
            namespace: key.pod.namespace.to_owned(),
            pod: key.pod.name.to_owned(),
            name: key.container.to_owned(),
            sample: *sample,
        });
        self.record(Event::Batch {
            node: node.name.as_str().to_owned(),
            sample: batch.node,
            containers: containers.collect(),
            info: *info,
        });
        Coverage::Complete
    }

    fn on_error(&self, node: &ScrapedNode, error: &ScrapeError, retry_in: Duration) {
        assert!(!retry_in.is_zero());
        self.record(Event::Error {
            node: node.name.as_str().to_owned(),
            error: error.clone(),
        });
    }
}

impl Running {
    /// Waits until the metrics are as wanted, and returns them.
    pub(crate) async fn metrics(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let encoded = || {
            let text = self.registry.encode(Format::OpenMetrics);
            String::from_utf8(text.unwrap()).unwrap()
        };
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        let found = tokio::time::timeout(DEADLINE, async {
            loop {
                ticks.tick().await;
                let text = encoded();
                if wanted(&text) {
                    return text;
                }
            }
        });
        let Ok(text) = found.await else {
            panic!("timed out waiting for {what}: {}", encoded());
        };
        text
    }
}

impl Event {
    pub(crate) fn node(&self) -> &str {
        match self {
            Self::Batch { node, .. } | Self::Error { node, .. } => node,
        }
    }

    pub(crate) fn containers(&self) -> &[Container] {
        match self {
            Self::Batch { containers, .. } => containers,
            other @ Self::Error { .. } => panic!("{other:?}"),
        }
    }
}

impl RecordingSink {
    fn record(&self, event: Event) {
        self.0.send_modify(|events| events.push(event));
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.borrow().clone()
    }

    /// Waits for the first matching event from an index on.
    pub(crate) async fn wait(
        &self,
        from: usize,
        what: &str,
        wanted: impl Fn(&Event) -> bool,
    ) -> Event {
        let mut events = self.0.subscribe();
        let found = events.wait_for(|events| events.iter().skip(from).any(&wanted));
        let Ok(events) = tokio::time::timeout(DEADLINE, found).await else {
            panic!(
                "timed out waiting for {what}; events: {:#?}",
                self.summary()
            );
        };
        let events = events.unwrap();
        events
            .iter()
            .skip(from)
            .find(|e| wanted(e))
            .unwrap()
            .clone()
    }

    /// Waits for the first batch of a node.
    pub(crate) async fn first_batch(&self, node: &str) -> Event {
        self.wait(0, "a first batch", |event| is_batch(event, node))
            .await
    }

    /// Waits for the first batch or error of a node.
    pub(crate) async fn first_result(&self, node: &str) -> Event {
        self.wait(0, "a first result", |event| event.node() == node)
            .await
    }

    /// Waits for the first error of a node.
    pub(crate) async fn first_error(&self, node: &str) -> ScrapeError {
        let is_error = |event: &Event| matches!(event, Event::Error { node: n, .. } if n == node);
        match self.wait(0, "a first error", is_error).await {
            Event::Error { error, .. } => error,
            other @ Event::Batch { .. } => panic!("{other:?}"),
        }
    }

    /// Waits for a number of errors of any node from an index on.
    pub(crate) async fn wait_for_errors(&self, from: usize, count: usize) {
        let is_error = |event: &&Event| matches!(event, Event::Error { .. });
        let mut events = self.0.subscribe();
        let enough =
            |events: &Vec<Event>| events.iter().skip(from).filter(is_error).count() >= count;
        let found = tokio::time::timeout(DEADLINE, events.wait_for(enough)).await;
        assert!(found.is_ok(), "events: {:#?}", self.summary());
    }

    fn summary(&self) -> Vec<String> {
        let line = |event: &Event| match event {
            Event::Batch {
                node, containers, ..
            } => format!("{node}: {}", containers.len()),
            Event::Error { node, error } => format!("{node}: {error}"),
        };
        self.0.borrow().iter().map(line).collect()
    }
}

pub(crate) fn is_batch(event: &Event, wanted: &str) -> bool {
    matches!(event, Event::Batch { node, .. } if node == wanted)
}

impl Harness {
    pub(crate) async fn start() -> Self {
        Self::start_on(Binding::Wildcard(0)).await
    }

    pub(crate) async fn start_on(binding: Binding) -> Self {
        kubevitals_tls::install_crypto_provider();
        let config = SimClusterConfig {
            nodes: NODES.len(),
            binding,
            workload: WorkloadConfig {
                pods_per_node: 6,
                ..WorkloadConfig::default()
            },
            ..SimClusterConfig::default()
        };
        let cluster = SimCluster::start(config, drop).await.unwrap();
        let api = cluster.api();
        let token = api.issue_token(User::new("scraper", []), None).unwrap();
        api.allow(Rule::for_user("scraper", ["get"], "", ["nodes/metrics"]));
        let kubeconfig = Kubeconfig::from_yaml(&api.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let kube = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let server = WatchClient::new(KubeTransport::new(kube.unwrap()).unwrap());
        let spec = WatchSpec::<Node>::new("nodes").keep_annotations(ANNOTATIONS);
        Self {
            nodes: server.reflector(spec),
            cluster,
            token,
        }
    }

    pub(crate) fn api(&self) -> &SimApiHandle {
        self.cluster.api()
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn allow_stats(&self) {
        self.api()
            .allow(Rule::for_user("scraper", ["get"], "", ["nodes/stats"]));
    }

    /// A configuration that works, with a short resolution.
    pub(crate) fn config(&self) -> ScrapeConfig {
        let transport = Transport::Tls(trusting(self.cluster.fleet().authority_pem()));
        let credentials = Credentials::Token(Bearer::new(&self.token).unwrap());
        ScrapeConfig {
            resolution: Duration::from_secs(1),
            timeout: Duration::from_millis(900),
            ..ScrapeConfig::new(transport, credentials)
        }
    }

    /// Lets a test respond for a node, over plain HTTP. Only with `allow_http` it is scraped.
    #[expect(clippy::indexing_slicing, reason = "absent fields are created")]
    pub(crate) async fn respond_for(&self, name: &str) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut node = self.node(name);
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
        let port = listener.local_addr().unwrap().port();
        node["metadata"]["annotations"][PORT] = json!(port.to_string());
        node["metadata"]["annotations"][SCHEME] = json!("http");
        self.write(node);
        listener
    }

    pub(crate) fn scrape(&self, config: ScrapeConfig) -> Running {
        self.scrape_after(std::future::ready(()), config)
    }

    pub(crate) fn scrape_after(
        &self,
        ready: impl Future<Output = ()> + Send + 'static,
        config: ScrapeConfig,
    ) -> Running {
        let events = RecordingSink(watch::channel(Vec::new()).0);
        let mut metrics = Metrics::new();
        let own = ScrapeMetrics::register(&mut metrics, config.resolution);
        let sink = Arc::new(events.clone());
        Running {
            scraper: Scraper::start(ready, config, &self.nodes, sink, own).unwrap(),
            events,
            registry: metrics.freeze(),
        }
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        self.api().object(Resource::Nodes, None, name).unwrap()
    }

    pub(crate) fn write(&self, node: Value) {
        self.api().writer().replace(Resource::Nodes, node).unwrap();
    }

    pub(crate) async fn shutdown(self, running: Running) {
        within("scraper, watch and cluster end", async {
            running.scraper.shutdown().await;
            self.nodes.shutdown().await;
            self.cluster.shutdown().await;
        })
        .await;
    }
}

/// Accepts the next request that is sent to a listener, and returns its head.
pub(crate) async fn request(listener: &TcpListener) -> (TcpStream, String) {
    within("a request", async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        (stream, String::from_utf8(head).unwrap())
    })
    .await
}

pub(crate) fn trusting(pem: &str) -> ClientTls {
    let source = PemSource::Inline {
        label: "CA of the kubelets",
        pem: pem.as_bytes().into(),
    };
    let roots = TrustRoots::load("kubelets", vec![source], SystemTime::now()).unwrap();
    ClientTls::trusting(roots, &ClientOptions::default()).unwrap()
}

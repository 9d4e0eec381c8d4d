//! A cluster, somebody who scrapes it, and somebody who takes notes.

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kubevitals_model::{ContainerSample, NodeBatch, NodeName, NodeSample, Timestamp};
use kubevitals_scrape::{
    Answer, Bearer, Credentials, Failure, RESOURCE_METRICS_PATH, Receive, ScrapeConfig,
    ScrapeMetrics, Scraper, Transport,
};
use kubevitals_sim::api::{Rule, SimApiHandle, User};
use kubevitals_sim::cluster::{SimCluster, SimClusterConfig};
use kubevitals_sim::objects::Resource;
use kubevitals_sim::workload::WorkloadConfig;
use kubevitals_telemetry::{Metrics, SharedRegistry};
use kubevitals_tls::{ClientOptions, ClientTls, PemSource, TrustRoots};
use kubevitals_watch::{KubeTransport, Node, Server, Stream, StreamSpec};
use serde_json::Value;
use tokio::sync::watch;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(1);
pub(crate) const NODES: [&str; 2] = ["node-00000", "node-00001"];

/// A cluster of two nodes and a stream of them.
pub(crate) struct Bed {
    pub(crate) cluster: SimCluster,
    pub(crate) nodes: Stream<Node>,
    token: String,
}

/// Somebody who scrapes, and what came of it.
pub(crate) struct Scrape {
    pub(crate) scraper: Scraper,
    pub(crate) notes: Notes,
    pub(crate) registry: SharedRegistry,
}

/// What a receiver was told, in order.
#[derive(Clone)]
pub(crate) struct Notes(watch::Sender<Vec<Event>>);

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Received {
        node: String,
        sample: NodeSample,
        containers: Vec<Container>,
        answer: Answer,
    },
    Failed {
        node: String,
        failure: Failure,
    },
    Left {
        node: String,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) name: String,
    pub(crate) sample: ContainerSample,
}

impl Receive for Notes {
    fn received(&self, node: &NodeName, batch: &NodeBatch, answer: &Answer) {
        let containers = batch.containers().map(|(key, sample)| Container {
            namespace: key.pod.namespace.to_owned(),
            pod: key.pod.name.to_owned(),
            name: key.container.to_owned(),
            sample: *sample,
        });
        self.note(Event::Received {
            node: node.as_str().to_owned(),
            sample: batch.node,
            containers: containers.collect(),
            answer: *answer,
        });
    }

    fn failed(&self, node: &NodeName, failure: &Failure, next: Timestamp) {
        assert!(next > Timestamp::from_unix_millis(0));
        self.note(Event::Failed {
            node: node.as_str().to_owned(),
            failure: failure.clone(),
        });
    }

    fn left(&self, node: &NodeName) {
        self.note(Event::Left {
            node: node.as_str().to_owned(),
        });
    }
}

impl Event {
    pub(crate) fn node(&self) -> &str {
        match self {
            Self::Received { node, .. } | Self::Failed { node, .. } | Self::Left { node } => node,
        }
    }

    pub(crate) fn containers(&self) -> &[Container] {
        match self {
            Self::Received { containers, .. } => containers,
            other => panic!("{other:?}"),
        }
    }
}

impl Notes {
    fn note(&self, event: Event) {
        self.0.send_modify(|events| events.push(event));
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.borrow().clone()
    }

    /// The next event from a place on that is as wanted.
    pub(crate) async fn wait(
        &self,
        from: usize,
        what: &str,
        wanted: impl Fn(&Event) -> bool,
    ) -> Event {
        let mut events = self.0.subscribe();
        let found = events.wait_for(|events| events.iter().skip(from).any(&wanted));
        let Ok(events) = tokio::time::timeout(DEADLINE, found).await else {
            panic!("not in time: {what}; so far: {:#?}", self.summary());
        };
        let events = events.unwrap();
        events
            .iter()
            .skip(from)
            .find(|e| wanted(e))
            .unwrap()
            .clone()
    }

    /// The first answer of a node.
    pub(crate) async fn first(&self, node: &str) -> Event {
        self.wait(0, "a first answer", |event| is_received(event, node))
            .await
    }

    /// The first failure of a node.
    pub(crate) async fn failure(&self, node: &str) -> Failure {
        let failed = |event: &Event| matches!(event, Event::Failed { node: n, .. } if n == node);
        match self.wait(0, "a failure", failed).await {
            Event::Failed { failure, .. } => failure,
            other => panic!("{other:?}"),
        }
    }

    fn summary(&self) -> Vec<String> {
        let line = |event: &Event| match event {
            Event::Received {
                node, containers, ..
            } => format!("{node}: {}", containers.len()),
            Event::Failed { node, failure } => format!("{node}: {failure}"),
            Event::Left { node } => format!("{node} left"),
        };
        self.0.borrow().iter().map(line).collect()
    }
}

pub(crate) fn is_received(event: &Event, wanted: &str) -> bool {
    matches!(event, Event::Received { node, .. } if node == wanted)
}

impl Bed {
    pub(crate) async fn start() -> Self {
        kubevitals_tls::install_crypto_provider();
        let config = SimClusterConfig {
            nodes: NODES.len(),
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
        let server = Server::new(KubeTransport::new(kube.unwrap()).unwrap());
        let spec = StreamSpec::<Node>::new("nodes").keep_annotations([RESOURCE_METRICS_PATH]);
        Self {
            nodes: server.watch(spec),
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

    /// Settings with which the kubelets can be scraped, quickly.
    pub(crate) fn config(&self) -> ScrapeConfig {
        let transport = Transport::Tls(trusting(self.cluster.fleet().authority_pem()));
        let credentials = Credentials::Token(Bearer::new(&self.token).unwrap());
        ScrapeConfig {
            resolution: Duration::from_secs(1),
            timeout: Duration::from_millis(900),
            ..ScrapeConfig::new(transport, credentials)
        }
    }

    pub(crate) fn scrape(&self, config: ScrapeConfig) -> Scrape {
        self.scrape_after(ready(()), config)
    }

    pub(crate) fn scrape_after(
        &self,
        before: impl Future<Output = ()> + Send + 'static,
        config: ScrapeConfig,
    ) -> Scrape {
        let notes = Notes(watch::channel(Vec::new()).0);
        let mut metrics = Metrics::new();
        let own = ScrapeMetrics::register(&mut metrics, config.resolution);
        let receiver = Arc::new(notes.clone());
        Scrape {
            scraper: Scraper::start_after(before, config, &self.nodes, receiver, own).unwrap(),
            notes,
            registry: metrics.freeze(),
        }
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        self.api().object(Resource::Nodes, None, name).unwrap()
    }

    pub(crate) fn write(&self, node: Value) {
        self.api().writer().replace(Resource::Nodes, node).unwrap();
    }

    /// Ends everything, after somebody who scraped.
    pub(crate) async fn end(self, scrape: Scrape) {
        scrape.scraper.shutdown().await;
        self.nodes.shutdown().await;
        self.cluster.shutdown().await;
    }
}

pub(crate) fn trusting(pem: &str) -> ClientTls {
    let source = PemSource::Inline {
        label: "authority of the kubelets",
        pem: pem.as_bytes().into(),
    };
    let roots = TrustRoots::load("kubelets", vec![source], SystemTime::now()).unwrap();
    ClientTls::trusting(roots, &ClientOptions::default()).unwrap()
}

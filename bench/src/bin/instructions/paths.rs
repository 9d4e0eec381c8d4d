//! The hot paths: each is prepared without being counted, and then run several times.

use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body::Body as _;
use kubevitals_apiserver::{ApiResource, Body, Encoding, ListRequest, Representation, Shape};
use kubevitals_bench::pods;
use kubevitals_metrics_api::{Config, MetricsApi, MetricsApiPublisher};
use kubevitals_model::{
    LabelSelector, Labels, Moment, NodeBatch, NodeName, Pod, PodKey, PodSummary, SteppedClock, Uid,
};
use kubevitals_promtext::{Item, parse};
use kubevitals_scrape::internals::{DecodeOptions, Decoder, decode};
use kubevitals_usage::{NodeUsage, PodUsage, UsageConfig, UsagePublisher, UsageStore};
use kubevitals_watch::{Kind, decode_event};

use crate::fixture::{Cluster, NODES, selector, time};

/// A frequent operation.
pub(crate) struct HotPath {
    pub(crate) name: &'static str,
    /// The counted operation.
    pub(crate) operation: &'static str,
    /// Number of counted operations.
    pub(crate) times: usize,
    /// Prepares that many operations.
    pub(crate) prepare: fn(times: usize) -> Box<dyn FnMut(usize)>,
}

/// All hot paths, in the order in which a sample passes through them.
pub(crate) const PATHS: [HotPath; 12] = [
    HotPath {
        name: "parse",
        operation: "a kubelet's body of 30 pods of 2 containers, every value and label",
        times: 20,
        prepare: parse_bodies,
    },
    HotPath {
        name: "decode",
        operation: "the same into a batch, the families that are served",
        times: 20,
        prepare: decode_bodies,
    },
    HotPath {
        name: "store",
        operation: "a batch of new samples into the store, up to its publication",
        times: 40,
        prepare: store_new,
    },
    HotPath {
        name: "store-repeated",
        operation: "a batch that the store already has",
        times: 40,
        prepare: store_repeated,
    },
    HotPath {
        name: "publish",
        operation: "a node of 30 pods rendered and published, all its values new",
        times: 40,
        prepare: publish_new,
    },
    HotPath {
        name: "publish-churn",
        operation: "the same, one of its pods replaced by another",
        times: 40,
        prepare: publish_churn,
    },
    HotPath {
        name: "scrape",
        operation: "a body decoded, stored and published: everything after a scrape",
        times: 40,
        prepare: scrape,
    },
    HotPath {
        name: "select",
        operation: "10 of 3,000 pods by a label, as protobuf",
        times: 100,
        prepare: select,
    },
    HotPath {
        name: "list-json",
        operation: "all 3,000 pods as JSON",
        times: 4,
        prepare: list_json,
    },
    HotPath {
        name: "list-protobuf",
        operation: "all 3,000 pods as protobuf",
        times: 4,
        prepare: list_protobuf,
    },
    HotPath {
        name: "watch-summary",
        operation: "a watched pod decoded to the fields that the server keeps",
        times: 64,
        prepare: watch::<PodSummary>,
    },
    HotPath {
        name: "watch-pod",
        operation: "the same, with its containers and conditions",
        times: 64,
        prepare: watch::<Pod>,
    },
];

/// A publisher that does nothing.
struct NoopPublisher;

impl UsagePublisher for NoopPublisher {
    fn publish(&self, view: &NodeUsage<'_>) {
        black_box(view);
    }

    fn withdraw(&self, _: &NodeName) {}
}

fn parse_bodies(times: usize) -> Box<dyn FnMut(usize)> {
    let bodies = bodies(&Cluster::new(), times, 0);
    Box::new(move |number| {
        let mut sum = 0.0;
        parse(&bodies[number], |item| {
            if let Item::Sample(sample) = item {
                sum += sample.value;
                black_box(sample.labels);
            }
        });
        black_box(sum);
    })
}

fn decode_bodies(times: usize) -> Box<dyn FnMut(usize)> {
    let bodies = bodies(&Cluster::new(), times, 0);
    let mut decoding = Decoding::default();
    // The buffers of a decoder are reused.
    decoding.decode(&bodies[0], 0);
    Box::new(move |number| {
        black_box(decoding.decode(&bodies[number], 0));
    })
}

fn store_new(times: usize) -> Box<dyn FnMut(usize)> {
    let cluster = Cluster::new();
    let store = store(&cluster, Arc::new(NoopPublisher));
    take_in(&store, &cluster, times, 0);
    take_in(&store, &cluster, times, 1);
    let (uids, batches) = (uids(&cluster), batches(&cluster, times, 2));
    Box::new(move |number| {
        let node = cluster.nodes[number].name.as_str();
        black_box(store.ingest(node, &uids[number], &batches[number], now(2)));
    })
}

fn store_repeated(times: usize) -> Box<dyn FnMut(usize)> {
    let cluster = Cluster::new();
    let store = store(&cluster, Arc::new(NoopPublisher));
    take_in(&store, &cluster, times, 0);
    take_in(&store, &cluster, times, 1);
    let (uids, batches) = (uids(&cluster), batches(&cluster, times, 1));
    Box::new(move |number| {
        let node = cluster.nodes[number].name.as_str();
        black_box(store.ingest(node, &uids[number], &batches[number], now(2)));
    })
}

fn publish_new(times: usize) -> Box<dyn FnMut(usize)> {
    let cluster = Cluster::new();
    let (publisher, _) = api(&cluster);
    let views = views(&cluster, times, 1);
    Box::new(move |number| publish(&publisher, &cluster, number, &views[number], 1))
}

fn publish_churn(times: usize) -> Box<dyn FnMut(usize)> {
    let cluster = Cluster::new();
    let (publisher, _) = api(&cluster);
    let mut views = views(&cluster, times, 1);
    for (number, pods) in views.iter_mut().enumerate() {
        let at = number % pods.len();
        let replaced = &mut pods[at];
        let name = format!("{}x", replaced.key.name());
        replaced.key = PodKey::new(Arc::clone(replaced.key.namespace()), name);
        pods.sort_by(|a, b| a.key.cmp(&b.key));
    }
    Box::new(move |number| publish(&publisher, &cluster, number, &views[number], 1))
}

fn scrape(times: usize) -> Box<dyn FnMut(usize)> {
    let cluster = Cluster::new();
    let (publisher, _) = MetricsApi::pair(config());
    let store = store(&cluster, Arc::new(publisher));
    take_in(&store, &cluster, NODES, 0);
    take_in(&store, &cluster, NODES, 1);
    let bodies = bodies(&cluster, times, 2);
    let mut decoding = Decoding::default();
    decoding.decode(&bodies[0], 2);
    let uids = uids(&cluster);
    Box::new(move |number| {
        let node = cluster.nodes[number].name.as_str();
        let batch = decoding.decode(&bodies[number], 2);
        black_box(store.ingest(node, &uids[number], batch, now(2)));
    })
}

fn select(times: usize) -> Box<dyn FnMut(usize)> {
    let (_, api) = api(&Cluster::new());
    let pods = pods_of(&api);
    let selectors: Vec<LabelSelector> = (0..times)
        .map(|app| LabelSelector::parse(&selector(app)).expect("a selector of our own making"))
        .collect();
    Box::new(move |number| {
        black_box(list(&*pods, &selectors[number], Encoding::Protobuf));
    })
}

fn list_json(times: usize) -> Box<dyn FnMut(usize)> {
    list_all(times, Encoding::Json)
}

fn list_protobuf(times: usize) -> Box<dyn FnMut(usize)> {
    list_all(times, Encoding::Protobuf)
}

/// Something is published between two full lists, so that each is the first of its version: one API
/// per list.
fn list_all(times: usize, encoding: Encoding) -> Box<dyn FnMut(usize)> {
    let cluster = Cluster::new();
    let all: Vec<Arc<dyn ApiResource>> = (0..times).map(|_| pods_of(&api(&cluster).1)).collect();
    Box::new(move |number| {
        black_box(list(&*all[number], &LabelSelector::default(), encoding));
    })
}

/// Pods that change, as a watch sends them again: their labels and namespaces are interned.
fn watch<K: Kind>(times: usize) -> Box<dyn FnMut(usize)> {
    let decoder = kubevitals_watch::Decoder::default();
    let lines = pods::lines(times);
    let read = move |line: &[u8]| decode_event::<K>(line, &decoder).expect("a watch event");
    let known: Vec<_> = lines.iter().map(|line| read(line)).collect();
    Box::new(move |number| {
        black_box((read(&lines[number]), &known));
    })
}

/// A decoder and the batch that it fills.
#[derive(Default)]
struct Decoding {
    decoder: Decoder,
    batch: NodeBatch,
}

impl Decoding {
    fn decode(&mut self, body: &[u8], round: u32) -> &NodeBatch {
        let options = DecodeOptions {
            requested_at: time(round),
            is_complete: true,
            max_containers: 10_000,
        };
        let report = decode(body, options, &mut self.batch, &mut self.decoder);
        assert!(report.used > 0 && report.rejected.iter().all(|count| *count == 0));
        &self.batch
    }
}

fn bodies(cluster: &Cluster, nodes: usize, round: u32) -> Vec<Vec<u8>> {
    let nodes = cluster.nodes.iter().take(nodes);
    nodes.map(|node| node.body(round)).collect()
}

fn batches(cluster: &Cluster, nodes: usize, round: u32) -> Vec<NodeBatch> {
    let mut decoding = Decoding::default();
    let bodies = bodies(cluster, nodes, round);
    let batches = bodies
        .iter()
        .map(|body| decoding.decode(body, round).clone());
    batches.collect()
}

fn views(cluster: &Cluster, nodes: usize, round: u32) -> Vec<Vec<PodUsage>> {
    let nodes = cluster.nodes.iter().take(nodes);
    nodes.map(|node| node.view(round)).collect()
}

fn uids(cluster: &Cluster) -> Vec<Uid> {
    let uid = |name: &NodeName| Uid::from(name.as_str());
    cluster.nodes.iter().map(|node| uid(&node.name)).collect()
}

fn now(round: u32) -> Moment {
    Moment {
        wall: time(round),
        monotonic: Duration::from_secs(15) * round,
    }
}

fn empty_store() -> UsageStore {
    UsageStore::new(UsageConfig::new(Duration::from_secs(15)))
}

fn store(cluster: &Cluster, publisher: Arc<dyn UsagePublisher>) -> UsageStore {
    let mut store = empty_store();
    store.add_publisher(publisher);
    for node in &cluster.nodes {
        let name = node.name.as_str();
        store.node_applied(&node.name, &Labels::default(), &Uid::from(name));
    }
    store.pods_replaced(&cluster.pods(), now(0));
    store.flush(now(0));
    store
}

fn take_in(store: &UsageStore, cluster: &Cluster, nodes: usize, round: u32) {
    for (node, batch) in cluster.nodes.iter().zip(batches(cluster, nodes, round)) {
        let name = node.name.as_str();
        let done = store.ingest(name, &Uid::from(name), &batch, now(round));
        assert!(done.new_sample && done.held + done.foreign == 0, "{done:?}");
    }
}

/// An API that serves a whole cluster.
fn api(cluster: &Cluster) -> (MetricsApiPublisher, MetricsApi) {
    let (publisher, api) = MetricsApi::pair(config());
    for (number, pods) in views(cluster, NODES, 0).iter().enumerate() {
        publish(&publisher, cluster, number, pods, 0);
    }
    (publisher, api)
}

fn config() -> Config {
    Config {
        // Resource versions have the same number of digits in every run.
        clock: SteppedClock::new(time(3)).clock(),
        ..Config::default()
    }
}

fn publish(
    publisher: &MetricsApiPublisher,
    cluster: &Cluster,
    number: usize,
    pods: &[PodUsage],
    round: u32,
) {
    let node = &cluster.nodes[number];
    publisher.publish(&NodeUsage {
        node: &node.name,
        labels: &Labels::default(),
        usage: Some(&node.usage(round, number as u64)),
        pods,
        published: time(round),
    });
}

fn pods_of(api: &MetricsApi) -> Arc<dyn ApiResource> {
    let resources = api.group(&Arc::new(empty_store())).resources;
    let pods = resources
        .into_iter()
        .find(|resource| resource.info().plural == "pods");
    pods.expect("the API has pods")
}

/// Returns the size of a list in bytes.
fn list(pods: &dyn ApiResource, labels: &LabelSelector, encoding: Encoding) -> usize {
    let request = ListRequest {
        version: "v1beta1",
        namespace: None,
        labels,
        fields: &[],
        representation: Representation {
            encoding,
            shape: Shape::Object,
        },
    };
    let mut body = pods.list(&request).expect("there is no other reader");
    let mut len = 0;
    while let Some(piece) = next(&mut body) {
        len += black_box(piece).len();
    }
    len
}

fn next(body: &mut Body) -> Option<bytes::Bytes> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(body).poll_frame(&mut context) {
        Poll::Ready(frame) => frame?.ok()?.into_data().ok(),
        Poll::Pending => None,
    }
}

//! Every kind of stream, against what the cluster holds.

use std::collections::BTreeMap;

use kubevitals_model::{
    AsPodSummary, DaemonSet, Deployment, Event, Labels, Node, PartialObjectMeta, Pod, PodSummary,
    ReplicaSet, Workload,
};
use kubevitals_sim::api::SimApiHandle;
use kubevitals_sim::objects::Resource as Stored;
use kubevitals_watch::{Kind, Reflector, Resource, RestartReason, WatchClient, WatchSpec};
use serde_json::{Value, json};

use super::{
    Follower, Harness, Requests, connect, count, create, key, pod, quick, spec, start, states,
    stored, synced,
};

/// Some fields of an object, by where the server has them.
trait Compared: Kind {
    const PLACES: &'static [&'static str];

    /// In the order of the places.
    fn fields(&self) -> Vec<Value>;
}

const LABELS: &str = "/metadata/labels";

impl Compared for PodSummary {
    const PLACES: &'static [&'static str] = &[LABELS, "/spec/nodeName", "/status/phase"];

    fn fields(&self) -> Vec<Value> {
        vec![
            map(&self.labels),
            json!(self.node.as_deref()),
            json!(self.phase.as_str()),
        ]
    }
}

impl Compared for Pod {
    const PLACES: &'static [&'static str] = &[
        LABELS,
        "/spec/nodeName",
        "/status/phase",
        "/metadata/ownerReferences/0/name",
        "/spec/containers/0/name",
        "/spec/containers/1/image",
        "/status/containerStatuses/1/name",
        "/status/containerStatuses/0/ready",
        "/status/containerStatuses/0/restartCount",
        "/status/conditions/0/type",
        "/status/podIP",
        "/status/qosClass",
    ];

    fn fields(&self) -> Vec<Value> {
        let mut fields = self.summary().fields();
        let first = self.container_statuses.first();
        fields.extend([
            json!(self.meta.owners.first().map(|owner| &*owner.name)),
            json!(self.containers.first().map(|own| &*own.name)),
            json!(self.containers.get(1).and_then(|own| own.image.as_deref())),
            json!(self.container_statuses.get(1).map(|own| &*own.name)),
            json!(first.map(|own| own.ready)),
            json!(first.map(|own| own.restart_count)),
            json!(self.conditions.first().map(|own| &*own.kind)),
            json!(self.pod_ip.as_deref()),
            json!(self.qos_class.as_deref()),
        ]);
        fields
    }
}

impl Compared for Node {
    const PLACES: &'static [&'static str] = &[
        LABELS,
        "/spec/unschedulable",
        "/status/addresses/0/address",
        "/status/daemonEndpoints/kubeletEndpoint/Port",
        "/status/nodeInfo/kubeletVersion",
        "/status/capacity",
        "/status/conditions/0/type",
    ];

    fn fields(&self) -> Vec<Value> {
        vec![
            map(&self.labels),
            json!(self.unschedulable),
            json!(self.addresses.first().map(|own| &*own.address)),
            json!(self.kubelet_port),
            json!(self.kubelet_version.as_deref()),
            map(&self.capacity),
            json!(self.conditions.first().map(|own| &*own.kind)),
        ]
    }
}

impl Compared for Event {
    const PLACES: &'static [&'static str] = &[
        "/reason",
        "/message",
        "/type",
        "/count",
        "/involvedObject/name",
        "/involvedObject/uid",
    ];

    fn fields(&self) -> Vec<Value> {
        vec![
            json!(self.reason.as_deref()),
            json!(self.message.as_deref()),
            json!(self.kind.as_deref()),
            json!(self.count),
            json!(&*self.regarding.name),
            json!(self.regarding.uid.to_string()),
        ]
    }
}

const WORKLOAD: [&str; 4] = [
    LABELS,
    "/spec/selector/matchLabels",
    "/spec/template/metadata/labels",
    "/status/observedGeneration",
];

impl Compared for Deployment {
    const PLACES: &'static [&'static str] = &[
        WORKLOAD[0],
        WORKLOAD[1],
        WORKLOAD[2],
        WORKLOAD[3],
        "/spec/replicas",
        "/status/readyReplicas",
    ];

    fn fields(&self) -> Vec<Value> {
        workload(&self.workload, self.desired, self.ready)
    }
}

impl Compared for ReplicaSet {
    const PLACES: &'static [&'static str] = Deployment::PLACES;

    fn fields(&self) -> Vec<Value> {
        workload(&self.workload, self.desired, self.ready)
    }
}

impl Compared for DaemonSet {
    const PLACES: &'static [&'static str] = &[
        WORKLOAD[0],
        WORKLOAD[1],
        WORKLOAD[2],
        WORKLOAD[3],
        "/status/desiredNumberScheduled",
        "/status/numberReady",
    ];

    fn fields(&self) -> Vec<Value> {
        workload(&self.workload, self.desired, self.ready)
    }
}

impl Compared for PartialObjectMeta {
    const PLACES: &'static [&'static str] = &[LABELS, "/metadata/ownerReferences/0/uid"];

    fn fields(&self) -> Vec<Value> {
        let owner = self.meta.owners.first();
        vec![
            map(&self.labels),
            json!(owner.map(|owner| owner.uid.to_string())),
        ]
    }
}

/// Lists, lets something happen, and compares both times.
async fn compare<K: Compared>(
    server: &WatchClient,
    harness: &Harness,
    spec: WatchSpec<K>,
    of: Stored,
) {
    let stream = server.reflector(spec);
    let mut follower = Follower::new(&stream);
    for _ in ["listed", "watched"] {
        let truth = stored(harness.api(), of);
        assert!(!truth.is_empty(), "{of:?}");
        follower.learn(&truth).await;
        assert_eq!(states(&stream.objects()), truth, "{of:?}");
        let seen = follower.mirror.objects();
        let seen: BTreeMap<String, Vec<Value>> = seen
            .iter()
            .map(|object| {
                let fields = object.fields().into_iter().map(plain).collect();
                (object.identity().to_string(), fields)
            })
            .collect();
        assert_eq!(seen, expected::<K>(harness.api(), of), "{of:?}");
        harness.churn(1);
    }
    let state = stream.state();
    assert_eq!((state.decode_errors, state.restarts.len()), (0, 0));
}

/// The compared fields of the stored objects.
fn expected<K: Compared>(sim: &SimApiHandle, of: Stored) -> BTreeMap<String, Vec<Value>> {
    sim.objects(of)
        .iter()
        .map(|object| {
            let at = |place: &&str| object.pointer(place).cloned().unwrap_or_default();
            let fields = K::PLACES.iter().map(at).map(plain).collect();
            (key(object), fields)
        })
        .collect()
}

#[tokio::test]
async fn every_kind_is_cached_as_the_cluster_has_it() {
    let harness = Harness::start().await;
    harness.churn(10);
    let (server, requests) = connect(&harness.api().kubeconfig()).await;
    compare(&server, &harness, spec::<PodSummary>("pods"), Stored::Pods).await;
    compare(&server, &harness, spec::<Pod>("pods"), Stored::Pods).await;
    compare(&server, &harness, spec::<Node>("nodes"), Stored::Nodes).await;
    compare(&server, &harness, spec::<Event>("events"), Stored::Events).await;
    let of = Stored::Deployments;
    compare(&server, &harness, spec::<Deployment>("deployments"), of).await;
    let of = Stored::ReplicaSets;
    compare(&server, &harness, spec::<ReplicaSet>("replicasets"), of).await;
    let of = Stored::DaemonSets;
    compare(&server, &harness, spec::<DaemonSet>("daemonsets"), of).await;
    for (group, plural, of) in [
        ("", "pods", Stored::Pods),
        ("", "configmaps", Stored::ConfigMaps),
        ("apps", "replicasets", Stored::ReplicaSets),
        ("coordination.k8s.io", "leases", Stored::Leases),
    ] {
        let resource = Resource::new(group, "v1", plural);
        let spec = WatchSpec::metadata("any", resource).options(quick());
        compare(&server, &harness, spec, of).await;
    }
    // Each of them was one streaming list that became a watch.
    let requests = requests.all();
    assert_eq!(requests.len(), 11, "{requests:?}");
    let streaming = |uri: &String| uri.contains("sendInitialEvents=true");
    assert!(requests.iter().all(streaming), "{requests:?}");
    harness.cluster.shutdown().await;
}

#[tokio::test]
async fn a_server_without_streaming_lists_is_listed_in_pages() {
    let sim = start().await;
    for number in 0..25 {
        create(&sim, pod(&format!("pod-{number}"), "n1", "Running", "web"));
    }
    sim.reject_streaming_lists(true);
    let (server, requests) = connect(&sim.kubeconfig()).await;
    let mut pages = spec::<PodSummary>("pods");
    pages.options.page_size = 10;
    let pods = server.reflector(pages.clone());
    synced(&pods).await;
    assert_eq!(states(&pods.objects()), stored(&sim, Stored::Pods));
    assert_eq!(count(&pods, RestartReason::NoStreamingLists), 1);
    let sent = |seen: &Requests, what: &str| {
        let requests = seen.all();
        requests.iter().filter(|uri| uri.contains(what)).count()
    };
    assert_eq!(sent(&requests, "limit=10"), 3, "{:?}", requests.all());
    assert_eq!(sent(&requests, "continue="), 2, "{:?}", requests.all());

    // The watch goes on from the list.
    create(&sim, pod("late", "n1", "Running", "web"));
    let mut follower = Follower::new(&pods);
    follower
        .until("the late one is seen", |own| own.mirror.len() == 26)
        .await;

    // That the server has none is remembered for its other streams, and metadata comes in pages
    // too.
    let mut metadata = WatchSpec::metadata("any", Resource::new("", "v1", "pods"));
    metadata.options = pages.options;
    let metadata: Reflector<PartialObjectMeta> = server.reflector(metadata);
    synced(&metadata).await;
    assert_eq!(states(&metadata.objects()), stored(&sim, Stored::Pods));
    assert_eq!(sent(&requests, "sendInitialEvents"), 1);
    assert_eq!(sent(&requests, "limit=10"), 6, "{:?}", requests.all());
    sim.shutdown().await;
}

fn workload(own: &Workload, desired: i32, ready: i32) -> Vec<Value> {
    vec![
        map(&own.labels),
        map(&own.selector.labels),
        map(&own.template_labels),
        json!(own.observed_generation),
        json!(desired),
        json!(ready),
    ]
}

fn map(labels: &Labels) -> Value {
    labels
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The types do not distinguish missing from empty.
fn plain(value: Value) -> Value {
    let is_empty = match &value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    };
    if is_empty { Value::Null } else { value }
}

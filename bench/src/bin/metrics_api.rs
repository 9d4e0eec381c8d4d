//! The resource metrics API without a network: the cost of a publication and of lists, and the heap
//! that it retains.
//!
//! `cargo xtask bench metrics-api` prints CPU time on one core, at 1,000 nodes of 30 pods with two
//! containers each, and counts the heap. The baseline of a list is one copy of its bytes.
#![expect(clippy::print_stdout, reason = "the table is the output")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::indexing_slicing,
    reason = "small figures, and indexes into fixtures of known size"
)]

use std::alloc::System;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body::Body as _;
use kubevitals_apiserver::{
    ApiResource, Body, Encoding, GetRequest, ListRequest, Representation, Shape,
};
use kubevitals_bench::timing::{Timing, megabytes_per_second};
use kubevitals_metrics_api::{Config, MetricsApi, MetricsApiPublisher};
use kubevitals_model::{
    Bytes, CpuUsage, LabelSelector, Labels, NodeName, PodKey, Timestamp, Usage,
};
use kubevitals_usage::{
    ContainerUsage, NodeUsage, PodUsage, UsageConfig, UsagePublisher as _, UsageStore,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NODES: usize = 1_000;
const PODS_OF_NODE: usize = 30;
const REPLICAS: usize = 10;
const RUNS: usize = 15;
const NOW: i64 = 1_763_254_228_000;

fn main() {
    let mut cluster = cluster();
    let pods = NODES * PODS_OF_NODE;
    let (publisher, api) = MetricsApi::pair(Config::default());
    let region = Region::new(HEAP);
    publish_all(&publisher, &mut cluster, 0);
    let change = region.change();
    let kept = change.bytes_allocated as isize - change.bytes_deallocated as isize;
    println!("{NODES} nodes, {pods} pods of two containers, one core\n");
    println!("{:<52} {:>10}", "heap per pod, bytes", kept / pods as isize);

    let per_node = |timing: Timing| timing.best.as_secs_f64() * 1e6 / NODES as f64;
    let all = Timing::of_cpu(RUNS, |round| {
        publish_all(&publisher, &mut cluster, round + 1);
    });
    println!(
        "{:<52} {:>10.2}",
        "publish a node of 30 pods, µs",
        per_node(all)
    );
    let churn = Timing::of_cpu(RUNS, |round| {
        publish_with_one_new(&publisher, &mut cluster, round);
    });
    println!(
        "{:<52} {:>10.2}",
        "the same with one pod replaced, µs",
        per_node(churn)
    );

    let resource = pods_of(&api);
    whole_lists(&*resource);
    parts(&*resource);
}

fn whole_lists(resource: &dyn ApiResource) {
    for (name, encoding) in [("JSON", Encoding::Json), ("protobuf", Encoding::Protobuf)] {
        let everything = LabelSelector::default();
        let len = list(resource, None, &everything, encoding, None);
        let mut pieces = Vec::new();
        list(resource, None, &everything, encoding, Some(&mut pieces));
        let timing = Timing::of_cpu(RUNS, |_| {
            black_box(list(resource, None, &everything, encoding, None));
        });
        let copy = Timing::of_cpu(RUNS, |_| {
            for piece in &pieces {
                black_box(piece.to_vec());
            }
        });
        println!(
            "{:<52} {:>10.2}   {:.2} MB at {:.0} MB/s; copied once: {:.2}",
            format!("list all pods as {name}, ms"),
            millis(timing),
            len as f64 / 1e6,
            megabytes_per_second(len, timing.best),
            millis(copy),
        );
    }
}

fn parts(resource: &dyn ApiResource) {
    for (what, namespace, selector) in [
        (
            "list 10 pods of a namespace by labels, µs",
            Some("ns-7"),
            "app=app-7-70",
        ),
        (
            "list 10 pods of all namespaces by labels, µs",
            None,
            "app=app-7-70",
        ),
        (
            "list 10 pods by two labels, one common, µs",
            Some("ns-7"),
            "team=one,app=app-7-70",
        ),
        (
            "list a namespace by a common label, µs",
            Some("ns-7"),
            "team=one",
        ),
    ] {
        let selector = LabelSelector::parse(selector).unwrap_or_default();
        let timing = Timing::of_cpu(RUNS, |_| {
            for _ in 0..100 {
                black_box(list(
                    resource,
                    namespace,
                    &selector,
                    Encoding::Protobuf,
                    None,
                ));
            }
        });
        println!("{what:<52} {:>10.2}", timing.best.as_secs_f64() * 1e4);
    }
    let get = Timing::of_cpu(RUNS, |_| {
        for _ in 0..100 {
            let request = GetRequest {
                version: "v1",
                namespace: "ns-7",
                name: "app-7-70-3",
                representation: form(Encoding::Protobuf),
            };
            black_box(resource.get(&request).ok());
        }
    });
    println!(
        "{:<52} {:>10.2}",
        "get a pod, µs",
        get.best.as_secs_f64() * 1e4
    );
}

/// Ten replicas of an application share a label set; ten namespaces share the pods.
fn cluster() -> Vec<(NodeName, Vec<PodUsage>)> {
    let apps = NODES * PODS_OF_NODE / REPLICAS;
    let namespaces: Vec<Arc<str>> = (0..10).map(|n| format!("ns-{n}").into()).collect();
    let mut nodes: Vec<(NodeName, Vec<PodUsage>)> = (0..NODES)
        .map(|n| (NodeName::new(format!("node-{n:05}")), Vec::new()))
        .collect();
    let shared: [Arc<str>; 5] = ["app", "team", "one", "main", "sidecar"].map(Into::into);
    let [app_key, team, one, main, sidecar] = &shared;
    for app in 0..apps {
        let namespace = app % namespaces.len();
        let name = format!("app-{namespace}-{}", app / namespaces.len());
        let pairs = [
            (Arc::clone(app_key), Arc::from(name.as_str())),
            (Arc::from("pod-template-hash"), format!("{app:010x}").into()),
            (Arc::clone(team), Arc::clone(one)),
        ];
        let labels = Labels::from_sorted(Arc::from(pairs));
        for replica in 0..REPLICAS {
            let pod = PodUsage {
                key: PodKey::new(
                    Arc::clone(&namespaces[namespace]),
                    format!("{name}-{replica}"),
                ),
                labels: labels.clone(),
                containers: [main, sidecar]
                    .map(|name| ContainerUsage {
                        name: Arc::clone(name),
                        usage: usage(0),
                    })
                    .into(),
            };
            nodes[(app * REPLICAS + replica) % NODES].1.push(pod);
        }
    }
    for (_, pods) in &mut nodes {
        pods.sort_by(|a, b| a.key.cmp(&b.key));
    }
    nodes
}

fn usage(round: usize) -> Usage {
    Usage {
        cpu: CpuUsage::from_nanocores(4_710_169 + round as u64),
        memory: Bytes::new((12_240 + round as u64) << 10),
        swap: None,
        ephemeral_storage: None,
        timestamp: Timestamp::from_unix_millis(NOW + round as i64 * 15_000),
        window: Duration::from_millis(14_964),
    }
}

fn publish_all(
    publisher: &MetricsApiPublisher,
    cluster: &mut [(NodeName, Vec<PodUsage>)],
    round: usize,
) {
    let usage = usage(round);
    for (node, pods) in cluster {
        for container in pods.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.usage = usage;
        }
        publish(publisher, node, pods, &usage);
    }
}

fn publish_with_one_new(
    publisher: &MetricsApiPublisher,
    cluster: &mut [(NodeName, Vec<PodUsage>)],
    round: usize,
) {
    let usage = usage(round);
    for (node, pods) in cluster {
        let at = round % pods.len();
        let key = PodKey::new(
            Arc::clone(pods[at].key.namespace()),
            format!("{}x", pods[at].key.name()),
        );
        pods[at].key = key;
        pods.sort_by(|a, b| a.key.cmp(&b.key));
        publish(publisher, node, pods, &usage);
    }
}

fn publish(publisher: &MetricsApiPublisher, node: &NodeName, pods: &[PodUsage], usage: &Usage) {
    publisher.publish(&NodeUsage {
        node,
        labels: &Labels::default(),
        usage: Some(usage),
        pods,
        published: usage.timestamp,
    });
}

fn pods_of(api: &MetricsApi) -> Arc<dyn ApiResource> {
    let store = UsageStore::new(UsageConfig::new(Duration::from_secs(15)));
    let mut resources = api.group(&Arc::new(store)).resources;
    resources.retain(|resource| resource.info().plural == "pods");
    resources.remove(0)
}

fn form(encoding: Encoding) -> Representation {
    Representation {
        encoding,
        shape: Shape::Object,
    }
}

/// Returns the size of a list in bytes, and appends its chunks to `pieces` if given.
fn list(
    resource: &dyn ApiResource,
    namespace: Option<&str>,
    labels: &LabelSelector,
    encoding: Encoding,
    mut pieces: Option<&mut Vec<bytes::Bytes>>,
) -> usize {
    let request = ListRequest {
        version: "v1",
        namespace,
        labels,
        fields: &[],
        representation: form(encoding),
    };
    let Ok(mut body) = resource.list(&request) else {
        return 0;
    };
    let mut len = 0;
    while let Some(piece) = next(&mut body) {
        len += piece.len();
        if let Some(pieces) = &mut pieces {
            pieces.push(piece);
        }
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

fn millis(timing: Timing) -> f64 {
    timing.best.as_secs_f64() * 1e3
}

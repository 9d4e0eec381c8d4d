//! Our server and metrics-server on the same node at the same time return the same.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Burner, Cluster, MetricsApiServer, TestNamespace, is_ready};
use kubevitals_model::{GoDuration, Quantity, Scale, Timestamp};
use serde_json::Value;

use crate::{SHORTEST_WINDOW, in_time};

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Kubelets sample every 10 s to 15 s, and both servers are queried at the same time.
const ONE_SAMPLE: Duration = Duration::from_secs(15);

/// Limit of a window: one sample more or less, which kubelets take every 10 s to 15 s.
const MAX_WINDOW: Duration = Duration::from_secs(45);

/// Queries one server by version of the API: metrics-server has `v1beta1`, ours `v1`.
async fn query(namespace: &TestNamespace, version: &str, rest: &str) -> Option<Value> {
    let path = format!("/apis/metrics.k8s.io/{version}/{rest}");
    let answer = namespace.kubectl(&["get", "--raw", &path]).await;
    let text = answer
        .inspect_err(|error| println!("{path}: {error}"))
        .ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// Queries both until both have it, with timestamps at most one sample apart.
async fn both(namespace: &TestNamespace, rest: &str) -> (Value, Value) {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time("answers of both", async {
        loop {
            ticks.tick().await;
            let ours = query(namespace, "v1", rest).await;
            let theirs = query(namespace, "v1beta1", rest).await;
            let (Some(ours), Some(theirs)) = (ours, theirs) else {
                continue;
            };
            let apart = apart(&ours, &theirs);
            println!("{rest}: {apart:?} apart");
            let windows = [&ours, &theirs].map(|of| Duration::try_from(window(of)).unwrap());
            if apart <= ONE_SAMPLE && windows.iter().all(|window| *window >= SHORTEST_WINDOW) {
                return (ours, theirs);
            }
        }
    })
    .await
}

fn window(of: &Value) -> GoDuration {
    of["window"].as_str().unwrap().parse().unwrap()
}

/// Queries both until they return rates of the same two samples: the CPU of a node is not steady.
async fn both_of_the_same_samples(namespace: &TestNamespace, rest: &str) -> (Value, Value) {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time("rates of the same samples", async {
        loop {
            ticks.tick().await;
            let (ours, theirs) = both(namespace, rest).await;
            let is_same = window(&ours) == window(&theirs);
            println!("{rest}: {} and {}", ours["window"], theirs["window"]);
            if is_same && ours["timestamp"] == theirs["timestamp"] {
                return (ours, theirs);
            }
        }
    })
    .await
}

/// Returns the difference of the timestamps of two responses.
fn apart(ours: &Value, theirs: &Value) -> Duration {
    let at =
        |object: &Value| -> Timestamp { object["timestamp"].as_str().unwrap().parse().unwrap() };
    let (ours, theirs) = (at(ours), at(theirs));
    let later = ours.max(theirs);
    later.since(ours.min(theirs)).unwrap_or_default()
}

/// Compares one object of both, field by field, without the fields in which they may differ.
fn assert_equal(ours: &Value, theirs: &Value) {
    for field in ["name", "namespace", "labels"] {
        assert_eq!(ours["metadata"][field], theirs["metadata"][field]);
    }
    assert_eq!(ours["kind"], theirs["kind"]);
    for object in [ours, theirs] {
        let window: GoDuration = object["window"].as_str().unwrap().parse().unwrap();
        let window = Duration::try_from(window).unwrap();
        assert!(window > Duration::ZERO && window <= MAX_WINDOW, "{object}");
    }
    let (ours, theirs) = (usages(ours), usages(theirs));
    assert_eq!(
        ours.keys().collect::<Vec<_>>(),
        theirs.keys().collect::<Vec<_>>()
    );
    for (name, usage) in &ours {
        let theirs = &theirs[name];
        near(
            "bytes",
            bytes(&usage["memory"]),
            bytes(&theirs["memory"]),
            name,
        );
        let (ours, theirs) = (nanocores(&usage["cpu"]), nanocores(&theirs["cpu"]));
        near("nanocores", ours, theirs, name);
    }
}

/// Returns the usage of each container, or of the node under the empty name.
fn usages(object: &Value) -> BTreeMap<String, Value> {
    let Some(containers) = object["containers"].as_array() else {
        return BTreeMap::from([(String::new(), object["usage"].clone())]);
    };
    let named = containers.iter().map(|container| {
        let name = container["name"].as_str().unwrap().to_owned();
        (name, container["usage"].clone())
    });
    named.collect()
}

/// Compares values of a steady usage, which is the same a sample later.
fn near(unit: &str, ours: i64, theirs: i64, of: &str) {
    let tolerated = ours.max(theirs) / 10;
    println!("{of}: {ours} and {theirs} {unit}");
    assert!(
        (ours - theirs).abs() <= tolerated,
        "{of}: {ours} and {theirs} {unit}"
    );
}

fn bytes(memory: &Value) -> i64 {
    let quantity: Quantity = memory.as_str().unwrap().parse().unwrap();
    quantity.value().unwrap()
}

fn nanocores(cpu: &Value) -> i64 {
    let quantity: Quantity = cpu.as_str().unwrap().parse().unwrap();
    quantity.scaled_value(Scale::Nano).unwrap()
}

#[tokio::test]
async fn every_field_agrees_with_metrics_server() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("server-peer").await?;
    let burner = Burner::new("burner")
        .cpu_millicores(200)
        .memory_mebibytes(32);
    namespace.apply(&burner.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let mut theirs = MetricsApiServer::start_metrics_server(&namespace).await?;
    let mut ours = MetricsApiServer::start_beside(&theirs, &namespace).await?;

    let pod = format!("namespaces/{}/pods/burner", namespace.name());
    for _ in 0..2 {
        let (from_us, from_them) = both(&namespace, &pod).await;
        assert_equal(&from_us, &from_them);
    }
    let list = format!("namespaces/{}/pods", namespace.name());
    for version in ["v1", "v1beta1"] {
        let list = query(&namespace, version, &list).await.expect("a list");
        assert_eq!(list["kind"], "PodMetricsList");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
        assert_eq!(list["items"][0].get("kind"), None);
    }
    let node = format!("nodes/{}", cluster.node_name());
    let (from_us, from_them) = both(&namespace, &node).await;
    for field in ["name", "labels"] {
        assert_eq!(from_us["metadata"][field], from_them["metadata"][field]);
    }
    let memory = |of: &Value| bytes(&of["usage"]["memory"]);
    near("bytes", memory(&from_us), memory(&from_them), "the node");
    let (from_us, from_them) = both_of_the_same_samples(&namespace, &node).await;
    let cpu = |of: &Value| nanocores(&of["usage"]["cpu"]);
    near("nanocores", cpu(&from_us), cpu(&from_them), "the node");

    ours.must_run()?;
    theirs.must_run()?;
    ours.stop(&namespace).await?;
    theirs.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

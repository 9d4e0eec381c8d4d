//! Our server and metrics-server on the same node at the same time: what both say must be the same.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Burner, Cluster, MetricsApiServer, MetricsServer, TestNamespace, is_ready};
use kubevitals_model::{GoDuration, Quantity, Scale};
use serde_json::Value;

use crate::in_time;

const EVERY: Duration = Duration::from_millis(500);

/// The longest window that one sample more or less explains: kubelets sample every 10 s to 15 s.
const LONGEST_WINDOW: Duration = Duration::from_secs(45);

/// What one server says, by version of the API: metrics-server has `v1beta1`, ours `v1`.
async fn ask(namespace: &TestNamespace, version: &str, rest: &str) -> Option<Value> {
    let path = format!("/apis/metrics.k8s.io/{version}/{rest}");
    let text = namespace.kubectl(&["get", "--raw", &path]).await.ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// Asks both until both answer from the same sample of the kubelet.
async fn both(namespace: &TestNamespace, rest: &str) -> (Value, Value) {
    let mut ticks = tokio::time::interval(EVERY);
    in_time("the same sample from both", async {
        loop {
            ticks.tick().await;
            let ours = ask(namespace, "v1", rest).await;
            let theirs = ask(namespace, "v1beta1", rest).await;
            if let (Some(ours), Some(theirs)) = (ours, theirs)
                && ours["timestamp"] == theirs["timestamp"]
            {
                return (ours, theirs);
            }
        }
    })
    .await
}

/// Compares one object of both, field by field, and leaves out what each may say in its own way.
fn agree(ours: &Value, theirs: &Value) {
    for field in ["name", "namespace", "labels"] {
        assert_eq!(ours["metadata"][field], theirs["metadata"][field]);
    }
    assert_eq!(ours["kind"], theirs["kind"]);
    for object in [ours, theirs] {
        let window: GoDuration = object["window"].as_str().unwrap().parse().unwrap();
        let window = Duration::try_from(window).unwrap();
        assert!(
            window > Duration::ZERO && window <= LONGEST_WINDOW,
            "{object}"
        );
    }
    let (ours, theirs) = (usages(ours), usages(theirs));
    assert_eq!(
        ours.keys().collect::<Vec<_>>(),
        theirs.keys().collect::<Vec<_>>()
    );
    for (name, usage) in &ours {
        let theirs = &theirs[name];
        // Of the same sample.
        assert_eq!(usage["memory"], theirs["memory"], "{name}");
        let (ours, theirs) = (nanocores(&usage["cpu"]), nanocores(&theirs["cpu"]));
        // Over windows that may begin a sample apart: what burns evenly is the same in both.
        let tolerated = ours.max(theirs) / 10;
        assert!(
            ours.abs_diff(theirs) <= tolerated,
            "{name}: {ours} and {theirs}"
        );
    }
}

/// The usage of each container, or of the node under the empty name.
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

fn nanocores(cpu: &Value) -> i64 {
    let quantity: Quantity = cpu.as_str().unwrap().parse().unwrap();
    quantity.scaled_value(Scale::Nano).unwrap()
}

#[tokio::test]
async fn every_field_agrees_with_metrics_server() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _turn = cluster.shared().await;
    let namespace = cluster.namespace("server-peer").await?;
    let burner = Burner::new("burner")
        .cpu_millicores(200)
        .memory_mebibytes(32);
    namespace.apply(&burner.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let mut theirs = MetricsServer::start(&namespace).await?;
    let mut ours = MetricsApiServer::start_beside(&theirs, &namespace).await?;

    let pod = format!("namespaces/{}/pods/burner", namespace.name());
    for _ in 0..2 {
        let (from_us, from_them) = both(&namespace, &pod).await;
        agree(&from_us, &from_them);
    }
    let list = format!("namespaces/{}/pods", namespace.name());
    for version in ["v1", "v1beta1"] {
        let list = ask(&namespace, version, &list).await.expect("a list");
        assert_eq!(list["kind"], "PodMetricsList");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
        assert_eq!(list["items"][0].get("kind"), None);
    }
    let node = format!("nodes/{}", cluster.node_name());
    let (from_us, from_them) = both(&namespace, &node).await;
    for field in ["name", "labels"] {
        assert_eq!(from_us["metadata"][field], from_them["metadata"][field]);
    }
    assert_eq!(from_us["usage"]["memory"], from_them["usage"]["memory"]);

    ours.must_run()?;
    theirs.must_run()?;
    ours.stop(&namespace).await?;
    theirs.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

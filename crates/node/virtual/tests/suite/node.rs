//! The Node object and its lease.

use kubevitals_sim::api::{Effect, History, RequestFault};
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::Probe;
use kubevitals_virtual_node::NodeError;
use serde_json::{Value, json};

use crate::support::{NODE, RunningNode, condition, sim, until};

fn node(sim: &kubevitals_sim::api::SimApiHandle) -> Value {
    sim.object(Resource::Nodes, None, NODE).unwrap_or_default()
}

fn lease(sim: &kubevitals_sim::api::SimApiHandle) -> Option<Value> {
    sim.object(Resource::Leases, Some("kube-node-lease"), NODE)
}

#[tokio::test]
async fn a_node_is_registered_and_ready() {
    let sim = sim().await;
    let running = RunningNode::start(&sim).await;
    until("ready", || {
        condition(&node(&sim), "Ready")["status"] == "True"
    })
    .await;
    let object = node(&sim);
    let labels = &object["metadata"]["labels"];
    assert_eq!(labels["kubernetes.io/hostname"], NODE);
    assert_eq!(labels["kubernetes.io/os"], "linux");
    assert_eq!(labels["kubevitals.io/provider"], "test");
    assert_eq!(labels["zone"], "attic");
    assert_eq!(object["spec"]["taints"][0]["key"], "kubevitals.io/provider");
    let status = &object["status"];
    assert_eq!(
        status["declaredFeatures"],
        json!(["ExtendWebSocketsToKubelet"])
    );
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
    assert_eq!(status["addresses"][0]["address"], "10.1.2.3");
    for kind in [
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
    ] {
        assert_eq!(condition(&object, kind)["status"], "False");
    }
    until("lease", || lease(&sim).is_some()).await;
    let lease = lease(&sim).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], NODE);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    let owner = &lease["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Node"), &object["metadata"]["uid"])
    );
    until("checks", || {
        running.health.report(Probe::Readyz, &[]).passed()
    })
    .await;
    until("event", || {
        let events = sim.objects(Resource::Events);
        events
            .iter()
            .any(|event| event["reason"] == "NodeReady" && event["involvedObject"]["uid"] == NODE)
    })
    .await;
    running.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn an_existing_node_is_adopted_and_what_others_wrote_stays() {
    let sim = sim().await;
    let existing = json!({
        "metadata": {"name": NODE, "labels": {"team": "a", "kubevitals.io/provider": "old"}},
        "spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}], "unschedulable": true},
        "status": {
            "nodeInfo": {"kubeletVersion": "v1.37.0-kubevitals"},
            "conditions": [{"type": "Custom", "status": "True"}],
        },
    });
    sim.writer().create(Resource::Nodes, existing).unwrap();
    let running = RunningNode::start(&sim).await;
    until("ready", || {
        condition(&node(&sim), "Ready")["status"] == "True"
    })
    .await;
    let object = node(&sim);
    assert_eq!(object["metadata"]["labels"]["team"], "a");
    assert_eq!(
        object["metadata"]["labels"]["kubevitals.io/provider"],
        "test"
    );
    assert_eq!(
        object["spec"]["taints"],
        json!([{"key": "maintenance", "effect": "NoExecute"}])
    );
    assert_eq!(object["spec"]["unschedulable"], true);
    assert_eq!(condition(&object, "Custom")["status"], "True");
    running.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn the_node_of_another_kubelet_is_left_alone() {
    let sim = sim().await;
    let existing =
        json!({"metadata": {"name": NODE}, "status": {"nodeInfo": {"kubeletVersion": "v1.37.1"}}});
    sim.writer().create(Resource::Nodes, existing).unwrap();
    let before = node(&sim);
    let error = RunningNode::start(&sim).await.ended().await;
    assert!(
        matches!(&error, NodeError::ForeignNode { version, .. } if version == "v1.37.1"),
        "{error}"
    );
    assert_eq!(node(&sim), before);
    assert!(lease(&sim).is_none());
    sim.shutdown().await;
}

#[tokio::test]
async fn a_sick_runtime_stops_the_lease_and_readiness() {
    let sim = sim().await;
    let running = RunningNode::start(&sim).await;
    until("ready", || {
        condition(&node(&sim), "Ready")["status"] == "True"
    })
    .await;
    until("lease", || lease(&sim).is_some()).await;
    running.runtime.state.lock().is_sick = true;
    until("not ready", || {
        condition(&node(&sim), "Ready")["status"] == "False"
    })
    .await;
    let ready = condition(&node(&sim), "Ready");
    assert_eq!(ready["reason"], "KubeletNotReady");
    assert_eq!(ready["message"], "ping: sick");
    assert!(!running.health.report(Probe::Readyz, &[]).passed());
    // Nothing renews the lease now. A later write is seen by its version, which no renewal changes.
    let stale = lease(&sim).unwrap();
    let pings = || {
        running.text().lines().any(|line| {
            line.strip_prefix(
                "kubevitals_node_runtime_operations_total{operation=\"ping\",result=\"error\"} ",
            )
            .is_some_and(|count| count.parse::<u64>().unwrap() >= 10)
        })
    };
    until("many pings", pings).await;
    assert_eq!(
        lease(&sim).unwrap()["spec"]["renewTime"],
        stale["spec"]["renewTime"]
    );
    running.runtime.state.lock().is_sick = false;
    until("ready again", || {
        condition(&node(&sim), "Ready")["status"] == "True"
    })
    .await;
    until("renewed", || {
        lease(&sim).unwrap()["spec"]["renewTime"] != stale["spec"]["renewTime"]
    })
    .await;
    running.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn what_is_deleted_is_created_again() {
    let sim = sim().await;
    let running = RunningNode::start(&sim).await;
    until("lease", || lease(&sim).is_some()).await;
    let first = node(&sim)["metadata"]["uid"].clone();
    sim.writer()
        .delete(Resource::Leases, Some("kube-node-lease"), NODE)
        .unwrap();
    until("lease again", || lease(&sim).is_some()).await;
    sim.writer().delete(Resource::Nodes, None, NODE).unwrap();
    until("node again", || {
        !node(&sim)["metadata"]["uid"].is_null() && node(&sim)["metadata"]["uid"] != first
    })
    .await;
    let second = node(&sim)["metadata"]["uid"].clone();
    until("owner", || {
        lease(&sim).is_some_and(|lease| lease["metadata"]["ownerReferences"][0]["uid"] == second)
    })
    .await;
    running.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn a_node_survives_outages_of_the_api_server() {
    let mut sim = sim().await;
    sim.inject(RequestFault {
        verb: Some("create".to_owned()),
        resource: Some("nodes".to_owned()),
        times: Some(2),
        effect: Effect::InternalError,
    });
    let running = RunningNode::start(&sim).await;
    until("ready", || {
        condition(&node(&sim), "Ready")["status"] == "True"
    })
    .await;
    sim.restart(History::Lose).await.unwrap();
    until("lease", || lease(&sim).is_some()).await;
    let before = lease(&sim).unwrap()["spec"]["renewTime"].clone();
    until("renewed", || {
        lease(&sim).unwrap()["spec"]["renewTime"] != before
    })
    .await;
    crate::support::create_pod(&sim, "web");
    until("running", || {
        crate::support::phase(&sim, "web") == "Running"
    })
    .await;
    running.stop().await;
    sim.shutdown().await;
}

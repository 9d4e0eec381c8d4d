//! Pods, from the API server to the runtime and back.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use kubevitals_model::{PodKey, Uid};
use kubevitals_sim::api::{Effect, RequestFault, SimApiHandle};
use kubevitals_sim::objects::Resource;
use kubevitals_virtual_node::runtime::{PodEvent, PodId, RuntimeChange, RuntimePod};
use serde_json::json;

use crate::support::{
    NODE, RunningNode, TestRuntime, condition, config, create_pod, phase, pod_object, running,
    settings, sim, until,
};

async fn api(sim: &SimApiHandle) -> Api<Pod> {
    let client = kube::Client::try_from(config(sim).await).unwrap();
    Api::namespaced(client, "default")
}

fn delete_with(grace: u32) -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(grace),
        ..DeleteParams::default()
    }
}

#[tokio::test]
async fn a_pod_runs_and_its_status_is_written() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    let uid = create_pod(&sim, "web");
    until("running", || phase(&sim, "web") == "Running").await;
    let pod = pod_object(&sim, "web").unwrap();
    let status = &pod["status"];
    assert_eq!(status["hostIP"], "10.1.2.3");
    assert_eq!(status["podIP"], "10.1.2.3");
    assert_eq!(status["observedGeneration"], 1);
    assert!(status["startTime"].is_string());
    let started = &status["containerStatuses"][0]["state"]["running"]["startedAt"];
    assert_eq!(started, "2026-01-01T00:00:00Z");
    assert_eq!(condition(&pod, "Ready")["status"], "True");
    assert_eq!(condition(&pod, "Ready")["observedGeneration"], 1);
    // Those of others are not touched.
    for kind in ["PodScheduled", "example.com/foreign"] {
        assert_eq!(
            condition(&pod, kind)["lastTransitionTime"],
            "2026-01-01T00:00:00Z"
        );
    }
    until("event", || {
        sim.objects(Resource::Events).iter().any(|event| {
            event["reason"] == "Started"
                && event["involvedObject"]["uid"] == uid.as_str()
                && event["involvedObject"]["fieldPath"] == "spec.containers{c}"
                && event["source"] == json!({"component": "kubelet", "host": NODE})
        })
    })
    .await;
    // A written status is not written again.
    let before = sim.object(Resource::Pods, Some("default"), "web").unwrap();
    let relists = || {
        node.text().lines().any(|line| {
            let prefix =
                "kubevitals_node_runtime_operations_total{operation=\"list\",result=\"success\"} ";
            line.strip_prefix(prefix)
                .is_some_and(|count| count.parse::<u64>().unwrap() >= 4)
        })
    };
    until("relists", relists).await;
    assert_eq!(pod_object(&sim, "web").unwrap(), before);
    assert_eq!(node.runtime.calls("sync"), 1);
    let text = node.text();
    assert!(text.contains("kubevitals_node_pods 1\n"), "{text}");
    assert!(
        text.contains("workqueue_adds_total{name=\"node_pods\"}"),
        "{text}"
    );
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn deletion_honours_grace_and_ends_with_the_object() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    node.runtime.state.lock().holds = true;
    let uid = create_pod(&sim, "web");
    until("running", || phase(&sim, "web") == "Running").await;
    let pods = api(&sim).await;
    pods.delete("web", &delete_with(17)).await.unwrap();
    until("terminated", || node.runtime.calls("terminate web 17") == 1).await;
    // A shorter grace is passed on; the object stays until the processes have ended.
    pods.delete("web", &delete_with(3)).await.unwrap();
    until("sooner", || node.runtime.calls("terminate web 3") == 1).await;
    assert_eq!(phase(&sim, "web"), "Running");
    assert_eq!(node.runtime.calls("remove"), 0);
    node.runtime.finish(&uid, "Failed").await;
    until("gone", || pod_object(&sim, "web").is_none()).await;
    until("forgotten", || {
        node.text().contains("kubevitals_node_pods 0\n")
    })
    .await;
    assert_eq!(node.runtime.calls("remove web"), 1);
    assert!(node.runtime.state.lock().pods.is_empty());
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn a_finished_pod_stays_until_it_is_deleted() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    let uid = create_pod(&sim, "job");
    until("running", || phase(&sim, "job") == "Running").await;
    node.runtime.finish(&uid, "Succeeded").await;
    until("succeeded", || phase(&sim, "job") == "Succeeded").await;
    assert_eq!(
        condition(&pod_object(&sim, "job").unwrap(), "Ready")["reason"],
        "PodCompleted"
    );
    // The runtime says otherwise later: a terminal phase never changes.
    let late = RuntimePod {
        id: PodId {
            uid: Uid::from(uid.as_str()),
            key: PodKey::new("default", "job"),
        },
        status: running(),
        is_terminated: true,
    };
    node.runtime.announce(RuntimeChange::Status(late)).await;
    create_pod(&sim, "marker");
    until("marker", || phase(&sim, "marker") == "Running").await;
    assert_eq!(phase(&sim, "job"), "Succeeded");
    assert_eq!(node.runtime.calls("remove"), 0);
    api(&sim)
        .await
        .delete("job", &DeleteParams::default())
        .await
        .unwrap();
    until("removed", || node.runtime.calls("remove job") == 1).await;
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn a_restart_adopts_pods_and_sweeps_unknown_ones() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    let uid = create_pod(&sim, "web");
    create_pod(&sim, "gone");
    until("running", || {
        phase(&sim, "web") == "Running" && phase(&sim, "gone") == "Running"
    })
    .await;
    let runtime = node.stop().await;
    assert_eq!(runtime.calls("terminate"), 0, "pods keep running");
    sim.writer()
        .delete(Resource::Pods, Some("default"), "gone")
        .unwrap();
    let (fresh, changes) = TestRuntime::new();
    fresh.state.lock().pods = std::mem::take(&mut runtime.state.lock().pods);
    let node = RunningNode::start_with(&sim, settings(), (fresh, changes)).await;
    until("swept", || node.runtime.calls("remove gone") == 1).await;
    assert_eq!(node.runtime.calls("terminate gone 1"), 1);
    assert_eq!(node.runtime.calls("terminate web"), 0);
    assert!(
        node.runtime
            .state
            .lock()
            .pods
            .contains_key(&Uid::from(uid.as_str()))
    );
    assert_eq!(phase(&sim, "web"), "Running");
    assert!(node.text().contains("kubevitals_node_swept_pods_total 1\n"));
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn rejected_pods_fail_and_failures_are_retried() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    {
        let mut state = node.runtime.state.lock();
        state.rejected.push("bad".to_owned());
        state.failures = 2;
    }
    create_pod(&sim, "late");
    until("running", || phase(&sim, "late") == "Running").await;
    assert_eq!(node.runtime.calls("sync late"), 3);
    create_pod(&sim, "bad");
    until("failed", || phase(&sim, "bad") == "Failed").await;
    let pod = pod_object(&sim, "bad").unwrap();
    assert_eq!(pod["status"]["reason"], "UnsupportedVolume");
    assert_eq!(pod["status"]["message"], "Pod was rejected: no such volume");
    assert_eq!(node.runtime.calls("sync bad"), 1);
    for reason in ["FailedSync", "UnsupportedVolume"] {
        until(reason, || {
            sim.objects(Resource::Events)
                .iter()
                .any(|event| event["reason"] == reason)
        })
        .await;
    }
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn there_are_no_more_pods_than_allowed() {
    let sim = sim().await;
    let mut settings = settings();
    settings.max_pods = 2;
    let node = RunningNode::start_with(&sim, settings, TestRuntime::new()).await;
    for name in ["a", "b", "c"] {
        create_pod(&sim, name);
    }
    let phases = || {
        let mut phases = ["a", "b", "c"].map(|name| phase(&sim, name));
        phases.sort();
        phases
    };
    until("decided", || phases() == ["Failed", "Running", "Running"]).await;
    assert_eq!(node.runtime.calls("sync"), 2);
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn a_pod_that_is_created_again_under_its_name_is_another_pod() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    create_pod(&sim, "web");
    until("running", || phase(&sim, "web") == "Running").await;
    sim.writer()
        .delete(Resource::Pods, Some("default"), "web")
        .unwrap();
    let second = create_pod(&sim, "web");
    until("running again", || phase(&sim, "web") == "Running").await;
    until("one pod", || {
        let state = node.runtime.state.lock();
        state.pods.len() == 1 && state.pods.contains_key(&Uid::from(second.as_str()))
    })
    .await;
    assert_eq!(node.runtime.calls("terminate web 20"), 1);
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn unexpected_orders_are_harmless() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    // A status and an event of a pod that nobody knows.
    let id = PodId {
        uid: Uid::from("no-such-uid"),
        key: PodKey::new("default", "ghost"),
    };
    let ghost = RuntimePod {
        id: id.clone(),
        status: running(),
        is_terminated: true,
    };
    node.runtime.announce(RuntimeChange::Status(ghost)).await;
    let event = PodEvent {
        pod: id,
        field_path: String::new(),
        is_warning: true,
        reason: "Unhealthy",
        message: "x".repeat(5_000),
    };
    node.runtime.announce(RuntimeChange::Event(event)).await;
    // Deleted before anything ran.
    create_pod(&sim, "short");
    sim.writer()
        .delete(Resource::Pods, Some("default"), "short")
        .unwrap();
    // A pod that was being deleted when the node first saw it.
    let mut leaving = json!({
        "metadata": {"name": "leaving", "namespace": "default", "deletionTimestamp": "2026-01-01T00:00:00Z",
                     "deletionGracePeriodSeconds": 30},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending"},
    });
    sim.writer().create(Resource::Pods, leaving.take()).unwrap();
    until("left", || pod_object(&sim, "leaving").is_none()).await;
    create_pod(&sim, "web");
    until("running", || phase(&sim, "web") == "Running").await;
    until("forgotten", || {
        node.text().contains("kubevitals_node_runtime_pods 1\n")
    })
    .await;
    assert_eq!(node.runtime.calls("sync leaving"), 0);
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn writes_that_fail_are_tried_again() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    sim.inject(RequestFault {
        verb: Some("patch".to_owned()),
        resource: Some("pods".to_owned()),
        times: Some(3),
        effect: Effect::InternalError,
    });
    create_pod(&sim, "web");
    until("running", || phase(&sim, "web") == "Running").await;
    let text = node.text();
    assert!(
        text.contains("kubevitals_node_status_updates_total{object=\"pod\",result=\"error\"} 3\n"),
        "{text}"
    );
    node.stop().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn a_pod_that_the_runtime_lost_is_run_again() {
    let sim = sim().await;
    let node = RunningNode::start(&sim).await;
    create_pod(&sim, "web");
    until("running", || phase(&sim, "web") == "Running").await;
    node.runtime.state.lock().pods.clear();
    until("synced again", || node.runtime.calls("sync web") == 2).await;
    node.stop().await;
    sim.shutdown().await;
}

//! Init containers, sidecars, hooks, deadlines.

use std::time::Duration;

use kubevitals_virtual_node::runtime::PodRuntime as _;
use serde_json::json;

use crate::harness::{Node, condition, container, exit, of, pod};

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_run_one_by_one_before_the_others() {
    let node = Node::start().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("order").display().to_string();
    let step = |name: &str| {
        container(
            name,
            &format!("echo start-{name} >> {log}; sleep 0.1; echo end-{name} >> {log}"),
        )
    };
    let pod = pod(
        "init",
        json!({"restartPolicy": "Never", "initContainers": [step("i1"), step("i2")], "containers": [step("m")]}),
    );
    let id = node.sync(&pod).await;
    let status = node.wait_phase(&id, "Succeeded").await;
    let order = std::fs::read_to_string(&log).expect("the order");
    let lines: Vec<&str> = order.lines().collect();
    assert_eq!(
        lines,
        [
            "start-i1", "end-i1", "start-i2", "end-i2", "start-m", "end-m"
        ]
    );
    assert!(
        of(&status, "i1").ready,
        "an init container that succeeded is ready"
    );
    let events = node.events(&id);
    assert!(
        events
            .iter()
            .any(|one| one.field_path == "spec.initContainers{i1}")
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_that_fails_is_retried_or_fails_the_pod() {
    let node = Node::start().await;
    let spec = |policy: &str| json!({"restartPolicy": policy, "initContainers": [container("i", "exit 4")], "containers": [container("m", "true")]});
    let id = node.sync(&pod("fails", spec("Never"))).await;
    let status = node
        .wait(&id, "failed", |one| one.is_terminated)
        .await
        .status;
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(
        condition(&status, "Initialized"),
        ("False".to_owned(), "ContainersNotInitialized".to_owned())
    );
    assert_eq!(exit(&status, "i").0, 4);
    assert!(
        of(&status, "m")
            .state
            .as_ref()
            .is_some_and(|one| one.waiting.is_some()),
        "it never ran"
    );
    node.end(&id).await;
    let id = node.sync(&pod("retries", spec("Always"))).await;
    let found = node
        .wait(&id, "retried", |one| {
            of(&one.status, "i").restart_count >= 2
        })
        .await;
    assert_eq!(found.status.phase.as_deref(), Some("Pending"));
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_start_first_and_end_last_in_reverse() {
    let node = Node::start().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("order").display().to_string();
    let mut sidecars = Vec::new();
    for name in ["s1", "s2"] {
        let text = format!(
            "trap 'echo end-{name} >> {log}; exit 0' TERM; echo start-{name} >> {log}; while :; do sleep 0.02; done"
        );
        let mut one = container(name, &text);
        one["restartPolicy"] = json!("Always");
        // Started once it has written its line: then the next may start.
        one["startupProbe"] = json!({"exec": {"command": ["grep", "-q", format!("start-{name}"), log]}, "periodSeconds": 1, "failureThreshold": 60});
        sidecars.push(one);
    }
    let main = container("m", &format!("echo start-m >> {log}; exit 0"));
    let pod = pod(
        "side",
        json!({"restartPolicy": "Never", "initContainers": sidecars, "containers": [main]}),
    );
    let id = node.sync(&pod).await;
    let status = node
        .wait(&id, "complete", |one| one.is_terminated)
        .await
        .status;
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    let order = std::fs::read_to_string(&log).expect("the order");
    let lines: Vec<&str> = order.lines().collect();
    assert_eq!(
        lines,
        ["start-s1", "start-s2", "start-m", "end-s2", "end-s1"]
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_after_the_start_and_before_the_stop() {
    let node = Node::start().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("order").display().to_string();
    let mut one = container(
        "c",
        &format!("trap 'echo term >> {log}; exit 0' TERM; while :; do sleep 0.02; done"),
    );
    let hook = |text: &str| json!({"exec": {"command": ["/bin/sh", "-c", format!("echo {text} >> {log}")]}});
    one["lifecycle"] = json!({"postStart": hook("post"), "preStop": hook("pre")});
    let pod = pod(
        "hooks",
        json!({"restartPolicy": "Always", "containers": [one, container("d", "sleep 1000")]}),
    );
    let id = node.sync(&pod).await;
    // The second container waits for the hook of the first.
    node.wait(&id, "both run", |one| {
        of(&one.status, "d").ready && of(&one.status, "c").ready
    })
    .await;
    assert_eq!(std::fs::read_to_string(&log).expect("the order"), "post\n");
    node.runtime
        .terminate_pod(&id, Duration::from_secs(30))
        .await
        .expect("terminates");
    node.wait(&id, "ended", |one| one.is_terminated).await;
    assert_eq!(
        std::fs::read_to_string(&log).expect("the order"),
        "post\npre\nterm\n"
    );
    node.runtime.remove_pod(&id).await.expect("removed");
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_start_hook_that_fails_ends_the_container() {
    let node = Node::start().await;
    let mut one = container("c", "sleep 1000");
    one["lifecycle"] = json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", "exit 1"]}}});
    let id = node.sync(&pod("hook", json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [one]}))).await;
    node.wait_phase(&id, "Failed").await;
    assert_eq!(
        node.wait_event(&id, "FailedPostStartHook").await.message,
        "PostStartHook failed"
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_past_its_deadline_fails() {
    let node = Node::start().await;
    let spec = json!({
        "restartPolicy": "Never", "activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1,
        "containers": [container("c", "sleep 1000")],
    });
    let id = node.sync(&pod("deadline", spec)).await;
    let status = node
        .wait(&id, "ended", |one| one.is_terminated)
        .await
        .status;
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    node.wait_event(&id, "DeadlineExceeded").await;
    node.end(&id).await;
    node.finish().await;
}

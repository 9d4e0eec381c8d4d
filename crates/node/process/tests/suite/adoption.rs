//! Restarts of the node.

use kubevitals_virtual_node::runtime::PodRuntime as _;
use serde_json::json;

use crate::harness::{Node, container, exit, id_of, of, pod, script};
use crate::lifecycle::wait_for_log;

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_node_restarts_no_container_and_loses_no_exit_code() {
    let node = Node::start().await;
    let long = script(
        "long",
        "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done",
    );
    let short = script("short", "sleep 0.3; exit 9");
    let (long_id, short_id) = (node.sync(&long).await, node.sync(&short).await);
    let before = node.wait_phase(&long_id, "Running").await;
    node.wait_phase(&short_id, "Running").await;
    wait_for_log(&node, &long, "ready").await;
    let node = node.restart().await;
    let after = node.wait_phase(&long_id, "Running").await;
    let (old, new) = (of(&before, "c"), of(&after, "c"));
    assert_eq!(old.container_id, new.container_id);
    assert_eq!(
        (new.restart_count, new.ready, new.started),
        (0, true, Some(true))
    );
    assert_eq!(old.state, new.state, "the start time is kept");
    // It ended while nobody watched, or after: its code is known.
    let status = node.wait_phase(&short_id, "Failed").await;
    assert_eq!(exit(&status, "c"), (9, "Error".to_owned()));
    node.end(&short_id).await;
    let status = node.end(&long_id).await;
    assert_eq!(exit(&status, "c").0, 5);
    assert!(
        !node
            .event_texts(&long_id)
            .iter()
            .any(|one| one.starts_with("Started"))
    );
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_vanished_is_unknown_and_is_restarted() {
    let node = Node::start().await;
    let spec = json!({"restartPolicy": "Always", "containers": [container("c", "echo ready; sleep 1000")]});
    let pod = pod("vanished", spec);
    let id = node.sync(&pod).await;
    node.wait_phase(&id, "Running").await;
    // Both the shim and the program are killed by somebody else.
    let record = find(&node.config.root.join("pods"), "process.json").expect("a record");
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(record).expect("read")).expect("JSON");
    for who in ["shim", "main"] {
        let pid = record[who]["pid"].as_i64().expect("a pid");
        let pid =
            rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }
    let found = node
        .wait(&id, "restarted", |one| {
            of(&one.status, "c").restart_count == 1 && of(&one.status, "c").ready
        })
        .await;
    let last = of(&found.status, "c")
        .last_state
        .clone()
        .and_then(|one| one.terminated)
        .expect("a last state");
    assert_eq!(
        (last.exit_code, last.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_usable_records_is_killed_at_the_start() {
    let node = Node::start().await;
    let pod = script("orphan", "sleep 1000");
    let id = node.sync(&pod).await;
    node.wait_phase(&id, "Running").await;
    let state = find(&node.config.root.join("pods"), "state.json").expect("a state");
    let config = node.config.clone();
    let node = {
        std::fs::write(&state, b"{ garbage").expect("write");
        node.restart().await
    };
    assert_eq!(config.root, node.config.root);
    let pods = node.runtime.pods().await.expect("pods");
    assert!(
        pods.iter().all(|one| one.id != id_of(&pod)),
        "it is not adopted"
    );
    node.finish().await;
}

/// The first file of a name below a folder.
fn find(folder: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.ends_with(name) {
            return Some(path);
        }
    }
    None
}

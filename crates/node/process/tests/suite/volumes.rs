//! Volumes and the environment of containers.

use std::os::unix::fs::PermissionsExt as _;

use kubevitals_virtual_node::runtime::PodRuntime as _;
use serde_json::json;

use crate::harness::{Inputs, Node, condition, container, exit, log_text, of, pod};

fn inputs() -> Inputs {
    let mut inputs = Inputs::default();
    let map = serde_json::from_value(json!({"data": {"key": "value", "other": "x"}}))
        .expect("a ConfigMap");
    inputs.config_maps.lock().insert("map".to_owned(), map);
    let secret =
        serde_json::from_value(json!({"data": {"password": "aHVudGVyMg=="}})).expect("a Secret");
    inputs.secrets.insert("secret".to_owned(), secret);
    inputs.services = vec![("KUBERNETES_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned())];
    inputs
}

fn spec(text: &str) -> serde_json::Value {
    let mut one = container("c", text);
    one["env"] =
        json!([{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    one["volumeMounts"] = json!([
        {"name": "map", "mountPath": "/kubevitals-test/map"},
        {"name": "secret", "mountPath": "/kubevitals-test/secret", "readOnly": true},
        {"name": "work", "mountPath": "/kubevitals-test/work"},
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
    ]);
    json!({
        "restartPolicy": "Never",
        "containers": [one],
        "volumes": [
            {"name": "map", "configMap": {"name": "map", "items": [{"key": "key", "path": "sub/file", "mode": 256}]}},
            {"name": "secret", "secret": {"secretName": "secret"}},
            {"name": "work", "emptyDir": {}},
            {"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            ]}},
        ],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_appear_at_their_paths_and_the_host_does_not_change() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: mount namespaces need root");
        return;
    }
    let node = Node::with(|config| config.mount_volumes = true, inputs()).await;
    let text = "
        cat /kubevitals-test/map/sub/file; echo
        cat /kubevitals-test/secret/password; echo
        echo written > /kubevitals-test/work/file && cat $KUBEVITALS_MOUNT_WORK/file
        touch /kubevitals-test/secret/x 2>/dev/null && echo writable
        cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo
        cat /var/run/secrets/kubernetes.io/serviceaccount/labels; echo
        echo $POD $KUBERNETES_SERVICE_HOST
        echo bye > /dev/termination-log
        exit 3";
    let pod = pod("volumes", spec(text));
    let id = node.sync(&pod).await;
    let status = node.wait_phase(&id, "Failed").await;
    assert_eq!(
        log_text(&node, &pod, "c", 0),
        "value\nhunter2\nwritten\ntoken-of-default\napp=\"a\"\nvolumes 10.0.0.1\n"
    );
    assert_eq!(exit(&status, "c").0, 3);
    let message = of(&status, "c")
        .state
        .clone()
        .and_then(|one| one.terminated?.message);
    assert_eq!(message.as_deref(), Some("bye\n"));
    for path in [
        "/kubevitals-test",
        "/var/run/secrets/kubernetes.io/serviceaccount",
    ] {
        assert!(
            !std::path::Path::new(path).exists(),
            "{path} is not on the host"
        );
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(
        !mounts.contains(&node.config.root.display().to_string()),
        "nothing is mounted here"
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mounts_volumes_are_found_by_variables() {
    let node = Node::with(|config| config.mount_volumes = false, inputs()).await;
    let text = "
        cat $KUBEVITALS_MOUNT_MAP/sub/file; echo
        cat $KUBEVITALS_MOUNT_SECRET/password; echo
        echo bye > $KUBEVITALS_TERMINATION_LOG";
    let pod = pod("variables", spec(text));
    let id = node.sync(&pod).await;
    let status = node.wait_phase(&id, "Succeeded").await;
    assert_eq!(log_text(&node, &pod, "c", 0), "value\nhunter2\n");
    let message = of(&status, "c")
        .state
        .clone()
        .and_then(|one| one.terminated?.message);
    assert_eq!(message.as_deref(), Some("bye\n"));
    // What the pod runs with is for its owner alone.
    let mode = std::fs::metadata(&node.config.root)
        .expect("the root")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_waited_for() {
    let node = Node::start().await;
    let mut one = container("c", "true");
    one["env"] =
        json!([{"name": "X", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k"}}}]);
    let id = node
        .sync(&pod(
            "config",
            json!({"restartPolicy": "Never", "containers": [one]}),
        ))
        .await;
    let status = node
        .wait_ever(&id, "waiting", |one| {
            let state = of(one, "c").state.clone().unwrap_or_default();
            state
                .waiting
                .is_some_and(|one| one.reason.as_deref() == Some("CreateContainerConfigError"))
        })
        .await;
    let message = of(&status, "c")
        .state
        .clone()
        .and_then(|one| one.waiting?.message);
    assert_eq!(message.as_deref(), Some("secret \"absent\" not found"));
    assert_eq!(
        node.wait_event(&id, "Failed").await.message,
        "Error: secret \"absent\" not found"
    );
    node.end(&id).await;
    let volume = json!({"restartPolicy": "Never", "containers": [container("c", "true")], "volumes": [{"name": "v", "configMap": {"name": "absent"}}]});
    let id = node.sync(&pod("volume", volume)).await;
    let event = node.wait_event(&id, "FailedMount").await;
    assert_eq!(
        event.message,
        "MountVolume.SetUp failed for volume \"v\" : configmap \"absent\" not found"
    );
    let ended = node.end(&id).await;
    assert_eq!(ended.phase.as_deref(), Some("Failed"));
    assert_eq!(condition(&ended, "PodReadyToStartContainers").0, "False");
    node.runtime.ping().await.expect("well");
    node.finish().await;
}

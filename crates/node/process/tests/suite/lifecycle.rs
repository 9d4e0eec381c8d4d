//! Containers from their start to their end.

use std::time::Duration;

use kubevitals_process::CrashBackoffConfig;
use kubevitals_virtual_node::runtime::{PodRuntime as _, RuntimeError};
use serde_json::json;

use crate::harness::{Inputs, Node, condition, container, exit, log_text, of, pod, script};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_succeeds_has_the_kubelets_status_and_events() {
    let node = Node::start().await;
    let pod = script("ok", "echo out; echo err >&2");
    let id = node.sync(&pod).await;
    let status = node.wait_phase(&id, "Succeeded").await;
    assert_eq!(exit(&status, "c"), (0, "Completed".to_owned()));
    let ended = of(&status, "c");
    assert!(
        ended
            .container_id
            .as_deref()
            .is_some_and(|one| one.starts_with("process://"))
    );
    assert_eq!(
        (ended.ready, ended.started, ended.restart_count),
        (false, Some(false), 0)
    );
    let done = ("False".to_owned(), "PodCompleted".to_owned());
    assert_eq!(condition(&status, "Ready"), done);
    assert_eq!(condition(&status, "ContainersReady"), done);
    assert_eq!(
        condition(&status, "Initialized"),
        ("True".to_owned(), "PodCompleted".to_owned())
    );
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert_eq!(
        node.event_texts(&id),
        [
            "Pulled: Container image \"example/image:1\" already present on machine",
            "Created: Container created",
            "Started: Container started",
        ]
    );
    assert_eq!(node.events(&id)[0].field_path, "spec.containers{c}");
    let mut lines: Vec<String> = log_text(&node, &pod, "c", 0)
        .lines()
        .map(ToOwned::to_owned)
        .collect();
    lines.sort();
    assert_eq!(lines, ["err", "out"]);
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_signals_are_reported() {
    let node = Node::start().await;
    for (name, text, code) in [
        ("code", "exit 3", 3),
        // `$$` is `$` to Kubernetes.
        ("term", "kill -TERM $$$$", 143),
        ("kill", "kill -KILL $$$$", 137),
    ] {
        let pod = script(name, text);
        let id = node.sync(&pod).await;
        let status = node.wait_phase(&id, "Failed").await;
        assert_eq!(exit(&status, "c"), (code, "Error".to_owned()), "{name}");
        assert_eq!(condition(&status, "Ready").1, "PodFailed");
        node.end(&id).await;
    }
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_exist_is_a_start_error() {
    let node = Node::start().await;
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["/no/such/program"]}]});
    let id = node.sync(&pod("missing", spec)).await;
    let status = node.wait_phase(&id, "Failed").await;
    assert_eq!(exit(&status, "c"), (128, "StartError".to_owned()));
    let failed = node.wait_event(&id, "Failed").await;
    assert_eq!(
        failed.message,
        "Error: exec: \"/no/such/program\": no such file or directory"
    );
    node.end(&id).await;
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "c", "command": ["no-such-program"]}]});
    let id = node.sync(&pod("missing-again", spec)).await;
    let waiting = |reason: &'static str| {
        move |status: &k8s_openapi::api::core::v1::PodStatus| {
            let state = of(status, "c").state.clone().unwrap_or_default();
            state
                .waiting
                .is_some_and(|one| one.reason.as_deref() == Some(reason))
        }
    };
    node.wait_ever(&id, "RunContainerError", waiting("RunContainerError"))
        .await;
    node.wait_ever(&id, "CrashLoopBackOff", waiting("CrashLoopBackOff"))
        .await;
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_fails_is_restarted_at_once_and_then_after_a_wait() {
    let node = Node::with(
        |config| config.crash_backoff = CrashBackoffConfig::default(),
        Inputs::default(),
    )
    .await;
    let spec =
        json!({"restartPolicy": "Always", "containers": [container("c", "echo run; exit 7")]});
    let pod = pod("crash", spec);
    let id = node.sync(&pod).await;
    let waited = node
        .wait(&id, "back-off", |one| {
            let state = of(&one.status, "c").state.clone().unwrap_or_default();
            state
                .waiting
                .is_some_and(|one| one.reason.as_deref() == Some("CrashLoopBackOff"))
        })
        .await
        .status;
    assert_eq!(waited.phase.as_deref(), Some("Running"));
    let status = of(&waited, "c");
    assert_eq!(status.restart_count, 1, "the first restart does not wait");
    let message = status
        .state
        .as_ref()
        .and_then(|one| one.waiting.as_ref()?.message.clone());
    let expected = format!(
        "back-off 10s restarting failed container=c pod=crash_ns({})",
        id.uid
    );
    assert_eq!(message, Some(expected));
    let last = status
        .last_state
        .as_ref()
        .and_then(|one| one.terminated.clone())
        .expect("a last state");
    assert_eq!((last.exit_code, last.reason.as_deref()), (7, Some("Error")));
    let event = node.wait_event(&id, "BackOff").await;
    assert_eq!(
        event.message,
        format!(
            "Back-off restarting failed container c in pod crash_ns({})",
            id.uid
        )
    );
    assert!(event.is_warning);
    let ended = node.end(&id).await;
    assert_eq!(ended.phase.as_deref(), Some("Failed"));
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_restarted_again_and_again_with_ids_of_its_own() {
    let node = Node::start().await;
    let spec = json!({"restartPolicy": "Always", "containers": [container("c", "exit 0")]});
    let id = node.sync(&pod("again", spec)).await;
    let mut ids = Vec::new();
    for count in 0..3 {
        let status = node
            .wait_ever(&id, "another run", |one| {
                of(one, "c").restart_count == count && of(one, "c").container_id.is_some()
            })
            .await;
        ids.push(of(&status, "c").container_id.clone());
    }
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_privileges_are_set() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: another user needs root");
        return;
    }
    let node = Node::start().await;
    let mut one = container(
        "c",
        "id -u; id -g; id -G; grep -E 'NoNewPrivs|CapBnd' /proc/self/status; cat /proc/self/oom_score_adj; pwd",
    );
    one["securityContext"] = json!({
        "runAsUser": 65534, "runAsGroup": 65533, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
    });
    one["workingDir"] = json!("/tmp");
    let spec = json!({"restartPolicy": "Never", "securityContext": {"supplementalGroups": [7]}, "containers": [one]});
    let pod = pod("user", spec);
    let id = node.sync(&pod).await;
    node.wait_phase(&id, "Succeeded").await;
    assert_eq!(
        log_text(&node, &pod, "c", 0),
        "65534\n65533\n65533 7\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n1000\n/tmp\n"
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn termination_asks_first_and_then_kills_everything() {
    let node = Node::start().await;
    // The first ends on the signal, the second ignores it and has a child in a session of its own.
    let polite = script(
        "polite",
        "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done",
    );
    let stubborn = script(
        "stubborn",
        "trap '' TERM; setsid sleep 1000 & echo ready; while :; do sleep 0.05; done",
    );
    let (first, second) = (node.sync(&polite).await, node.sync(&stubborn).await);
    for (pod, id) in [(&polite, &first), (&stubborn, &second)] {
        node.wait_phase(id, "Running").await;
        wait_for_log(&node, pod, "ready").await;
    }
    node.runtime
        .terminate_pod(&first, Duration::from_secs(30))
        .await
        .expect("terminates");
    let status = node
        .wait(&first, "ended", |one| one.is_terminated)
        .await
        .status;
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    assert!(
        node.event_texts(&first)
            .contains(&"Killing: Stopping container c".to_owned())
    );
    node.runtime.remove_pod(&first).await.expect("removed");
    let status = node.end(&second).await;
    assert_eq!(exit(&status, "c").0, 137);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_here_is_rejected() {
    let node = Node::start().await;
    let image_only = pod(
        "image",
        json!({"containers": [{"name": "c", "image": "nginx"}]}),
    );
    let error = node
        .runtime
        .sync_pod(std::sync::Arc::new(image_only))
        .await
        .expect_err("rejected");
    assert!(
        matches!(
            error,
            RuntimeError::Rejected {
                reason: "ImageNotSupported",
                ..
            }
        ),
        "{error:?}"
    );
    let mut outside = script("outside", "true");
    outside.metadata.uid = Some("../../etc".to_owned());
    let error = node
        .runtime
        .sync_pod(std::sync::Arc::new(outside))
        .await
        .expect_err("rejected");
    assert!(matches!(error, RuntimeError::Rejected { .. }), "{error:?}");
    node.runtime.ping().await.expect("the runtime is well");
    node.finish().await;
}

/// Waits for a line in the log of a container.
pub(crate) async fn wait_for_log(node: &Node, pod: &k8s_openapi::api::core::v1::Pod, line: &str) {
    let wait = async {
        while !log_text(node, pod, "c", 0).lines().any(|one| one == line) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::harness::DEADLINE, wait)
        .await
        .expect("the line is logged");
}

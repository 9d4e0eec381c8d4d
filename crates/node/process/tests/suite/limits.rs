//! Cgroups.

use serde_json::json;

use crate::harness::{Node, cgroups, container, exit, id_of, log_text, pod, script};
use crate::lifecycle::wait_for_log;

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_written_to_cgroups_of_the_pods_own() {
    let node = Node::start().await;
    let Some(found) = cgroups(&node.config) else {
        return;
    };
    let mut one = container("c", "echo ready; sleep 1000");
    one["resources"] =
        json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "64Mi"}});
    let pod = pod(
        "limits",
        json!({"restartPolicy": "Never", "containers": [one]}),
    );
    let id = node.sync(&pod).await;
    node.wait_phase(&id, "Running").await;
    wait_for_log(&node, &pod, "ready").await;
    let folder = found.parent().join(format!("pod{}", id.uid));
    let read = |file: &str| {
        let mut values = Vec::new();
        for root in found.roots() {
            for entry in std::fs::read_dir(root.join(&folder))
                .into_iter()
                .flatten()
                .flatten()
            {
                if entry.path().is_dir() {
                    values.extend(std::fs::read_to_string(entry.path().join(file)).ok());
                }
            }
        }
        values.first().map(|one| one.trim().to_owned())
    };
    let (memory, quota) = match found.version() {
        kubevitals_process::cgroup::Version::V1 => {
            (read("memory.limit_in_bytes"), read("cpu.cfs_quota_us"))
        }
        kubevitals_process::cgroup::Version::V2 => (
            read("memory.max"),
            read("cpu.max").and_then(|one| one.split(' ').next().map(ToOwned::to_owned)),
        ),
    };
    assert_eq!(memory.as_deref(), Some("67108864"));
    assert_eq!(quota.as_deref(), Some("100000"));
    assert!(
        read("cgroup.procs").is_some_and(|one| !one.is_empty()),
        "the process is inside"
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_takes_too_much_memory_is_oom_killed() {
    let node = Node::start().await;
    if cgroups(&node.config).is_none() {
        return;
    }
    // The shell collects its variable in memory.
    let mut one = container("c", "x=0123456789abcdef; while :; do x=$x$x; done");
    one["resources"] = json!({"limits": {"memory": "24Mi"}});
    let id = node
        .sync(&pod(
            "oom",
            json!({"restartPolicy": "Never", "containers": [one]}),
        ))
        .await;
    let status = node.wait_phase(&id, "Failed").await;
    assert_eq!(exit(&status, "c"), (137, "OOMKilled".to_owned()));
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cgroups_descendants_are_killed_with_their_container() {
    let node = Node::with(
        |config| config.cgroup_mount = None,
        crate::harness::Inputs::default(),
    )
    .await;
    let marker = format!("{}", 100_000 + std::process::id());
    // A daemon in a session of its own outlives its parent.
    let pod = script(
        "daemon",
        &format!("setsid sh -c 'sleep {marker}; :' & sleep 0.2; echo ready; exit 0"),
    );
    let id = node.sync(&pod).await;
    node.wait_phase(&id, "Succeeded").await;
    assert_eq!(log_text(&node, &pod, "c", 0), "ready\n");
    assert!(
        crate::harness::processes_with(&marker).is_empty(),
        "the daemon is gone"
    );
    assert_eq!(id, id_of(&pod));
    node.end(&id).await;
    node.finish().await;
}

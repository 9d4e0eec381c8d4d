//! Many pods at once: nothing is left of them.

use kubevitals_virtual_node::runtime::PodRuntime as _;
use serde_json::json;

use crate::harness::{Node, container, pod, zombies};

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_and_go_leave_nothing() {
    let node = Node::start().await;
    let mut pods = Vec::new();
    for number in 0..12 {
        let text = match number % 4 {
            0 => "exit 0",
            1 => "exit 1",
            2 => "sleep 1000 & exec sleep 1000",
            _ => "trap '' TERM; setsid sleep 1000 & while :; do sleep 0.1; done",
        };
        let policy = if number % 2 == 0 { "Never" } else { "Always" };
        let spec = json!({"restartPolicy": policy, "containers": [container("c", text), container("d", "sleep 1000")]});
        pods.push(node.sync(&pod(&format!("churn-{number}"), spec)).await);
    }
    // Some are ended while they start, some while they run, some in back-off.
    for (number, id) in pods.iter().enumerate() {
        if number % 3 != 0 {
            node.wait(id, "seen", |one| {
                one.status.phase.as_deref() != Some("Pending")
            })
            .await;
        }
        node.runtime
            .terminate_pod(id, std::time::Duration::from_millis(100))
            .await
            .expect("terminates");
    }
    for id in &pods {
        node.wait(id, "ended", |one| one.is_terminated).await;
        node.runtime.remove_pod(id).await.expect("removed");
    }
    assert!(node.runtime.pods().await.expect("pods").is_empty());
    let logs: Vec<_> = std::fs::read_dir(&node.config.logs)
        .expect("logs")
        .flatten()
        .collect();
    assert!(logs.is_empty(), "{logs:?}");
    node.finish().await;
    // Children of other tests may be about to be reaped: only what stays is a zombie.
    let wait = async {
        while !zombies().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let is_clean = tokio::time::timeout(crate::harness::DEADLINE, wait)
        .await
        .is_ok();
    assert!(is_clean, "zombies are left: {:?}", zombies());
}

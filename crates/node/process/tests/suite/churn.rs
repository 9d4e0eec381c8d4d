//! Many pods at once: nothing is left of them.

use kubevitals_virtual_node::runtime::PodRuntime as _;
use serde_json::json;

use crate::harness::{Inputs, Node, container, pod, zombies};

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_and_go_leave_nothing() {
    // A larger number is for measurements by hand.
    let count = std::env::var("KUBEVITALS_CHURN_PODS").ok();
    let count: usize = count.and_then(|one| one.parse().ok()).unwrap_or(12);
    let node = Node::with(|config| config.max_pods = count, Inputs::default()).await;
    let mut pods = Vec::new();
    for number in 0..count {
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
    println!("resident: {}", resident());
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

/// The resident memory of this process, as the kernel writes it.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.unwrap_or_default().to_owned()
}

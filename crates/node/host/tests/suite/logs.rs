use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kubevitals_host_provider::{HostLogs, HostPods};
use kubevitals_kubelet_api::ProviderError;
use kubevitals_kubelet_api::provider::{ContainerLogs, ContainerTarget, LogOptions, PodTarget};
use kubevitals_model::PodKey;
use serde_json::json;

use crate::{DEADLINE, TestNode, UID, pod, running};

fn target(container: &str) -> ContainerTarget {
    ContainerTarget {
        pod: PodTarget {
            key: PodKey::new("default", "web"),
            uid: None,
        },
        container: container.to_owned(),
    }
}

async fn text(
    logs: &HostLogs,
    target: ContainerTarget,
    options: LogOptions,
) -> Result<String, ProviderError> {
    let mut stream = logs.logs(target, options).await?;
    let mut text = Vec::new();
    let all = async {
        while let Some(part) = stream.next().await {
            text.extend_from_slice(&part.unwrap());
        }
    };
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    Ok(String::from_utf8(text).unwrap())
}

fn previous() -> LogOptions {
    LogOptions {
        previous: true,
        ..LogOptions::default()
    }
}

fn follow() -> LogOptions {
    LogOptions {
        follow: true,
        ..LogOptions::default()
    }
}

#[tokio::test]
async fn the_status_of_the_pod_selects_the_file() {
    let pods = HostPods::default();
    let node = TestNode::start(Some(&pods));
    for instance in 0..3 {
        node.write_log(instance, &format!("instance {instance}"));
    }
    let logs = HostLogs::new(node.root(), node.stats.clone(), Some(pods.clone()));
    let read = |options| text(&logs, target("app"), options);
    assert!(matches!(
        read(LogOptions::default()).await,
        Err(ProviderError::NotFound(_))
    ));

    let ended = json!({"terminated": {"exitCode": 1, "containerID": "containerd://old"}});
    pods.insert(Arc::new(pod(running(), ended.clone(), 2)));
    assert_eq!(read(LogOptions::default()).await.unwrap(), "instance 2\n");
    assert_eq!(read(previous()).await.unwrap(), "instance 1\n");

    // While it waits for a restart, the last instance is both.
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    pods.insert(Arc::new(pod(waiting, ended, 1)));
    assert_eq!(read(LogOptions::default()).await.unwrap(), "instance 1\n");
    assert_eq!(read(previous()).await.unwrap(), "instance 1\n");

    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    pods.insert(Arc::new(pod(creating, json!({}), 0)));
    let error = read(LogOptions::default()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "container \"app\" in pod \"web\" is waiting to start: ContainerCreating"
    );
    assert_eq!(error.status().as_u16(), 400);
    pods.insert(Arc::new(pod(running(), json!({}), 0)));
    let error = read(previous()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "previous terminated container \"app\" in pod \"web\" not found"
    );
    let error = text(&logs, target("other"), LogOptions::default()).await;
    assert!(matches!(error, Err(ProviderError::NotFound(_))));
    let mut other = target("app");
    other.pod.uid = Some("00000000-0000-0000-0000-000000000000".into());
    let error = text(&logs, other, LogOptions::default()).await;
    assert!(matches!(error, Err(ProviderError::NotFound(_))));
}

#[tokio::test]
async fn a_follower_ends_when_the_status_says_so() {
    let pods = HostPods::default();
    pods.insert(Arc::new(pod(running(), json!({}), 0)));
    let node = TestNode::start(Some(&pods));
    node.write_log(0, "hello");
    let logs = HostLogs::new(node.root(), node.stats.clone(), Some(pods.clone()));
    let mut stream = logs.logs(target("app"), follow()).await.unwrap();
    let first = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
    assert_eq!(first.unwrap().unwrap(), "hello\n");
    let ended = json!({"terminated": {"exitCode": 0}});
    pods.insert(Arc::new(pod(ended, json!({}), 0)));
    let end = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
    assert!(end.is_none());
}

#[tokio::test]
async fn without_an_api_server_folders_select_the_file_and_samples_the_end() {
    let node = TestNode::start(None);
    node.stats.fresh().await.unwrap();
    node.write_log(0, "first");
    node.write_log(4, "second");
    let logs = HostLogs::new(node.root(), node.stats.clone(), None);
    let read = |options| text(&logs, target("app"), options);
    assert_eq!(read(LogOptions::default()).await.unwrap(), "second\n");
    assert_eq!(read(previous()).await.unwrap(), "first\n");

    let mut stream = logs.logs(target("app"), follow()).await.unwrap();
    let first = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
    assert_eq!(first.unwrap().unwrap(), "second\n");
    let path = kubevitals_host::fixture::Driver::Systemd.pod_path("", UID);
    node.host.remove_cgroup(&path).unwrap();
    node.clock.advance(Duration::from_secs(6));
    node.stats.fresh().await.unwrap();
    let end = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
    assert!(end.is_none());
    // The log of a pod that is gone can still be read.
    assert_eq!(read(follow()).await.unwrap(), "second\n");
}

#[tokio::test]
async fn a_name_cannot_leave_the_folder_of_logs() {
    let node = TestNode::start(None);
    node.stats.fresh().await.unwrap();
    node.write_log(0, "text");
    let logs = HostLogs::new(node.root(), node.stats.clone(), None);
    for container in ["..", "../app", "/etc", "", ".", "app/../app", "app\0"] {
        let error = text(&logs, target(container), LogOptions::default()).await;
        assert!(
            matches!(error, Err(ProviderError::NotFound(_))),
            "{container:?}: {error:?}"
        );
    }
    let mut other = target("app");
    other.pod.uid = Some("../../x".into());
    let error = text(&logs, other, LogOptions::default()).await;
    assert!(matches!(error, Err(ProviderError::NotFound(_))));
}

//! `kubevitals run --roles server,transitions` on a simulated cluster.

use std::io::{self, Write};

use http::StatusCode;
use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::DEADLINE;
use crate::server::{PODS, Running, cluster, count};
use crate::{kubevitals, output};

/// The lines, as they are written.
struct Written(mpsc::Sender<Vec<u8>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.try_send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn pod(status: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "once", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "once:1"}]},
        "status": status,
    })
}

#[tokio::test]
async fn two_roles_share_one_set_of_watches() {
    let cluster = cluster(2).await;
    let (sender, mut written) = mpsc::channel(1_024);
    let more = ["--roles=server,transitions", "--image-pull-cancel-delay=0"];
    let both = Running::start_with(&cluster, &more, Some(Box::new(Written(sender)))).await;
    let pods = cluster.api().count(Resource::Pods);
    both.until(PODS, |status, body| {
        status == StatusCode::OK && count(body, "\"containers\"") == pods
    })
    .await;
    let ready = both
        .until("/readyz?verbose", |status, _| status == StatusCode::OK)
        .await;
    for check in ["metadata-informer-sync", "event-loop", "events"] {
        assert!(ready.contains(&format!("[+]{check} ok")), "{ready}");
    }
    // Nodes, pods and events; each role by itself opens two.
    assert_eq!(cluster.api().open_watches(), 3);

    let writer = cluster.api().writer();
    let pending = pod(&json!({"phase": "Pending"}));
    writer.create(Resource::Pods, pending).unwrap();
    writer
        .replace(Resource::Pods, pod(&json!({"phase": "Succeeded"})))
        .unwrap();
    let mut text = Vec::new();
    let emitted = tokio::time::timeout(DEADLINE, async {
        while !String::from_utf8_lossy(&text).contains("\"pod_name\":\"once\"") {
            text.extend(written.recv().await.expect("the output is open"));
        }
    });
    emitted.await.expect("the pod is emitted");
    let metrics = both.get_as_admin("/metrics").await.1;
    for family in ["pod_statistics_tracked", "metrics_server_storage_points{"] {
        assert!(metrics.contains(family), "{family} is missing");
    }
    assert_eq!(cluster.api().open_watches(), 3);
    both.stop().await;
    cluster.shutdown().await;
}

#[test]
fn pod_filters_are_rejected_where_roles_share_the_watch() {
    let run = |flags: &[&str]| {
        let command = ["run", "--kubeconfig=/nowhere"];
        output(kubevitals(&command).args(flags))
    };
    let (code, _, stderr) = run(&["--roles=server,transitions", "--namespace=web"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("--namespace"), "{stderr}");
    assert!(stderr.contains("watched once"), "{stderr}");
    // By itself the role accepts a filter; the next error is the missing file.
    let (code, _, stderr) = run(&["--roles=transitions", "--namespace=web"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("/nowhere"), "{stderr}");
    let (code, _, stderr) = run(&["--roles=server,nothing"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("nothing"), "{stderr}");
}

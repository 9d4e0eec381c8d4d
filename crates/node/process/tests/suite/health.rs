//! Probes.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::harness::{Node, condition, container, of, pod};

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_its_probe() {
    let node = Node::start().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flag = folder.path().join("ready").display().to_string();
    let mut one = container("c", "sleep 1000");
    one["readinessProbe"] = json!({"exec": {"command": ["/bin/sh", "-c", format!("test -e {flag} || {{ echo not yet; exit 1; }}")]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 30});
    let id = node.sync(&pod("ready", json!({"containers": [one]}))).await;
    let unhealthy = node.wait_event(&id, "Unhealthy").await;
    assert_eq!(unhealthy.message, "Readiness probe failed: not yet\n");
    let status = node.wait_phase(&id, "Running").await;
    assert_eq!(
        condition(&status, "Ready"),
        ("False".to_owned(), "ContainersNotReady".to_owned())
    );
    assert_eq!(
        (of(&status, "c").ready, of(&status, "c").started),
        (false, Some(true))
    );
    std::fs::write(&flag, "").expect("write");
    node.wait(&id, "ready", |one| {
        condition(&one.status, "Ready").0 == "True"
    })
    .await;
    std::fs::remove_file(&flag).expect("remove");
    node.wait(&id, "unready", |one| {
        condition(&one.status, "Ready").0 == "False"
    })
    .await;
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_not_live_is_restarted() {
    let node = Node::start().await;
    let mut one = container("c", "trap 'exit 0' TERM; while :; do sleep 0.05; done");
    one["livenessProbe"] =
        json!({"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 1});
    let id = node.sync(&pod("live", json!({"containers": [one]}))).await;
    node.wait(&id, "restarted", |one| {
        of(&one.status, "c").restart_count >= 1
    })
    .await;
    let events = node.event_texts(&id);
    assert!(
        events.contains(
            &"Unhealthy: Liveness probe failed: dial tcp 127.0.0.1:1: connect: connection refused"
                .to_owned()
        ),
        "{events:#?}"
    );
    assert!(
        events
            .contains(&"Killing: Container c failed liveness probe, will be restarted".to_owned()),
        "{events:#?}"
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_probes_take_codes_below_400_after_the_startup_probe() {
    let node = Node::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answers = tokio::spawn(async move {
        // The first request fails, the others are redirects, which are successes.
        let mut count = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let text = String::from_utf8_lossy(&request[..read]).into_owned();
            assert!(text.starts_with("GET /healthz HTTP/1.1\r\n"), "{text}");
            assert!(text.contains("x-probe: yes"), "{text}");
            let head = if count == 0 {
                "500 Internal Server Error"
            } else {
                "302 Found"
            };
            count += 1;
            let _ = stream
                .write_all(format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n").as_bytes())
                .await;
        }
    });
    let mut one = container("c", "sleep 1000");
    let get = json!({"path": "healthz", "port": "web", "httpHeaders": [{"name": "X-Probe", "value": "yes"}]});
    one["ports"] = json!([{"name": "web", "containerPort": port}]);
    one["startupProbe"] = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 30});
    one["readinessProbe"] = json!({"httpGet": get, "periodSeconds": 1});
    let id = node.sync(&pod("http", json!({"containers": [one]}))).await;
    node.wait(&id, "ready", |one| {
        condition(&one.status, "Ready").0 == "True"
    })
    .await;
    let events = node.event_texts(&id);
    assert!(
        events.contains(
            &"Unhealthy: Startup probe failed: HTTP probe failed with statuscode: 500".to_owned()
        ),
        "{events:#?}"
    );
    node.end(&id).await;
    node.finish().await;
    answers.abort();
}

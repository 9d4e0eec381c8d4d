//! Flags that decide which reviews are sent, and what they contain.

use std::sync::{Arc, Mutex};

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::Files;
use crate::client::Identity;
use crate::server::{PODS, Running, cluster};

/// An API server that knows every token, allows access to resources and to no path, and keeps the
/// reviews.
struct Reviews {
    kubeconfig: String,
    received: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl Reviews {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        let received = Arc::<Mutex<Vec<Value>>>::default();
        let reviews = Arc::clone(&received);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, Arc::clone(&reviews)));
            }
        });
        Self {
            kubeconfig: kubeconfig.to_string(),
            received,
            task,
        }
    }

    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.received.lock().unwrap())
    }
}

impl Drop for Reviews {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(stream: TcpStream, reviews: Arc<Mutex<Vec<Value>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let status = json!({
            "authenticated": true,
            "user": {"username": "alice"},
            "allowed": review["spec"]["resourceAttributes"].is_object(),
        });
        reviews.lock().unwrap().push(review);
        let body = json!({"status": status}).to_string();
        let head = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length:";
        let response = format!("{head} {}\r\n\r\n{body}", body.len());
        stream.write_all(response.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn results_of_reviews_are_kept_for_the_times_of_the_flags() {
    let (cluster, reviews, files) = (cluster(1).await, Reviews::start().await, Files::new());
    let authentication = files.flag("authentication-kubeconfig", &reviews.kubeconfig);
    let authorization = files.flag("authorization-kubeconfig", &reviews.kubeconfig);
    // The default of each is 10 s.
    for (flag, expected) in [
        ("--authentication-skip-lookup", [1, 1, 1]),
        ("--authentication-token-webhook-cache-ttl=1ns", [4, 1, 1]),
        (
            "--authorization-webhook-cache-authorized-ttl=1ns",
            [1, 2, 1],
        ),
        (
            "--authorization-webhook-cache-unauthorized-ttl=1ns",
            [1, 1, 2],
        ),
    ] {
        let skip = "--authentication-skip-lookup";
        let flags = [skip, &authentication, &authorization, flag];
        let server = Running::start(&cluster, &flags).await;
        server.until_ready().await;
        let alice = Identity {
            token: Some("alice"),
            ..Identity::default()
        };
        for (path, status) in [
            (PODS, StatusCode::OK),
            ("/metrics", StatusCode::FORBIDDEN),
            (PODS, StatusCode::OK),
            ("/metrics", StatusCode::FORBIDDEN),
        ] {
            assert_eq!(server.status_for(path, alice).await, status, "{path}");
        }
        let received = reviews.take();
        let count = |is_kind: &dyn Fn(&Value) -> bool| {
            received
                .iter()
                .filter(|review| is_kind(&review["spec"]))
                .count()
        };
        let sent = [
            count(&|spec| spec["token"].is_string()),
            count(&|spec| spec["resourceAttributes"].is_object()),
            count(&|spec| spec["nonResourceAttributes"].is_object()),
        ];
        assert_eq!(sent, expected, "{flag}");
        server.stop().await;
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn uid_and_extras_of_the_front_proxy_are_in_the_reviews() {
    let (cluster, reviews, files) = (cluster(1).await, Reviews::start().await, Files::new());
    let authorization = files.flag("authorization-kubeconfig", &reviews.kubeconfig);
    let ca = files.flag("requestheader-client-ca-file", cluster.api().kube_ca_pem());
    let flags = [
        "--authentication-skip-lookup",
        "--requestheader-uid-headers=x-other-uid,x-my-uid",
        "--requestheader-extra-headers-prefix=x-my-extra-",
        &authorization,
        &ca,
    ];
    let server = Running::start(&cluster, &flags).await;
    server.until_ready().await;
    let proxy = cluster.api().issue_client_certificate("proxy", None);
    let proxy = proxy.unwrap();
    let identity = Identity {
        certificate: Some(&proxy),
        headers: &[
            ("x-remote-user", "alice"),
            ("x-my-uid", "42"),
            ("x-my-extra-scopes", "view"),
            ("x-remote-uid", "43"),
            ("x-remote-extra-scopes", "all"),
        ],
        ..Identity::default()
    };
    assert_eq!(server.status_for(PODS, identity).await, StatusCode::OK);
    let received = reviews.take();
    let [review] = &received[..] else {
        panic!("{received:?}");
    };
    let spec = &review["spec"];
    assert_eq!(
        [&spec["user"], &spec["uid"], &spec["extra"]],
        [&json!("alice"), &json!("42"), &json!({"scopes": ["view"]})]
    );
    server.stop().await;
    cluster.shutdown().await;
}

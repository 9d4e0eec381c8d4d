//! More connections than the server has room for, and large heads.

use std::time::Duration;

use kubevitals_apiserver::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::client::Client;
use crate::support::{Running, within};

const WIDGETS: &str = "/apis/example.dev/v1/widgets";

/// Timeouts that no test reaches: only an eviction makes room.
fn patient(connections: usize) -> impl FnOnce(&mut ServerConfig) {
    move |config| {
        let never = Duration::from_hours(1);
        config.limits.http.connections = connections;
        config.limits.http.handshake_timeout = never;
        config.limits.http.header_timeout = never;
        config.limits.http.idle_timeout = never;
    }
}

async fn is_alive(server: &Running) -> bool {
    let probe = Client::of(server).http1();
    within("a response to /livez", probe.get("/livez"))
        .await
        .code
        == 200
}

/// They used to keep probes and the front proxy waiting until each of them timed out.
#[tokio::test]
async fn silent_connections_keep_no_probe_waiting() {
    let server = Running::with(patient(4)).await;
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(TcpStream::connect(server.address).await.unwrap());
    }
    assert!(is_alive(&server).await, "nothing is sent");
    for _ in 0..10 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The beginning of a handshake.
        stream.write_all(b"\x16\x03\x01\x02").await.unwrap();
        open.push(stream);
    }
    assert!(is_alive(&server).await, "handshakes are not completed");
    let mut established = Vec::new();
    for client in [Client::of(&server), Client::of(&server).http1()] {
        for _ in 0..6 {
            let mut stream = client.tls().await;
            stream.write_all(b"P").await.unwrap();
            established.push(stream);
        }
        assert!(is_alive(&server).await, "heads are not completed");
    }
    server.stop().await;
}

/// As above, with the limit that the server has by default.
#[tokio::test]
async fn a_thousand_silent_connections_keep_no_probe_waiting() {
    let server = Running::with(|config| {
        let connections = config.limits.http.connections;
        patient(connections)(config);
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..1100 {
        open.push(TcpStream::connect(server.address).await.unwrap());
    }
    assert!(is_alive(&server).await);
    server.stop().await;
}

/// Over HTTP/1 a hundred headers were too many.
#[tokio::test]
async fn a_user_may_have_many_groups() {
    let server = Running::start().await;
    let mut proxy = Client::of(&server)
        .showing(server.proxies.client("front-proxy", &[]))
        .with("x-remote-user", "reader");
    for group in 0..900 {
        let name = format!("{group:0>400}");
        proxy = proxy.with("x-remote-group", &name);
    }
    for client in [proxy.clone().http1(), proxy.clone()] {
        assert_eq!(client.get(WIDGETS).await.code, 200);
    }
    server.stop().await;
}

#[tokio::test]
async fn large_heads_share_a_budget() {
    let server = Running::with(|config| config.limits.http.large_head_bytes = 100_000).await;
    let with_headers = |count| {
        let value = "x".repeat(50_000);
        (0..count).fold(Client::reader(&server), |client, _| {
            client.with("x-large", &value)
        })
    };
    let (large, larger) = (with_headers(3), with_headers(4));
    assert_eq!(large.clone().http1().get(WIDGETS).await.code, 200);
    for client in [larger.clone().http1(), larger] {
        let mut open = client.connect().await;
        let request = client.request(http::Method::GET, WIDGETS);
        assert!(open.send(request).await.is_err());
    }
    assert_eq!(Client::reader(&server).get(WIDGETS).await.code, 200);
    server.stop().await;
}

//! Connections: methods, keep-alive, limits and draining.

use std::time::Duration;

use kubevitals_telemetry::{
    Admin, AdminMetrics, AdminServer, Health, Limits, Metrics, Profiling, TelemetryError,
};

use crate::Harness;

#[tokio::test]
async fn head_responds_like_get_without_the_body() {
    let server = Harness::start(Limits::default()).await;
    let mut client = server.connect().await;
    let get = client.send("GET", "/readyz?verbose", &[], "").await;
    let head = client.send("HEAD", "/readyz?verbose", &[], "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(
        head.header("content-length"),
        Some(get.body.len().to_string().as_str())
    );
    assert_eq!(head.header("content-type"), get.header("content-type"));
    // The connection can still be used.
    assert_eq!(client.send("GET", "/livez", &[], "").await.body, "ok");
}

#[tokio::test]
async fn wrong_methods_and_paths_are_rejected() {
    let server = Harness::start(Limits::default()).await;
    let mut client = server.connect().await;
    let rejected = client.send("POST", "/metrics", &[], "x").await;
    assert_eq!(
        (rejected.status, rejected.header("allow")),
        (405, Some("GET, HEAD"))
    );
    assert_eq!(client.send("GET", "/nowhere", &[], "").await.status, 404);
    assert_eq!(client.send("GET", "/", &[], "").await.status, 200);
}

#[tokio::test]
async fn the_log_level_can_be_set() {
    let server = Harness::start(Limits::default()).await;
    let mut client = server.connect().await;
    let set = client
        .send("PUT", "/debug/log-level", &[], "warn,kubevitals=debug")
        .await;
    assert_eq!(
        (set.status, set.body.as_str()),
        (200, "warn,kubevitals=debug\n")
    );
    assert_eq!(server.logs.filter().as_str(), "warn,kubevitals=debug");
    let long = client
        .send("POST", "/debug/log-level", &[], &"x".repeat(4000))
        .await;
    assert_eq!(long.status, 413);
}

#[tokio::test]
async fn a_slow_head_closes_the_connection() {
    let mut limits = Limits::default();
    limits.http.header_timeout = Duration::from_millis(50);
    let server = Harness::start(limits).await;
    let mut slow = server.connect().await;
    slow.write("GET /livez HTTP/1.1\r\nHost:").await;
    assert_eq!(slow.closed().await, b"");
}

#[tokio::test]
async fn idle_connections_are_closed_at_the_limit() {
    let mut limits = Limits::default();
    limits.http.connections = 2;
    let server = Harness::start(limits).await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        assert_eq!(client.send("GET", "/livez", &[], "").await.status, 200);
        idle.push(client);
    }
    // For each further one, the one that is idle for longest is closed.
    let mut further = Vec::new();
    for client in &mut idle {
        let mut new = server.connect().await;
        assert_eq!(new.send("GET", "/livez", &[], "").await.status, 200);
        assert_eq!(client.closed().await, b"");
        further.push(new);
    }
    for _ in 0..10 {
        assert_eq!(server.get("/livez").await.status, 200);
    }
}

/// They used to keep the kubelet's probes waiting until each of them timed out.
#[tokio::test]
async fn silent_connections_keep_no_probe_waiting() {
    for (connections, bytes) in [(4, ""), (4, "GET /livez"), (128, "")] {
        let mut limits = Limits::default();
        assert_eq!(limits.http.connections, 128);
        limits.http.connections = connections;
        limits.http.handshake_timeout = Duration::from_hours(1);
        limits.http.header_timeout = Duration::from_hours(1);
        let server = Harness::start(limits).await;
        let mut silent = Vec::new();
        for _ in 0..connections + 10 {
            let mut client = server.connect().await;
            client.write(bytes).await;
            silent.push(client);
        }
        assert_eq!(server.get("/livez").await.status, 200);
    }
}

#[tokio::test]
async fn a_drain_closes_idle_connections_and_the_port() {
    let server = Harness::start(Limits::default()).await;
    let mut idle = server.connect().await;
    assert_eq!(idle.send("GET", "/readyz", &[], "").await.body, "ok");
    server.stop.send(()).unwrap();
    assert_eq!(idle.closed().await, b"");
    server.served.await.unwrap();
    assert!(
        tokio::net::TcpStream::connect(server.address)
            .await
            .is_err()
    );
    assert!(
        !server
            .health
            .report(kubevitals_telemetry::Probe::Readyz, &[])
            .passed()
    );
}

#[tokio::test]
async fn readiness_can_fail_before_the_drain() {
    let server = Harness::start(Limits::default()).await;
    server.health.start_shutdown();
    let response = server.get("/readyz").await;
    assert_eq!(response.status, 500);
    assert!(
        response
            .body
            .contains("[-]shutdown failed: process is shutting down\n")
    );
    assert_eq!(server.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_drain_has_a_deadline() {
    let mut limits = Limits::default();
    limits.http.drain_timeout = Duration::from_millis(50);
    let server = Harness::start(limits).await;
    let mut busy = server.connect().await;
    // The handler waits for a body that never arrives. The interim response shows that it runs.
    busy.write(
        "PUT /debug/log-level HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
    )
    .await;
    assert_eq!(busy.read_response(false).await.status, 100);
    server.stop.send(()).unwrap();
    server.served.await.unwrap();
    assert_eq!(busy.closed().await, b"");
}

#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let server = Harness::start(Limits::default()).await;
    let mut metrics = Metrics::new();
    let admin_metrics = AdminMetrics::register(metrics.sub("kubevitals_admin"));
    let admin = Admin {
        health: Health::new(),
        registry: metrics.freeze(),
        logs: None,
        metrics: admin_metrics,
        profiling: Profiling::Off,
    };
    let error = AdminServer::bind(server.address, admin, Limits::default())
        .await
        .unwrap_err();
    assert!(matches!(error, TelemetryError::Bind { .. }));
    assert_eq!(
        error.to_string(),
        format!("admin server cannot listen on {}", server.address)
    );
}

#[cfg(feature = "pprof")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_profile_at_a_time() {
    let server = Harness::start(Limits::default()).await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let path = "/debug/pprof/profile?seconds=1";
    let (one, two) = tokio::join!(
        one.send("GET", path, &[], ""),
        two.send("GET", path, &[], "")
    );
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429], "{one:?} {two:?}");
    let taken = if one.status == 200 { one } else { two };
    assert_eq!(
        taken.header("content-type"),
        Some("application/octet-stream")
    );
    assert!(taken.body.contains("nanoseconds"));
}

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    time::Instant,
};

use super::*;
use crate::{LogOptions, Metrics, Probe, Status, logs};

const LOOPBACK: &str = "127.0.0.1";

/// A handler, and what it tells about, for one test.
struct Fixture {
    handler: Arc<Handler>,
    admin: Admin,
    /// Keeps the logs alive that the log filter belongs to.
    _dispatch: tracing::Dispatch,
}

impl Fixture {
    fn new() -> Self {
        Self::with_profiling(Profiling::Off)
    }

    fn with_profiling(profiling: Profiling) -> Self {
        let (dispatch, logs) = logs::build(&LogOptions::default(), io::sink).unwrap();
        let mut metrics = Metrics::new();
        let admin_metrics = AdminMetrics::register(metrics.sub("kubevitals_admin"));
        let admin = Admin {
            health: Health::new(),
            registry: metrics.freeze(),
            logs: Some(logs),
            metrics: admin_metrics,
            profiling,
        };
        let handler = Arc::new(Handler::new(admin.clone(), Limits::default()));
        Self {
            handler,
            admin,
            _dispatch: dispatch,
        }
    }

    async fn ask(&self, peer: &str, method: Method, path: &str, body: &str) -> Told {
        let peer: IpAddr = peer.parse().unwrap();
        let body = Full::new(Bytes::from(body.to_owned()));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(body)
            .unwrap();
        let (head, body) = self.handler.handle(peer, request).await.into_parts();
        #[expect(clippy::disallowed_methods, reason = "a test reads answers of its own")]
        let body = Limited::new(body, 1 << 20)
            .collect()
            .await
            .unwrap()
            .to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        Told {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    async fn get(&self, path: &str) -> Told {
        self.ask(LOOPBACK, Method::GET, path, "").await
    }

    /// Serves one in-memory connection; the sender asks it to close.
    fn connect(&self) -> (DuplexStream, watch::Sender<()>, tokio::task::JoinHandle<()>) {
        let (client, server) = tokio::io::duplex(1024);
        let closing = watch::Sender::new(());
        let peer = LOOPBACK.parse().unwrap();
        let task = tokio::spawn(connection::serve(
            server,
            peer,
            Arc::clone(&self.handler),
            Limits::default(),
            closing.subscribe(),
        ));
        (client, closing, task)
    }
}

struct Told {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

#[tokio::test]
async fn health_routes() {
    let fixture = Fixture::new();
    let cell = fixture
        .admin
        .health
        .cell(
            "hook/watch",
            Probe::READINESS,
            Status::warming_up("waiting for nodes"),
        )
        .unwrap();
    for (path, status, body) in [
        ("/livez", 200, "ok"),
        ("/healthz", 200, "ok"),
        ("/readyz/ping", 200, "ok"),
        (
            "/readyz/",
            500,
            "[+]ping ok\n[-]hook/watch failed: warming up: waiting for nodes\n[+]shutdown ok\nreadyz check failed\n",
        ),
        ("/readyz?exclude=hook%2Fwatch", 200, "ok"),
        (
            "/readyz?exclude=hook/watch&verbose=1",
            200,
            "[+]ping ok\n[+]hook/watch excluded: ok\n[+]shutdown ok\nreadyz check passed\n",
        ),
        (
            "/readyz/hook/watch",
            500,
            "internal server error: warming up: waiting for nodes\n",
        ),
        (
            "/readyz/nothing",
            404,
            "no such check, see /readyz?verbose\n",
        ),
        (
            "/livez/hook/watch",
            404,
            "no such check, see /livez?verbose\n",
        ),
    ] {
        let told = fixture.get(path).await;
        assert_eq!(
            (told.status.as_u16(), told.body.as_str()),
            (status, body),
            "{path}"
        );
        assert_eq!(
            told.headers[header::CONTENT_TYPE],
            "text/plain; charset=utf-8"
        );
        assert_eq!(told.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
    cell.set_ok();
    assert_eq!(fixture.get("/readyz").await.body, "ok");
}

#[tokio::test]
async fn wrong_methods_and_unknown_paths_say_what_would_work() {
    let fixture = Fixture::new();
    for (method, path, allow) in [
        (Method::POST, "/livez", "GET, HEAD"),
        (Method::DELETE, "/metrics", "GET, HEAD"),
        (Method::OPTIONS, "/", "GET, HEAD"),
        (Method::DELETE, "/debug/log-level", "GET, HEAD, PUT, POST"),
    ] {
        let told = fixture.ask(LOOPBACK, method, path, "").await;
        assert_eq!(told.status, 405, "{path}");
        assert_eq!(told.headers[header::ALLOW], allow, "{path}");
    }
    for path in [
        "/livezz",
        "/metrics/",
        "/debug",
        "/debug/log-level/x",
        "//",
        "/debug/pprofile",
    ] {
        let told = fixture.get(path).await;
        assert_eq!(told.status, 404, "{path}");
        assert!(told.body.contains("/readyz"), "{path}");
    }
    insta::assert_snapshot!(fixture.get("/").await.body);
}

#[tokio::test]
async fn the_log_filter_is_for_loopback_peers() {
    let fixture = Fixture::new();
    for stranger in ["10.0.0.7", "::ffff:10.0.0.7", "fe80::1", "0.0.0.0"] {
        for method in [Method::GET, Method::PUT] {
            let told = fixture
                .ask(stranger, method, "/debug/log-level", "trace")
                .await;
            assert_eq!(told.status, 403, "{stranger}");
            assert!(told.body.contains("kubectl port-forward"), "{}", told.body);
        }
    }
    for (peer, filter) in [
        ("127.0.0.1", "debug"),
        ("::1", "warn"),
        ("::ffff:127.0.0.1", "info,kubevitals=trace"),
    ] {
        let told = fixture
            .ask(peer, Method::PUT, "/debug/log-level", filter)
            .await;
        assert_eq!(
            (told.status.as_u16(), told.body),
            (200, format!("{filter}\n"))
        );
        assert_eq!(
            fixture.get("/debug/log-level").await.body,
            format!("{filter}\n")
        );
    }
    let told = fixture
        .ask(LOOPBACK, Method::POST, "/debug/log-level", "4\n")
        .await;
    assert_eq!(told.body, "info,kubevitals=debug\n");
}

#[tokio::test]
async fn a_bad_log_filter_changes_nothing() {
    let fixture = Fixture::new();
    let long = "x".repeat(LONG);
    for (body, status, says) in [
        ("debgu", 400, "`debgu` is neither a level"),
        ("", 400, "is empty"),
        (long.as_str(), 413, "more than 1024 bytes"),
    ] {
        let told = fixture
            .ask(LOOPBACK, Method::PUT, "/debug/log-level", body)
            .await;
        assert_eq!(told.status, status, "{}", told.body);
        assert!(told.body.contains(says), "{}", told.body);
    }
    assert_eq!(fixture.get("/debug/log-level").await.body, "info\n");
}

const LONG: usize = 5000;

#[tokio::test]
async fn without_logs_there_is_no_log_filter() {
    let mut admin = Fixture::new().admin;
    admin.logs = None;
    let handler = Handler::new(admin, Limits::default());
    let request = Request::builder()
        .uri("/debug/log-level")
        .body(Full::<Bytes>::default())
        .unwrap();
    assert_eq!(
        handler
            .handle(LOOPBACK.parse().unwrap(), request)
            .await
            .status(),
        404
    );
}

#[tokio::test]
async fn profiles_must_be_switched_on_and_asked_for_from_inside() {
    let off = Fixture::new().get("/debug/pprof/profile").await;
    assert_eq!(off.status, 404);
    let on = Fixture::with_profiling(Profiling::Loopback);
    let stranger = on
        .ask("10.0.0.7", Method::GET, "/debug/pprof/profile", "")
        .await;
    if cfg!(feature = "pprof") {
        assert!(off.body.contains("switched off"), "{}", off.body);
        assert_eq!(stranger.status, 403);
        assert_eq!(on.get("/debug/pprof/").await.status, 200);
        assert_eq!(on.get("/debug/pprof/heap").await.status, 404);
        assert_eq!(on.get("/debug/pprof/profile?seconds=0").await.status, 400);
    } else {
        assert!(
            off.body.contains("without the feature `pprof`"),
            "{}",
            off.body
        );
        assert_eq!(stranger.status, 404);
    }
}

#[tokio::test]
async fn requests_are_counted_by_route_and_code() {
    let fixture = Fixture::new();
    for path in ["/livez", "/livez", "/livez/ping", "/nowhere", "/else/where"] {
        fixture.get(path).await;
    }
    let metrics = fixture.get("/metrics").await.body;
    assert!(metrics.contains("kubevitals_admin_requests_total{code=\"200\",route=\"livez\"} 3\n"));
    assert!(
        metrics.contains("kubevitals_admin_requests_total{code=\"404\",route=\"unknown\"} 2\n")
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_ends_the_connection() {
    let (mut client, _closing, task) = Fixture::new().connect();
    let begin = Instant::now();
    // A byte now and then does not buy more time.
    for byte in *b"GET /" {
        client.write_all(&[byte]).await.unwrap();
        time::advance(Duration::from_millis(900)).await;
        tokio::task::yield_now().await;
    }
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    task.await.unwrap();
    assert_eq!(
        begin.elapsed().as_secs(),
        Limits::default().header_timeout.as_secs()
    );
}

#[tokio::test(start_paused = true)]
async fn silence_ends_the_connection() {
    let (mut client, _closing, task) = Fixture::new().connect();
    let begin = Instant::now();
    client.read_to_end(&mut Vec::new()).await.unwrap();
    task.await.unwrap();
    assert_eq!(
        begin.elapsed().as_secs(),
        Limits::default().header_timeout.as_secs()
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_longer_then_ends() {
    let (mut client, _closing, task) = Fixture::new().connect();
    for _ in 0..3 {
        client
            .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        read_ok(&mut client).await;
        time::advance(Duration::from_secs(80)).await;
    }
    let begin = Instant::now();
    client.read_to_end(&mut Vec::new()).await.unwrap();
    task.await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_never_reads_ends_the_connection() {
    let fixture = Fixture::new();
    for number in 0..60 {
        let name = format!("check-number-{number}-with-a-rather-long-name");
        fixture
            .admin
            .health
            .check(&name, Probe::ALL, || Status::Ok)
            .unwrap();
    }
    let (mut client, _closing, task) = fixture.connect();
    let begin = Instant::now();
    client
        .write_all(b"GET /livez?verbose HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    // The answer is longer than the pipe; nobody takes it.
    task.await.unwrap();
    assert_eq!(
        begin.elapsed().as_secs(),
        Limits::default().idle_timeout.as_secs()
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_refused() {
    let (mut client, _closing, _task) = Fixture::new().connect();
    let head = b"PUT /debug/log-level HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nde";
    client.write_all(head).await.unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}

#[tokio::test]
async fn closing_ends_an_idle_connection_at_once() {
    let (mut client, closing, task) = Fixture::new().connect();
    client
        .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    read_ok(&mut client).await;
    closing.send_replace(());
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    task.await.unwrap();
}

async fn read_ok(client: &mut DuplexStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        answer.push(client.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
}

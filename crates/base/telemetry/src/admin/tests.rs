use std::{
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame};

use super::*;
use crate::{LogOptions, Metrics, Probe, Status, logs};

const LOOPBACK: &str = "127.0.0.1";

/// A handler for one test, and what it serves.
struct Fixture {
    handler: AdminHandler,
    admin: Admin,
    /// Keeps the subscriber alive that the log filter belongs to.
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
        let handler = AdminHandler::new(admin.clone(), Limits::default(), Vec::new());
        Self {
            handler,
            admin,
            _dispatch: dispatch,
        }
    }

    async fn send(&self, peer: &str, method: Method, path: &str, body: &str) -> Received {
        let peer: IpAddr = peer.parse().unwrap();
        let body = Full::new(Bytes::from(body.to_owned()));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(body)
            .unwrap();
        let (head, body) = self.handler.respond(peer, request).await.into_parts();
        #[expect(
            clippy::disallowed_methods,
            reason = "a test reads responses of its own"
        )]
        let body = Limited::new(body, 1 << 20)
            .collect()
            .await
            .unwrap()
            .to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        Received {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    async fn get(&self, path: &str) -> Received {
        self.send(LOOPBACK, Method::GET, path, "").await
    }
}

/// A body of which nothing ever arrives.
struct PendingBody;

impl Body for PendingBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

struct Received {
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
        let response = fixture.get(path).await;
        assert_eq!(
            (response.status.as_u16(), response.body.as_str()),
            (status, body),
            "{path}"
        );
        assert_eq!(
            response.headers[header::CONTENT_TYPE],
            "text/plain; charset=utf-8"
        );
        assert_eq!(response.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
    cell.set_ok();
    assert_eq!(fixture.get("/readyz").await.body, "ok");
}

#[tokio::test]
async fn wrong_methods_and_unknown_paths_name_the_alternatives() {
    let fixture = Fixture::new();
    for (method, path, allow) in [
        (Method::POST, "/livez", "GET, HEAD"),
        (Method::DELETE, "/metrics", "GET, HEAD"),
        (Method::OPTIONS, "/", "GET, HEAD"),
        (Method::DELETE, "/debug/log-level", "GET, HEAD, PUT, POST"),
    ] {
        let response = fixture.send(LOOPBACK, method, path, "").await;
        assert_eq!(response.status, 405, "{path}");
        assert_eq!(response.headers[header::ALLOW], allow, "{path}");
    }
    for path in [
        "/livezz",
        "/metrics/",
        "/debug",
        "/debug/log-level/x",
        "//",
        "/debug/pprofile",
    ] {
        let response = fixture.get(path).await;
        assert_eq!(response.status, 404, "{path}");
        assert!(response.body.contains("/readyz"), "{path}");
    }
    insta::assert_snapshot!(fixture.get("/").await.body);
}

#[tokio::test]
async fn the_log_filter_is_for_loopback_peers() {
    let fixture = Fixture::new();
    for peer in ["10.0.0.7", "::ffff:10.0.0.7", "fe80::1", "0.0.0.0"] {
        for method in [Method::GET, Method::PUT] {
            let response = fixture
                .send(peer, method, "/debug/log-level", "trace")
                .await;
            assert_eq!(response.status, 403, "{peer}");
            assert!(
                response.body.contains("kubectl port-forward"),
                "{}",
                response.body
            );
        }
    }
    for (peer, filter) in [
        ("127.0.0.1", "debug"),
        ("::1", "warn"),
        ("::ffff:127.0.0.1", "info,kubevitals=trace"),
    ] {
        let response = fixture
            .send(peer, Method::PUT, "/debug/log-level", filter)
            .await;
        assert_eq!(
            (response.status.as_u16(), response.body),
            (200, format!("{filter}\n"))
        );
        assert_eq!(
            fixture.get("/debug/log-level").await.body,
            format!("{filter}\n")
        );
    }
    let response = fixture
        .send(LOOPBACK, Method::POST, "/debug/log-level", "4\n")
        .await;
    assert_eq!(response.body, "info,kubevitals=debug\n");
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
        let response = fixture
            .send(LOOPBACK, Method::PUT, "/debug/log-level", body)
            .await;
        assert_eq!(response.status, status, "{}", response.body);
        assert!(response.body.contains(says), "{}", response.body);
    }
    assert_eq!(fixture.get("/debug/log-level").await.body, "info\n");
}

const LONG: usize = 5000;

#[tokio::test]
async fn without_logs_there_is_no_log_filter() {
    let mut admin = Fixture::new().admin;
    admin.logs = None;
    let handler = AdminHandler::new(admin, Limits::default(), Vec::new());
    let request = Request::builder()
        .uri("/debug/log-level")
        .body(Full::<Bytes>::default())
        .unwrap();
    assert_eq!(
        handler
            .respond(LOOPBACK.parse().unwrap(), request)
            .await
            .status(),
        404
    );
}

#[tokio::test]
async fn profiles_must_be_enabled_and_requested_from_loopback() {
    let off = Fixture::new().get("/debug/pprof/profile").await;
    assert_eq!(off.status, 404);
    let on = Fixture::with_profiling(Profiling::Loopback);
    let remote = on
        .send("10.0.0.7", Method::GET, "/debug/pprof/profile", "")
        .await;
    if cfg!(feature = "pprof") {
        assert!(off.body.contains("disabled"), "{}", off.body);
        assert_eq!(remote.status, 403);
        assert_eq!(on.get("/debug/pprof/").await.status, 200);
        let heap = on.get("/debug/pprof/heap").await;
        assert_eq!(heap.status, 404);
        assert!(heap.body.contains("allocator"), "{}", heap.body);
        assert_eq!(on.get("/debug/pprof/goroutine").await.status, 404);
        assert_eq!(on.get("/debug/pprof/profile?seconds=0").await.status, 400);
    } else {
        assert!(
            off.body.contains("without the feature `pprof`"),
            "{}",
            off.body
        );
        assert_eq!(remote.status, 404);
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
async fn a_slow_body_is_rejected() {
    let fixture = Fixture::new();
    let request = Request::put("/debug/log-level").body(PendingBody).unwrap();
    let peer = LOOPBACK.parse().unwrap();
    let response = fixture.handler.respond(peer, request).await;
    assert_eq!(response.status(), 408);
}

fn pages() -> Vec<Page> {
    let echo = |request: PageRequest| async move {
        PageResponse::json(StatusCode::ACCEPTED, format!("\"{}\"", request.query))
    };
    vec![Page::new("/echo", "the query of the request", echo)]
}

#[tokio::test]
async fn pages_of_roles_are_served_at_their_own_paths_only() {
    let mut fixture = Fixture::new();
    fixture.handler = AdminHandler::new(fixture.admin.clone(), Limits::default(), pages());
    let page = fixture.send("10.0.0.9", Method::GET, "/echo?a=b", "").await;
    assert_eq!(
        (page.status, &*page.body),
        (StatusCode::ACCEPTED, "\"a=b\"")
    );
    let posted = fixture.send("10.0.0.9", Method::POST, "/echo", "").await;
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);
    let below = fixture.send("10.0.0.9", Method::GET, "/echo/x", "").await;
    assert_eq!(below.status, StatusCode::NOT_FOUND);
    assert!(
        below
            .body
            .contains("/echo                  the query of the request\n")
    );
}

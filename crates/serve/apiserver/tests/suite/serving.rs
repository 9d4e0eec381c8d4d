//! Limits and shutdown.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::Method;
use http_body_util::BodyExt as _;
use kubevitals_apiserver::ServerConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{Client, Received};
use crate::support::{Running, within};

const WIDGETS: &str = "/apis/example.dev/v1/widgets";
const STALL: &str = "/apis/example.dev/v1/gadgets/stall";

#[tokio::test]
async fn requests_beyond_the_limit_get_retry_after() {
    let server = Running::with(|config| config.limits.in_flight = 1).await;
    let reader = Client::reader(&server);
    let mut open = reader.connect().await;
    // The response begins, and its body holds the slot.
    let held = open.send(reader.request(Method::GET, STALL)).await.unwrap();
    assert_eq!(held.status(), 200);
    let response = reader.get(WIDGETS).await;
    assert_eq!(
        (response.code.as_u16(), response.header("retry-after")),
        (429, "1")
    );
    assert_eq!(response.json()["reason"], "TooManyRequests");
    let admin = Client::of(&server).showing(server.clients.client("root", &["system:masters"]));
    assert_eq!(
        admin.get(WIDGETS).await.code,
        200,
        "privileged users are always served"
    );
    assert_eq!(
        Client::of(&server).get("/livez").await.code,
        200,
        "so are probes"
    );
    drop(held);
    let freed = async {
        while reader.get(WIDGETS).await.code != 200 {
            tokio::task::yield_now().await;
        }
    };
    within("the slot is free again", freed).await;
    server.stop().await;
}

/// A single thread: the server does nothing while the clients connect, and then has all of them at
/// once.
#[tokio::test]
async fn the_newest_of_many_handshakes_does_not_wait_for_all_others() {
    const MANY: usize = 24;
    let server = Running::with(|_| {}).await;
    let tls = Client::of(&server).configuration();
    let streams: Vec<TcpStream> = (0..MANY)
        .map(|_| {
            let name = ServerName::try_from("localhost").unwrap();
            let mut session = rustls::ClientConnection::new(tls.config(), name).unwrap();
            let mut stream = std::net::TcpStream::connect(server.address).unwrap();
            session.write_tls(&mut stream).unwrap();
            stream.set_nonblocking(true).unwrap();
            TcpStream::from_std(stream).unwrap()
        })
        .collect();
    let responses: FuturesUnordered<_> = streams
        .iter()
        .enumerate()
        .map(|(number, stream)| async move {
            stream.readable().await.unwrap();
            number
        })
        .collect();
    let order = responses.collect::<Vec<usize>>();
    let order = within("a response to each handshake", order).await;
    let newest = order.iter().position(|number| *number == MANY - 1);
    assert!(newest.unwrap() < MANY / 4, "{order:?}");
    let response = Client::reader(&server).get(WIDGETS).await;
    assert_eq!(
        response.code, 200,
        "abandoned connections do not block others"
    );
    server.stop().await;
}

#[tokio::test]
async fn responses_past_their_deadline_are_aborted() {
    let server =
        Running::with(|config| config.limits.request_timeout = Duration::from_millis(50)).await;
    let reader = Client::reader(&server);
    let mut open = reader.connect().await;
    let held = open.send(reader.request(Method::GET, STALL)).await.unwrap();
    let mut body = held.into_body();
    let frame = within("the response is aborted", body.frame()).await;
    assert!(
        frame.unwrap().is_err(),
        "an incomplete response must not look complete"
    );
    // The deadline does not apply to watches.
    let request = reader.request(Method::GET, &format!("{WIDGETS}?watch=1&timeoutSeconds=1"));
    let watched = Received::read(open.send(request).await.unwrap()).await;
    assert_eq!(watched.text().lines().count(), 25);
    server.stop().await;
}

#[tokio::test]
async fn oversized_heads_are_rejected() {
    let server = Running::with(|config| config.limits.http.header_bytes = 8 * 1024).await;
    let huge = Client::reader(&server).with("x-huge", &"x".repeat(20_000));
    assert_eq!(huge.clone().http1().get(WIDGETS).await.code, 431);
    let mut open = huge.connect().await;
    match open.send(huge.request(Method::GET, WIDGETS)).await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(!error.is_timeout(), "{error}"),
    }
    assert_eq!(Client::reader(&server).get(WIDGETS).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn slow_heads_and_idle_connections_are_closed() {
    let server = Running::with(|config| {
        config.limits.http.header_timeout = Duration::from_millis(100);
        config.limits.http.idle_timeout = Duration::from_millis(200);
    })
    .await;
    let client = Client::reader(&server).http1();
    // Half a head.
    let mut stream = client.tls().await;
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-a: ")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _cut = within("a slow head is cut", stream.read_to_end(&mut rest)).await;
    assert!(
        rest.is_empty(),
        "no response: {:?}",
        String::from_utf8_lossy(&rest)
    );
    // A complete request, and then nothing.
    let mut stream = client.tls().await;
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ended = within("an idle connection ends", stream.read_to_end(&mut rest)).await;
    assert!(rest.starts_with(b"HTTP/1.1 200 OK"));
    // HTTP/2 without a request.
    let mut stream = Client::reader(&server).tls().await;
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ended = within("an idle connection ends", stream.read_to_end(&mut rest)).await;
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_are_evicted_for_new_ones() {
    let server = Running::with(|config| config.limits.http.connections = 2).await;
    let reader = Client::reader(&server).http1();
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut open = reader.connect().await;
        let request = reader.request(Method::GET, WIDGETS);
        assert_eq!(
            Received::read(open.send(request).await.unwrap()).await.code,
            200
        );
        idle.push(open);
    }
    for _ in 0..3 {
        let response = reader.get(WIDGETS).await;
        assert_eq!(response.code, 200);
    }
    server.stop().await;
}

#[tokio::test]
async fn unauthenticated_clients_get_one_http2_request() {
    let server = Running::start().await;
    let anonymous = Client::of(&server);
    let mut open = anonymous.connect().await;
    let response = open
        .send(anonymous.request(Method::GET, "/livez"))
        .await
        .unwrap();
    assert_eq!(Received::read(response).await.code, 200);
    let gone = async {
        while open
            .send(anonymous.request(Method::GET, "/livez"))
            .await
            .is_ok()
        {
            tokio::task::yield_now().await;
        }
    };
    within("the connection is closed", gone).await;
    server.stop().await;
}

/// The listener used to close before readiness failed, while load balancers still sent requests.
#[tokio::test]
async fn readiness_fails_first_and_requests_are_served_during_the_shutdown_delay() {
    let delay = |delay| move |config: &mut ServerConfig| config.shutdown_delay = delay;
    let mut server = Running::with(delay(Duration::from_hours(1))).await;
    let reader = Client::reader(&server);
    let watch = reader.request(Method::GET, &format!("{WIDGETS}?watch=1"));
    let mut watched = reader.connect().await.send(watch).await.unwrap();
    server.begin_stop();
    let not_ready = async {
        while Client::of(&server).get("/readyz").await.code != 500 {
            tokio::task::yield_now().await;
        }
    };
    within("readiness fails", not_ready).await;
    // On new connections.
    assert_eq!(Client::of(&server).get("/livez").await.code, 200);
    assert_eq!(Client::reader(&server).get(WIDGETS).await.code, 200);
    let event = within("an event of the watch", watched.body_mut().frame()).await;
    assert!(event.unwrap().is_ok(), "watches continue");
    drop(server);

    let server = Running::with(delay(Duration::from_millis(50))).await;
    let address = server.address;
    server.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn requests_over_http2_close_their_connection_by_chance() {
    let server = Running::with(|config| config.goaway_chance = 1.0).await;
    let reader = Client::reader(&server);
    let mut open = reader.connect().await;
    let response = open.send(reader.request(Method::GET, WIDGETS)).await;
    assert_eq!(Received::read(response.unwrap()).await.code, 200);
    let gone = async {
        while open
            .send(reader.request(Method::GET, WIDGETS))
            .await
            .is_ok()
        {
            tokio::task::yield_now().await;
        }
    };
    within("the connection is closed", gone).await;
    let http1 = reader.http1();
    let mut open = http1.connect().await;
    for _ in 0..3 {
        let response = open.send(http1.request(Method::GET, WIDGETS)).await;
        assert_eq!(Received::read(response.unwrap()).await.code, 200);
    }
    server.stop().await;
}

#[tokio::test]
async fn shutdown_drains() {
    let mut server = Running::start().await;
    let reader = Client::reader(&server);
    let mut open = reader.connect().await;
    let request = reader.request(Method::GET, &format!("{WIDGETS}?watch=1"));
    let watch = open.send(request).await.unwrap();
    let idle = Client::reader(&server).http1().connect().await;
    let health = server.health.clone();
    server.begin_stop();
    // The watch ends as after its timeout, without an error.
    let watched = Received::read(watch).await;
    assert_eq!(watched.text().lines().count(), 25);
    assert!(
        !health
            .report(kubevitals_telemetry::Probe::Readyz, &[])
            .passed()
    );
    server.stop().await;
    drop(idle);
}

//! Clients that leave, or stop reading.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use kubevitals_telemetry::LogOptions;
use kubevitals_telemetry::logs::LogCapture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::support::{DEADLINE, Invented, Running, everything};

#[tokio::test]
async fn a_client_that_leaves_cancels_the_provider() {
    let log = LogCapture::start(&LogOptions::default());
    let invented = Arc::new(Invented::default());
    let (begun, mut has_begun) = mpsc::channel(1);
    let (dropped, mut was_dropped) = mpsc::channel(1);
    *invented.begun.lock() = Some(begun);
    *invented.dropped.lock() = Some(dropped);
    let server = Running::open(everything(&invented)).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /stats/summary HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    tokio::time::timeout(DEADLINE, has_begun.recv())
        .await
        .unwrap()
        .unwrap();
    drop(stream);
    tokio::time::timeout(DEADLINE, was_dropped.recv())
        .await
        .unwrap()
        .unwrap();
    *invented.begun.lock() = None;

    let labels =
        "{long_running=\"false\",method=\"GET\",path=\"stats\",server_type=\"readwrite\"} ";
    let in_flight = || server.metric(&format!("kubelet_http_inflight_requests{labels}"));
    let ended = async {
        while in_flight() != Some(0.0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.unwrap();
    assert_eq!(
        server.metric(&format!("kubelet_http_requests_total{labels}")),
        Some(1.0)
    );
    let text = String::from_utf8(
        server
            .registry
            .encode(kubevitals_telemetry::exposition::Format::negotiate(
                &http::HeaderMap::new(),
            ))
            .unwrap(),
    )
    .unwrap();
    assert!(
        !text.contains("http_responses_total"),
        "no response, no error"
    );
    server.stop().await;
    let log = log.text();
    assert!(
        log.contains("listening") && !log.contains("WARN") && !log.contains("ERROR"),
        "{log}"
    );
}

#[tokio::test]
async fn a_client_that_leaves_a_log_drops_its_stream() {
    let invented = Arc::new(Invented::default());
    let (dropped, mut was_dropped) = mpsc::channel(1);
    *invented.dropped.lock() = Some(dropped);
    let server = Running::open(everything(&invented)).await;
    let response = Client::of(&server)
        .open(Method::GET, "/containerLogs/ns/followed/app?follow=true")
        .await;
    let mut body = response.into_body();
    tokio::time::timeout(DEADLINE, body.frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    drop(body);
    tokio::time::timeout(DEADLINE, was_dropped.recv())
        .await
        .unwrap()
        .unwrap();
    server.stop().await;
}

/// The log is endless: it is produced only as fast as it is read, and not at all in the end.
#[tokio::test]
async fn a_reader_that_stops_is_cut() {
    let invented = Arc::new(Invented::default());
    let (dropped, mut was_dropped) = mpsc::channel(1);
    *invented.dropped.lock() = Some(dropped);
    let server = Running::with(everything(&invented), |config| {
        config.limits.http.stall_timeout = Duration::from_millis(300);
    })
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /containerLogs/ns/endless/app HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    // It stays connected and reads no more.
    tokio::time::timeout(DEADLINE, was_dropped.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        server.metric("kubevitals_kubelet_aborted_responses_total "),
        Some(1.0)
    );
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn a_provider_that_hangs_is_a_timeout() {
    let invented = Arc::new(Invented::default());
    let (begun, _has_begun) = mpsc::channel(1);
    *invented.begun.lock() = Some(begun);
    let server = Running::with(everything(&invented), |config| {
        config.limits.request_timeout = Duration::from_millis(200);
    })
    .await;
    let response = Client::of(&server).get("/stats/summary").await;
    assert_eq!(response.code, 504);
    server.stop().await;
}

#[tokio::test]
async fn requests_in_flight_are_limited() {
    let invented = Arc::new(Invented::default());
    let (begun, mut has_begun) = mpsc::channel(1);
    *invented.begun.lock() = Some(begun);
    let server = Running::with(everything(&invented), |config| config.limits.in_flight = 1).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /stats/summary HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    tokio::time::timeout(DEADLINE, has_begun.recv())
        .await
        .unwrap()
        .unwrap();
    let response = Client::of(&server).get("/pods").await;
    assert_eq!((response.code, response.header("retry-after")), (429, "1"));
    drop(stream);
    server.stop().await;
}

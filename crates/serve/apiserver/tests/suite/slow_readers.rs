//! Clients that stop reading.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::io::AsyncWriteExt as _;

use crate::client::Client;
use crate::support::{Running, widgets_with_bodies, within};

const WIDGETS: &str = "/apis/example.dev/v1/widgets";

async fn until(what: &str, is_true: impl Fn() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let waiting = async {
        while !is_true() {
            ticks.tick().await;
        }
    };
    within(what, waiting).await;
}

/// Such a list used to be held for ever: its body is not polled, and other requests on the
/// connection counted as progress.
#[tokio::test]
async fn a_list_that_is_not_read_is_aborted_at_its_deadline() {
    let bodies = Arc::new(());
    let server = Running::with(|config| {
        config.limits.request_timeout = Duration::from_millis(50);
        config.groups = vec![widgets_with_bodies(5_000, &bodies)];
    })
    .await;
    for window in [0, 1, 1_000] {
        let reader = Client::reader(&server).window(window);
        let mut open = reader.connect().await;
        let before = Arc::strong_count(&bodies);
        let stuck = open.send(reader.request(Method::GET, WIDGETS)).await;
        assert_eq!(stuck.as_ref().unwrap().status(), 200);
        let gone = async {
            while Arc::strong_count(&bodies) > before {
                let version = open.send(reader.request(Method::GET, "/version")).await;
                assert_eq!(version.unwrap().status(), 200);
            }
        };
        within("the body of the list is dropped", gone).await;
        drop(stuck);
    }
    let scraper = Client::of(&server).bearer("token-of-scraper");
    let metrics = scraper.get("/metrics").await;
    let aborted = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("kubevitals_apiserver_aborted_responses_total "));
    assert!(aborted.unwrap().parse::<u32>().unwrap() >= 3);
    server.stop().await;
}

/// Watches had no deadline at all while their client did not read.
#[tokio::test]
async fn a_watch_that_is_not_read_is_aborted() {
    let bodies = Arc::new(());
    let server = Running::with(|config| {
        config.limits.http.stall_timeout = Duration::from_millis(100);
        // More than the buffers of a socket.
        config.groups = vec![widgets_with_bodies(60_000, &bodies)];
    })
    .await;
    let idle = Arc::strong_count(&bodies);
    let path = format!("{WIDGETS}?watch=1&timeoutSeconds=3600");
    let mut stream = Client::of(&server).http1().tls().await;
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer token-of-reader\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    until("the watch begins", || Arc::strong_count(&bodies) > idle).await;
    let dropped = || Arc::strong_count(&bodies) == idle;
    until("the body of the watch is dropped", dropped).await;
    drop(stream);

    let reader = Client::reader(&server).window(1_000);
    let mut open = reader.connect().await;
    let stuck = open.send(reader.request(Method::GET, &path)).await;
    assert_eq!(stuck.as_ref().unwrap().status(), 200);
    let dropped = || Arc::strong_count(&bodies) == idle;
    until("the body of the watch is dropped", dropped).await;
    let version = open.send(reader.request(Method::GET, "/version")).await;
    assert_eq!(version.unwrap().status(), 200, "only the stream is reset");
    server.stop().await;
}

#[tokio::test]
async fn a_response_that_is_not_read_holds_its_slot_until_it_is_aborted() {
    let server = Running::with(|config| {
        config.limits.in_flight = 1;
        config.limits.request_timeout = Duration::from_millis(300);
        config.groups = vec![widgets_with_bodies(1_000, &Arc::default())];
    })
    .await;
    let slow = Client::reader(&server).window(0);
    let mut open = slow.connect().await;
    let stuck = open.send(slow.request(Method::GET, WIDGETS)).await;
    assert_eq!(stuck.as_ref().unwrap().status(), 200);
    let reader = Client::reader(&server);
    let freed = async {
        while reader.get(WIDGETS).await.code != 200 {
            tokio::task::yield_now().await;
        }
    };
    within("the slot is free again", freed).await;
    server.stop().await;
}

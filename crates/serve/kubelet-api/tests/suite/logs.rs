//! `/containerLogs`.

use std::sync::Arc;

use http::Method;
use http_body_util::BodyExt as _;
use kubevitals_kubelet_api::provider::LogOptions;
use kubevitals_model::{SteppedClock, Timestamp};

use crate::client::Client;
use crate::support::{DEADLINE, Invented, Running, everything};

#[tokio::test]
async fn options_reach_the_provider() {
    let invented = Arc::new(Invented::default());
    let now = Timestamp::from_unix_millis(1_000_000);
    let clock = SteppedClock::new(now);
    let server = Running::with(everything(&invented), |config| {
        config.clock = clock.clock();
    })
    .await;
    let client = Client::of(&server);
    let response = client
        .get("/containerLogs/ns/short/app?follow=1&tailLines=0&sinceSeconds=10&previous=true&timestamps=true&limitBytes=100")
        .await;
    assert_eq!(
        (response.code, response.text()),
        (200, "line 0\nline 1\nline 2\n")
    );
    let (target, options) = invented.logged.lock().take().unwrap();
    assert_eq!(target.pod.key.to_string(), "ns/short");
    assert_eq!((target.container.as_str(), target.pod.uid), ("app", None));
    let expected = LogOptions {
        follow: true,
        previous: true,
        timestamps: true,
        tail_lines: Some(0),
        limit_bytes: Some(100),
        since: Some(Timestamp::from_unix_millis(990_000)),
        ..LogOptions::default()
    };
    assert_eq!(options, expected);
    server.stop().await;
}

#[tokio::test]
async fn bad_options_never_reach_the_provider() {
    let invented = Arc::new(Invented::default());
    let server = Running::open(everything(&invented)).await;
    let client = Client::of(&server);
    for (query, text) in [
        (
            "tailLines=-1",
            "invalid tailLines: \"-1\" is not a whole number of at least 0\n",
        ),
        (
            "sinceSeconds=1&sinceTime=2026-11-15T20:11:21Z",
            "invalid sinceTime: at most one of sinceTime and sinceSeconds may be specified\n",
        ),
    ] {
        let response = client
            .get(&format!("/containerLogs/ns/short/app?{query}"))
            .await;
        assert_eq!((response.code, response.text()), (400, text));
    }
    assert!(invented.logged.lock().is_none());
    server.stop().await;
}

#[tokio::test]
async fn a_limit_of_bytes_is_exact() {
    let server = Running::open(everything(&Arc::default())).await;
    let client = Client::of(&server);
    for (limit, text) in [
        (1, "l"),
        (7, "line 0\n"),
        (10, "line 0\nlin"),
        (100, "line 0\nline 1\nline 2\n"),
    ] {
        let response = client
            .get(&format!("/containerLogs/ns/short/app?limitBytes={limit}"))
            .await;
        assert_eq!(response.text(), text);
    }
    server.stop().await;
}

#[tokio::test]
async fn errors_before_the_first_byte_are_responses() {
    let server = Running::open(everything(&Arc::default())).await;
    let client = Client::of(&server);
    let missing = client.get("/containerLogs/ns/missing/app").await;
    assert_eq!(
        (missing.code, missing.text()),
        (404, "pod \"missing\" not found\n")
    );
    let busy = client.get("/containerLogs/ns/busy/app").await;
    assert_eq!((busy.code, busy.header("retry-after")), (429, "7"));
    server.stop().await;
}

#[tokio::test]
async fn later_errors_cut_the_body_off() {
    let invented = Arc::new(Invented::default());
    let server = Running::open(everything(&invented)).await;
    let response = Client::of(&server)
        .open(Method::GET, "/containerLogs/ns/broken/app")
        .await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let first = tokio::time::timeout(DEADLINE, body.frame()).await.unwrap();
    assert_eq!(first.unwrap().unwrap().data_ref().unwrap(), "line 0\n");
    invented.gate.notify_one();
    let end = tokio::time::timeout(DEADLINE, body.frame()).await.unwrap();
    assert!(end.unwrap().is_err(), "it must not look complete");
    server.stop().await;
}

#[tokio::test]
async fn a_followed_log_is_flushed_and_ends_with_the_server() {
    let mut server = Running::open(everything(&Arc::default())).await;
    let response = Client::of(&server)
        .open(Method::GET, "/containerLogs/ns/followed/app?follow=true")
        .await;
    let mut body = response.into_body();
    let mut text = Vec::new();
    let read = async {
        while text != b"line 0\nline 1\n" {
            let frame = body.frame().await.unwrap().unwrap();
            text.extend_from_slice(frame.data_ref().unwrap());
        }
    };
    tokio::time::timeout(DEADLINE, read).await.unwrap();
    server.begin_stop();
    let end = tokio::time::timeout(DEADLINE, body.frame()).await.unwrap();
    assert!(end.is_none(), "a complete response");
    server.stop().await;
}

#[tokio::test]
async fn the_number_of_logs_is_limited() {
    let server = Running::with(everything(&Arc::default()), |config| config.limits.logs = 1).await;
    let client = Client::of(&server);
    let path = "/containerLogs/ns/followed/app?follow=true";
    let first = client.open(Method::GET, path).await;
    let second = client.get(path).await;
    assert_eq!((second.code, second.header("retry-after")), (429, "1"));
    assert_eq!(
        client.get("/healthz").await.code,
        200,
        "other requests have their own limit"
    );
    drop(first);
    let freed = async {
        while client.open(Method::GET, path).await.status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, freed).await.unwrap();
    server.stop().await;
}

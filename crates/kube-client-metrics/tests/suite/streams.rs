//! Watches, followed logs and upgrades.

use std::time::Duration;

use http::header::UPGRADE;
use tower::{Service, ServiceExt};

use crate::harness::{Broken, Recorder, Script, Step, exchange, frame, measured, request, respond};

const WATCH: &str = "/api/v1/pods?watch=true&allowWatchBookmarks=true";
const LOG: &str = "/api/v1/namespaces/space/pods/object/log";

fn events(end: &[Step]) -> Script {
    let mut steps = vec![
        Step::Data("{\"type\":\"ADDED\"}\n{\"type\":"),
        Step::Wait(Duration::from_secs(40)),
        Step::Data("\"MODIFIED\"}\n{\"type\":\"DELETED\"}\n"),
    ];
    steps.extend_from_slice(end);
    Script::new(steps)
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_a_stream_with_events_and_not_timed_as_a_request() {
    let calls = Recorder::default();
    let service = measured(&calls, async |_| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(respond(200, events(&[])))
    });
    exchange(service, request("GET", WATCH)).await;
    assert_eq!(
        calls.take(),
        [
            "request_size GET cluster:6443 0",
            "result GET cluster:6443 200",
            "opened watch of pods",
            "watch +1 +25",
            "watch +2 +31",
            "watch ended by server after 40000ms, 3 events, 56 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_watch_has_its_cause() {
    let calls = Recorder::default();
    let service = measured(&calls, async |_| Ok(respond(200, events(&[Step::Break]))));
    exchange(service, request("GET", WATCH)).await;
    let last = calls.take().pop().unwrap();
    assert!(last.starts_with("watch ended by error after"), "{last}");

    let mut service = measured(&calls, async |_| Ok(respond(200, events(&[Step::Hang]))));
    let response = service.call(request("GET", WATCH)).await.unwrap();
    let mut body = response.into_body();
    frame(&mut body).await.unwrap().unwrap();
    drop(body);
    let last = calls.take().pop().unwrap();
    assert_eq!(last, "watch ended by client after 0ms, 1 events, 25 bytes");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_watch_ends_as_a_request_but_is_not_timed() {
    let calls = Recorder::default();
    let service = measured(&calls, async |_| Ok(respond(410, Script::text("gone"))));
    exchange(service, request("GET", WATCH)).await;
    assert_eq!(
        calls.take()[1..],
        [
            "result GET cluster:6443 410",
            "end watch /api/v1/pods 410 completed after 1 and 0ms, 4 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_followed_log_is_a_stream_and_another_is_a_request() {
    let calls = Recorder::default();
    for (uri, hint, first) in [
        (format!("{LOG}?follow=true"), None, "opened log of pods"),
        (LOG.to_owned(), Some("log_stream"), "opened log of pods"),
        (
            format!("{LOG}?follow=false"),
            Some("logs"),
            "response_size GET cluster:6443 8",
        ),
    ] {
        let service = measured(&calls, async |_| {
            Ok(respond(200, Script::text("one\ntwo\n")))
        });
        let mut request = request("GET", &uri);
        if let Some(hint) = hint {
            // As kube marks it.
            request.extensions_mut().insert::<&'static str>(hint);
        }
        exchange(service, request).await;
        assert_eq!(calls.take()[2], first, "{uri} {hint:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_passes_untouched() {
    #[derive(Clone, Debug, PartialEq)]
    struct Connection(u32);

    let calls = Recorder::default();
    let service = measured(&calls, async |_| {
        let mut response = respond(101, Script::empty());
        response.extensions_mut().insert(Connection(7));
        response
            .headers_mut()
            .insert(UPGRADE, "websocket".parse().unwrap());
        Ok::<_, Broken>(response)
    });
    let mut request = request(
        "GET",
        "/api/v1/namespaces/space/pods/object/exec?command=sh",
    );
    request
        .headers_mut()
        .insert(UPGRADE, "websocket".parse().unwrap());
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&Connection(7)));
    assert_eq!(response.headers()[UPGRADE], "websocket");
    drop(response);
    assert_eq!(
        calls.take(),
        [
            "request_size GET cluster:6443 0",
            "result GET cluster:6443 101",
            "opened upgrade of pods",
        ]
    );
}

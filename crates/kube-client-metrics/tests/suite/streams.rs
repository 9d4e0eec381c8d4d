//! Watches, followed logs and upgrades.

use std::time::Duration;

use http::header::UPGRADE;
use tower::{Service, ServiceExt};

use crate::bed::{Broken, Script, Step, Told, answer, exchange, frame, measured, request};

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
async fn a_watch_is_no_request_but_a_stream_with_events() {
    let told = Told::default();
    let service = measured(&told, async |_| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(answer(200, events(&[])))
    });
    exchange(service, request("GET", WATCH)).await;
    assert_eq!(
        told.take(),
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
async fn a_watch_says_who_ended_it() {
    let told = Told::default();
    let service = measured(&told, async |_| Ok(answer(200, events(&[Step::Break]))));
    exchange(service, request("GET", WATCH)).await;
    let last = told.take().pop().unwrap();
    assert!(last.starts_with("watch ended by error after"), "{last}");

    let mut service = measured(&told, async |_| Ok(answer(200, events(&[Step::Hang]))));
    let response = service.call(request("GET", WATCH)).await.unwrap();
    let mut body = response.into_body();
    frame(&mut body).await.unwrap().unwrap();
    drop(body);
    let last = told.take().pop().unwrap();
    assert_eq!(last, "watch ended by client after 0ms, 1 events, 25 bytes");
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_an_ended_request_that_is_not_timed_with_the_others() {
    let told = Told::default();
    let service = measured(&told, async |_| Ok(answer(410, Script::text("gone"))));
    exchange(service, request("GET", WATCH)).await;
    assert_eq!(
        told.take()[1..],
        [
            "result GET cluster:6443 410",
            "end watch /api/v1/pods 410 completed after 1 and 0ms, 4 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_followed_log_is_a_stream_and_a_read_one_is_a_request() {
    let told = Told::default();
    for (uri, hint, first) in [
        (format!("{LOG}?follow=true"), None, "opened log of pods"),
        (LOG.to_owned(), Some("log_stream"), "opened log of pods"),
        (
            format!("{LOG}?follow=false"),
            Some("logs"),
            "response_size GET cluster:6443 8",
        ),
    ] {
        let service = measured(&told, async |_| Ok(answer(200, Script::text("one\ntwo\n"))));
        let mut request = request("GET", &uri);
        if let Some(hint) = hint {
            // As kube notes it.
            request.extensions_mut().insert::<&'static str>(hint);
        }
        exchange(service, request).await;
        assert_eq!(told.take()[2], first, "{uri} {hint:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_passes_untouched() {
    #[derive(Clone, Debug, PartialEq)]
    struct Connection(u32);

    let told = Told::default();
    let service = measured(&told, async |_| {
        let mut response = answer(101, Script::empty());
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
        told.take(),
        [
            "request_size GET cluster:6443 0",
            "result GET cluster:6443 101",
            "opened upgrade of pods",
        ]
    );
}

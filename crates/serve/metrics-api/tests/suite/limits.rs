//! Limits on what clients can use.

use kubevitals_apiserver::{Body, StatusError};
use kubevitals_metrics_api::Limits;
use kubevitals_usage::PodUsage;

use crate::support::*;

fn publish_all(api: &Harness, round: u64) {
    for node in 0..10 {
        let pods: Vec<PodUsage> = (0..20)
            .map(|n| {
                pod(
                    "a",
                    &format!("pod-{node}-{n:02}"),
                    labels(&[("app", "web")]),
                    vec![container("c", usage(round, round, 5, 15_000))],
                )
            })
            .collect();
        publish(
            api,
            &format!("node-{node}"),
            Some(usage(round, round, 5, 15_000)),
            &pods,
        );
    }
}

fn small() -> Limits {
    Limits {
        chunk_bytes: 4 << 10,
        max_outdated_bytes: 100_000,
        max_watches: 2,
        ..Limits::default()
    }
}

fn gauge(api: &Harness, name: &str) -> u64 {
    let text = crate::metrics::exposition(api);
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_list_is_encoded_in_chunks_on_demand() {
    let api = Harness::with_limits(small());
    publish_all(&api, 1);
    for representation in [JSON, PROTOBUF] {
        let mut body = all(representation).open(&api, "pods").unwrap();
        let mut sizes = Vec::new();
        while let Some(chunk) = chunk(&mut body) {
            sizes.push(chunk.len());
        }
        assert!(sizes.len() > 3, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size < 6 << 10), "{sizes:?}");
    }
}

/// Readers that stopped reading used to hold outdated usage until everybody else got status 429.
#[test]
fn the_oldest_unfinished_responses_are_aborted_and_nobody_is_refused() {
    let api = Harness::with_limits(small());
    publish_all(&api, 1);
    let generation = gauge(&api, "kubevitals_metrics_api_current_bytes");
    let mut readers: Vec<(Body, Vec<u8>, Vec<u8>)> = Vec::new();
    for round in 2..40 {
        let whole = all(PROTOBUF).list(&api, "pods");
        let mut body = all(PROTOBUF).open(&api, "pods").unwrap();
        let first = chunk(&mut body).unwrap().to_vec();
        readers.push((body, first, whole));
        publish_all(&api, round);
        let outdated = gauge(&api, "kubevitals_metrics_api_outdated_bytes");
        assert!(
            outdated <= 100_000 + generation + generation / 10,
            "{outdated}"
        );
    }
    let aborted = gauge(&api, "kubevitals_metrics_api_aborted_responses_total");
    assert!(aborted > 10, "{aborted}");
    let (mut oldest, ..) = readers.remove(0);
    let error = chunk_or_error(&mut oldest).unwrap().unwrap_err();
    assert!(error.to_string().contains("read too slowly"), "{error}");
    let (newest, mut bytes, whole) = readers.pop().unwrap();
    bytes.extend(read(newest));
    assert_eq!(
        bytes, whole,
        "a list is consistent however slowly it is read"
    );
    drop(readers);
    assert_eq!(gauge(&api, "kubevitals_metrics_api_outdated_bytes"), 0);
}

/// A list of one pod used to hold all nodes until its last byte was read.
#[test]
fn a_response_that_is_encoded_completely_holds_nothing() {
    let api = Harness::with_limits(small());
    publish_all(&api, 1);
    let small = all(JSON).labelled("app=none").open(&api, "pods").unwrap();
    assert!(http_body::Body::size_hint(&small).exact().is_some());
    let mut large = all(JSON).open(&api, "pods").unwrap();
    let mut chunks = 0;
    // Until the last chunk is encoded, but the end of the body is not yet read.
    while gauge(&api, "kubevitals_metrics_api_outdated_bytes") > 0 || chunks == 0 {
        publish_all(&api, 2 + chunks);
        assert!(chunk(&mut large).is_some());
        chunks += 1;
    }
    publish_all(&api, 100);
    assert_eq!(gauge(&api, "kubevitals_metrics_api_outdated_bytes"), 0);
    assert!(chunks > 3);
    drop(small);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_watch_ends_with_an_error() {
    let api = Harness::with_limits(small());
    publish_all(&api, 1);
    let mut watch = all(JSON).watch(&api, "pods", "", None).unwrap();
    assert!(next(&mut watch).await.is_some());
    let mut held = Vec::new();
    for round in 2..40 {
        let mut body = all(PROTOBUF).open(&api, "pods").unwrap();
        assert!(chunk(&mut body).is_some());
        publish_all(&api, round);
        held.push(body);
    }
    let error = chunk_or_error(&mut watch).unwrap().unwrap_err();
    assert!(error.to_string().contains("read too slowly"), "{error}");
    assert!(chunk(&mut watch).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_number_of_open_watches_is_limited() {
    let api = Harness::with_limits(small());
    let watch = || all(JSON).watch(&api, "pods", "", None);
    let (first, _second) = (watch().unwrap(), watch().unwrap());
    assert!(matches!(watch(), Err(StatusError::TooManyRequests { .. })));
    drop(first);
    assert!(watch().is_ok());
}

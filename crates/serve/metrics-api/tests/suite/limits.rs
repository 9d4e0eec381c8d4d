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

#[test]
fn slow_clients_get_a_consistent_list_and_hold_no_more_than_the_limit() {
    let api = Harness::with_limits(small());
    publish_all(&api, 1);
    let generation = gauge(&api, "kubevitals_metrics_api_current_bytes");
    let whole = all(PROTOBUF).list(&api, "pods");
    let mut readers: Vec<(Body, Vec<u8>)> = Vec::new();
    let mut rejected = 0;
    for round in 2..40 {
        match all(PROTOBUF).open(&api, "pods") {
            Ok(mut body) => {
                let first = chunk(&mut body).unwrap().to_vec();
                readers.push((body, first));
            }
            Err(StatusError::TooManyRequests {
                retry_after_seconds,
                ..
            }) => {
                assert!(retry_after_seconds > 0);
                rejected += 1;
            }
            Err(other) => panic!("{other}"),
        }
        publish_all(&api, round);
        let outdated = gauge(&api, "kubevitals_metrics_api_outdated_bytes");
        assert!(
            outdated <= 100_000 + generation + generation / 10,
            "{outdated}"
        );
    }
    assert!(
        readers.len() > 1 && rejected > 10,
        "{} {rejected}",
        readers.len()
    );
    let (body, mut first) = readers.remove(0);
    first.extend(read(body));
    assert_eq!(first, whole);
    drop(readers);
    assert_eq!(gauge(&api, "kubevitals_metrics_api_outdated_bytes"), 0);
    assert!(all(PROTOBUF).open(&api, "pods").is_ok());
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

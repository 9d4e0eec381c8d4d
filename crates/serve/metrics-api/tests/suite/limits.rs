//! What readers can take, and no more.

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
        piece_bytes: 4 << 10,
        outdated_bytes: 100_000,
        watches: 2,
        ..Limits::default()
    }
}

fn gauge(api: &Harness, name: &str) -> u64 {
    let text = crate::metrics::exposition(api);
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_list_is_made_in_pieces_as_they_are_asked_for() {
    let api = Harness::with_limits(small());
    publish_all(&api, 1);
    for form in [JSON, PROTOBUF] {
        let mut body = all(form).open(&api, "pods").unwrap();
        let mut sizes = Vec::new();
        while let Some(piece) = piece(&mut body) {
            sizes.push(piece.len());
        }
        assert!(sizes.len() > 3, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size < 6 << 10), "{sizes:?}");
    }
}

#[test]
fn slow_readers_get_what_they_asked_for_and_cannot_hold_more_than_the_limit() {
    let api = Harness::with_limits(small());
    publish_all(&api, 1);
    let generation = gauge(&api, "kubevitals_metrics_api_current_bytes");
    let whole = all(PROTOBUF).list(&api, "pods");
    let mut readers: Vec<(Body, Vec<u8>)> = Vec::new();
    let mut turned_away = 0;
    for round in 2..40 {
        match all(PROTOBUF).open(&api, "pods") {
            Ok(mut body) => {
                let first = piece(&mut body).unwrap().to_vec();
                readers.push((body, first));
            }
            Err(StatusError::TooManyRequests {
                retry_after_seconds,
                ..
            }) => {
                assert!(retry_after_seconds > 0);
                turned_away += 1;
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
        readers.len() > 1 && turned_away > 10,
        "{} {turned_away}",
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
async fn there_are_only_so_many_watches() {
    let api = Harness::with_limits(small());
    let watch = || all(JSON).watch(&api, "pods", "", None);
    let (first, _second) = (watch().unwrap(), watch().unwrap());
    assert!(matches!(watch(), Err(StatusError::TooManyRequests { .. })));
    drop(first);
    assert!(watch().is_ok());
}

//! Requests while nodes are published: every response is consistent.

use std::sync::atomic::{AtomicBool, Ordering};

use kubevitals_model::NodeName;
use kubevitals_usage::{PodUsage, UsagePublisher as _};

use crate::support::*;

/// All pods of a publication have the same usage, so that a mixture of two would be visible.
fn round(node: usize, round: u64) -> Vec<PodUsage> {
    let of = |n: u64| {
        let containers =
            (0..2).map(|c| container(&format!("c{c}"), usage(round, round, 5, 15_000)));
        let set = labels(&[("app", if n.is_multiple_of(2) { "web" } else { "db" })]);
        pod("a", &format!("pod-{node}-{n}"), set, containers.collect())
    };
    // The number of pods changes.
    (0..10 + round % 5).map(of).collect()
}

#[test]
fn responses_are_consistent_while_nodes_are_published() {
    let api = Harness::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for node in 0..2 {
            let (api, stop) = (&api, &stop);
            scope.spawn(move || {
                for n in 1..=400 {
                    publish(
                        api,
                        &format!("node-{node}"),
                        Some(usage(n, n, 5, 1)),
                        &round(node, n),
                    );
                    if n % 50 == 0 {
                        api.publisher
                            .withdraw(&NodeName::new(format!("node-{node}")));
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        for reader in 0..2 {
            let (api, stop) = (&api, &stop);
            scope.spawn(move || {
                let mut version = String::new();
                while !stop.load(Ordering::Relaxed) {
                    let selector = if reader == 0 { "" } else { "app=web" };
                    let body = all(PROTOBUF).labelled(selector).list(api, "pods");
                    let (kind, list) = open_envelope(&body);
                    assert_eq!(kind, "PodMetricsList");
                    let newer = text_of(&decode(&bytes_of(&list, 1)[0]), 2);
                    assert!(newer >= version, "{newer} after {version}");
                    version = newer;
                    let items = item_texts(&body);
                    assert!(items.is_sorted());
                    for node in 0..2 {
                        let of_node = items
                            .iter()
                            .filter(|item| item.contains(&format!("pod-{node}-")));
                        let used: Vec<&str> = of_node
                            .map(|item| {
                                item.split("cpu:")
                                    .nth(1)
                                    .unwrap()
                                    .split(' ')
                                    .next()
                                    .unwrap()
                            })
                            .collect();
                        assert!(used.windows(2).all(|pair| pair[0] == pair[1]), "{used:?}");
                        // At least ten pods, five of which match the selector, or none.
                        assert!(used.is_empty() || used.len() >= if reader == 0 { 10 } else { 5 });
                    }
                    let text = all(JSON).labelled(selector).list(api, "pods");
                    serde_json::from_slice::<serde_json::Value>(&text).unwrap();
                }
            });
        }
    });
}

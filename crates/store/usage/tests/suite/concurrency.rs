//! Concurrent calls: nodes are independent, and publications of one node are in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use kubevitals_model::{Labels, NodeName, PodKeyRef};
use kubevitals_usage::{NodeUsage, UsageConfig, UsagePublisher, UsageStore};

use crate::harness::{CORE_SECOND, batch, moment, pod, row_of, uid};

const NODES: usize = 24;
const THREADS: usize = 4;
const ROUNDS: i64 = 40;

/// Asserts that publications of one node neither overlap nor overtake each other.
#[derive(Default)]
struct Strict {
    nodes: [NodeLog; NODES],
}

#[derive(Default)]
struct NodeLog {
    is_busy: AtomicBool,
    last: AtomicI64,
    pods: AtomicU32,
}

impl UsagePublisher for Strict {
    fn publish(&self, usage: &NodeUsage<'_>) {
        let node = &self.nodes[number(usage.node)];
        assert!(!node.is_busy.swap(true, Ordering::SeqCst), "two at once");
        let times = usage.pods.iter().flat_map(|pod| &pod.containers);
        let newest = times.map(|own| own.usage.timestamp.unix_millis()).max();
        if let Some(newest) = newest {
            let before = node.last.swap(newest, Ordering::SeqCst);
            assert!(before <= newest, "an earlier state was published later");
        }
        let pods = u32::try_from(usage.pods.len()).unwrap();
        node.pods.store(pods, Ordering::SeqCst);
        thread::yield_now();
        node.is_busy.store(false, Ordering::SeqCst);
    }

    fn withdraw(&self, node: &NodeName) {
        panic!("{node} was never deleted");
    }
}

fn number(node: &NodeName) -> usize {
    node.as_str().trim_start_matches('n').parse().unwrap()
}

#[test]
fn publications_of_a_node_are_in_order_under_concurrency() {
    let strict = Arc::new(Strict::default());
    let mut store = UsageStore::new(UsageConfig::new(Duration::from_secs(15)));
    store.add_publisher(Arc::<Strict>::clone(&strict));
    for node in 0..NODES {
        let name = NodeName::new(format!("n{node}"));
        store.node_applied(&name, &Labels::default(), &uid(name.as_str()));
        store.pod_applied(&Arc::new(pod(
            name.as_str(),
            &format!("default/stays-{node}"),
        )));
    }
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for node in (0..NODES).filter(|node| node % THREADS == thread) {
                        let total = round.unsigned_abs() * CORE_SECOND;
                        let rows = ["stays", "comes"].map(|pod| {
                            let pod = format!("default/{pod}-{node}");
                            row_of(&pod, "app", round * 15_000, total)
                        });
                        let now = moment(round * 15_000 + 500);
                        store.ingest(
                            &format!("n{node}"),
                            &uid(&format!("n{node}")),
                            &batch(&rows),
                            now,
                        );
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0..ROUNDS {
                for node in 0..NODES {
                    let comes =
                        Arc::new(pod(&format!("n{node}"), &format!("default/comes-{node}")));
                    store.pod_applied(&comes);
                    store.flush(moment(round * 15_000));
                    if (round + 1) < ROUNDS {
                        store.pod_deleted(&*comes);
                    }
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                for node in 0..NODES {
                    let name = format!("stays-{node}");
                    let pod = PodKeyRef {
                        namespace: "default",
                        name: &name,
                    };
                    store.explain_pod(pod, moment(0));
                }
                store.readiness(moment(0));
                store.expire(moment(0));
            }
        });
    });
    // Threads end in any order: one more scrape each makes the result deterministic.
    for node in 0..NODES {
        for round in [ROUNDS, ROUNDS + 1] {
            let total = round.unsigned_abs() * CORE_SECOND;
            let rows = ["stays", "comes"].map(|pod| {
                row_of(
                    &format!("default/{pod}-{node}"),
                    "app",
                    round * 15_000,
                    total,
                )
            });
            let now = moment(round * 15_000 + 500);
            store.ingest(
                &format!("n{node}"),
                &uid(&format!("n{node}")),
                &batch(&rows),
                now,
            );
        }
        assert_eq!(strict.nodes[node].pods.load(Ordering::SeqCst), 2);
    }
    let readiness = store.readiness(moment((ROUNDS + 1) * 15_000));
    let counts = readiness.counts;
    assert_eq!((counts.nodes, counts.pods_served), (NODES, 2 * NODES));
    assert_eq!(counts.running_pods, 2 * NODES);
}

//! Readiness, and the reasons why nodes have no usage.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread;
use std::time::Duration;

use kubevitals_model::{AsPodSummary, Labels, NodeName, PodSummary};
use kubevitals_usage::{NodeUsage, Phase, Readiness, UsageConfig, UsagePublisher, UsageStore};

use crate::harness::{CORE_SECOND, Harness, batch, moment, of_node, pod, row, uid};

fn both(millis: i64, total: u64) -> kubevitals_model::NodeBatch {
    let mut all = batch(&[row("app", millis, total * CORE_SECOND)]);
    all.node = of_node(millis, total * CORE_SECOND).node;
    all
}

impl Harness {
    /// Reports that nodes and pods are listed.
    fn listed(self, pods: &[Arc<PodSummary>]) -> Self {
        self.store.retain_nodes(["n1"], moment(0));
        self.store.pods_replaced(pods, moment(0));
        self
    }

    fn listed_with_pod() -> Self {
        Self::with_pod().listed(&[Arc::new(pod("n1", "default/web-0"))])
    }

    /// Returns the readiness, with the reasons of now.
    fn readiness(&self, now: i64) -> Readiness {
        self.store.expire(moment(now));
        self.store.readiness(moment(now))
    }

    fn ingest(&self, node: &str, now: i64, batch: &kubevitals_model::NodeBatch) {
        self.store.ingest(node, &uid(node), batch, moment(now));
    }

    /// Two samples, so that the node has usage.
    fn serve(&self, node: &str) {
        for (now, total) in [(0, 10), (15_000, 25)] {
            self.ingest(node, now + 1_000, &of_node(now, total * CORE_SECOND));
        }
    }
}

#[test]
fn a_store_is_not_ready_before_the_lists() {
    let harness = Harness::with_pod();
    let readiness = harness.readiness(0);
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(
        readiness,
        @"waiting for the lists of nodes and pods: 0 of 1 nodes and 0 of 1 running pods have metrics; 1 × not scraped yet (n1)"
    );
    harness.serve("n1");
    harness.store.retain_nodes(["n1"], moment(16_000));
    assert_eq!(harness.readiness(90_000).phase, Phase::Listing);
}

#[test]
fn an_empty_store_is_not_ready() {
    let harness = Harness::listed_with_pod();
    let readiness = harness.readiness(0);
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(
        readiness,
        @"waiting for first scrapes: 0 of 1 nodes done, ready at 99 % or in 30 s: 0 of 1 nodes and 0 of 1 running pods have metrics; 1 × not scraped yet (n1)"
    );
}

#[test]
fn one_sample_is_not_ready_and_two_are() {
    let harness = Harness::listed_with_pod();
    harness.ingest("n1", 1_000, &both(0, 10));
    let readiness = harness.readiness(2_000);
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(
        readiness,
        @"waiting for first scrapes: 0 of 1 nodes done, ready at 99 % or in 28 s: 0 of 1 nodes and 0 of 1 running pods have metrics; 1 × only one sample so far (n1)"
    );
    harness.ingest("n1", 16_000, &both(15_000, 25));
    let readiness = harness.readiness(17_000);
    assert!(readiness.is_ready());
    insta::assert_snapshot!(readiness, @"1 of 1 nodes and 1 of 1 running pods have metrics");
    let readiness = harness.readiness(90_000);
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(readiness, @"no metrics to serve: 0 of 1 nodes and 0 of 1 running pods have metrics; 1 × last usage is stale (n1)");
}

#[test]
fn a_cluster_without_running_pods_is_ready() {
    let harness = Harness::new().listed(&[]);
    harness.serve("n1");
    assert!(harness.readiness(17_000).is_ready());
    harness.pod("n1", "default/web-0");
    assert!(!harness.readiness(17_000).is_ready());
}

#[test]
fn a_cluster_without_nodes_is_not_ready_unless_all_are_excluded() {
    let harness = Harness::new().listed(&[]);
    harness.store.node_deleted("n1", &uid("n1"), moment(0));
    for now in [1_000, 60_000] {
        let readiness = harness.readiness(now);
        assert!(!readiness.is_ready());
        insta::allow_duplicates! {
            insta::assert_snapshot!(readiness, @"no metrics to serve: 0 of 0 nodes and 0 of 0 running pods have metrics");
        }
    }
    let reason = "it has the taint virtual-kubelet.io/provider".into();
    let name = NodeName::new("n1");
    harness
        .store
        .node_excluded(&name, &uid("n1"), &reason, moment(60_000));
    let readiness = harness.readiness(60_000);
    assert!(readiness.is_ready());
    insta::assert_snapshot!(readiness, @"0 of 0 nodes and 0 of 0 running pods have metrics, 1 nodes are excluded");
    // A node that comes later begins the warm-up that there has not been.
    harness.node("n2");
    assert!(!harness.readiness(60_000).is_ready());
}

/// A store was once ready with its first pod: in a large cluster, during a rollout, clients saw
/// half of the nodes for seconds.
#[test]
fn a_new_store_is_ready_when_99_percent_of_the_nodes_are_scraped_or_failed() {
    let harness = Harness::new().listed(&[]);
    for node in 2..=200 {
        harness.node(&format!("n{node}"));
    }
    for node in 1..=196 {
        harness.serve(&format!("n{node}"));
    }
    harness.store.scrape_failed(
        "n197",
        &uid("n197"),
        "timed out".into(),
        None,
        moment(16_000),
    );
    let readiness = harness.readiness(17_000);
    assert!(!readiness.is_ready());
    insta::assert_snapshot!(
        readiness,
        @"waiting for first scrapes: 197 of 200 nodes done, ready at 99 % or in 13 s: 196 of 200 nodes and 0 of 0 running pods have metrics; 3 × not scraped yet (n198), 1 × timed out (n197)"
    );
    harness.store.scrape_failed(
        "n198",
        &uid("n198"),
        "timed out".into(),
        None,
        moment(17_000),
    );
    assert!(harness.readiness(17_000).is_ready());
    // It stays ready when the cluster doubles at once.
    for node in 201..=400 {
        harness.node(&format!("n{node}"));
    }
    assert!(harness.readiness(18_000).is_ready());
}

#[test]
fn a_new_store_waits_for_nodes_for_30_seconds_after_the_list_of_pods() {
    let harness = Harness::new().listed(&[]);
    harness.node("n2");
    harness.serve("n1");
    assert!(!harness.readiness(29_999).is_ready());
    assert!(harness.readiness(30_000).is_ready());
    harness.ingest("n1", 31_000, &of_node(30_000, 40 * CORE_SECOND));
    assert!(harness.readiness(31_000).is_ready());
}

/// A node that was first scraped just before its slot is scraped at the next one.
#[test]
fn a_resolution_after_the_warm_up_all_nodes_have_been_scraped_at_their_slots() {
    let harness = Harness::new().listed(&[]);
    let left = |now| harness.readiness(now).until_slots;
    assert_eq!(left(4_000), Duration::from_secs(17));
    harness.serve("n1");
    assert_eq!(left(5_000), Duration::from_secs(17));
    assert_eq!(left(10_000), Duration::from_secs(12));
    assert_eq!(left(21_999), Duration::from_millis(1));
    assert_eq!(left(22_000), Duration::ZERO);
}

/// The wait for the slots used to come after a warm-up of up to 30 seconds.
#[test]
fn the_slots_are_waited_for_until_30_seconds_after_the_list_of_pods() {
    let harness = Harness::new().listed(&[]);
    harness.node("n2");
    harness.serve("n1");
    // One node is never scraped: the warm-up lasts for 30 s.
    for now in (0..30_000).step_by(500) {
        assert!(!harness.readiness(now).is_ready(), "{now}");
    }
    let readiness = harness.readiness(30_000);
    assert!(readiness.is_ready());
    assert_eq!(readiness.until_slots, Duration::ZERO);

    // All settle after 20 s.
    let harness = Harness::new().listed(&[]);
    assert_eq!(harness.readiness(19_999).phase, warming_up(10_001));
    harness.serve("n1");
    let left = |now| harness.readiness(now).until_slots;
    assert_eq!(left(20_000), Duration::from_secs(10));
    assert_eq!(left(29_999), Duration::from_millis(1));
    assert_eq!(left(30_000), Duration::ZERO);
}

/// A shorter wait would serve newer samples than other replicas for the rest of the resolution.
#[test]
fn a_long_resolution_is_waited_for_from_the_list_of_pods_on() {
    let harness = Harness::with_resolution(Duration::from_mins(1)).listed(&[]);
    harness.serve("n1");
    let left = |now| harness.readiness(now).until_slots;
    assert_eq!(left(25_000), Duration::from_secs(37));
    assert_eq!(left(61_999), Duration::from_millis(1));
    assert_eq!(left(62_000), Duration::ZERO);
}

fn warming_up(millis: u64) -> Phase {
    let ends_in = Duration::from_millis(millis);
    Phase::WarmingUp { ends_in }
}

#[test]
fn a_new_store_is_not_ready_if_all_nodes_fail() {
    let harness = Harness::listed_with_pod();
    harness.fail(1_000, "timed out");
    for now in [2_000, 60_000] {
        let readiness = harness.readiness(now);
        assert!(!readiness.is_ready());
        assert_eq!(readiness.phase, Phase::Warm, "nothing is waited for");
        insta::allow_duplicates! {
            insta::assert_snapshot!(readiness, @"no metrics to serve: 0 of 1 nodes and 0 of 1 running pods have metrics; 1 × timed out (n1)");
        }
    }
}

#[test]
fn the_most_frequent_reasons_are_named() {
    let harness = Harness::new().listed(&[]);
    for number in 0..9 {
        let name = format!("x{number}");
        harness.node(&name);
        let reason = match number {
            0..4 => "403 Forbidden: the service account may not get nodes/metrics",
            4..7 => "timed out after 10 s",
            7 => "connection refused",
            _ => "no such host",
        };
        harness
            .store
            .scrape_failed(&name, &uid(&name), reason.into(), None, moment(1_000));
    }
    insta::assert_snapshot!(
        harness.readiness(30_000),
        @"no metrics to serve: 0 of 10 nodes and 0 of 0 running pods have metrics; 4 × 403 Forbidden: the service account may not get nodes/metrics (x0), 3 × timed out after 10 s (x4), 1 × not scraped yet (n1)"
    );
}

/// A pod that counts how often it is looked at.
struct CountedPod(PodSummary, Arc<AtomicUsize>);

impl AsPodSummary for CountedPod {
    fn summary(&self) -> &PodSummary {
        self.1.fetch_add(1, Ordering::Relaxed);
        &self.0
    }
}

/// Checks readiness while it holds the lock of a node.
#[derive(Default)]
struct Checking {
    store: OnceLock<Weak<UsageStore>>,
    checked: AtomicUsize,
}

impl UsagePublisher for Checking {
    fn publish(&self, _: &NodeUsage<'_>) {
        if let Some(store) = self.store.get().and_then(Weak::upgrade) {
            store.readiness(moment(0));
            self.checked.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn withdraw(&self, _: &NodeName) {}
}

/// A check once locked every node and looked at every pod, which anonymous clients could request at
/// any rate.
#[test]
fn readiness_locks_no_node_and_looks_at_no_pod() {
    let looks = Arc::new(AtomicUsize::new(0));
    let checking = Arc::new(Checking::default());
    let mut store = UsageStore::new(UsageConfig::new(Duration::from_secs(15)));
    store.add_publisher(Arc::<Checking>::clone(&checking));
    let store = Arc::new(store);
    for node in 0..1_000 {
        let name = NodeName::new(format!("n{node}"));
        store.node_applied(&name, &Labels::default(), &uid(name.as_str()));
        let pod = pod(name.as_str(), &format!("default/web-{node}"));
        store.pod_applied(&Arc::new(CountedPod(pod, Arc::clone(&looks))));
    }
    let before = looks.load(Ordering::Relaxed);
    let counts = store.readiness(moment(0)).counts;
    assert_eq!((counts.nodes, counts.running_pods), (1_000, 1_000));
    assert_eq!(looks.load(Ordering::Relaxed), before);

    // Under the lock of a node, a check that locked it too would never return.
    assert!(checking.store.set(Arc::downgrade(&store)).is_ok());
    let (done, is_done) = mpsc::channel();
    let flushing = Arc::clone(&store);
    thread::spawn(move || {
        flushing.flush(moment(0));
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_mins(1)).unwrap();
    assert_eq!(checking.checked.load(Ordering::Relaxed), 1_000);
}

//! The binding of pods to nodes: the API decides, whatever kubelets report.

use std::sync::Arc;

use kubevitals_model::{Labels, NodeBatch, PodPhase, PodSummary};
use kubevitals_usage::Ingested;

use crate::harness::{CORE_SECOND, Harness, at, batch, moment, pod, row, row_of, uid};

fn two_samples(harness: &Harness) {
    harness.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    harness.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
}

fn apply(harness: &Harness, pod: PodSummary) {
    harness.store.pod_applied(&Arc::new(pod));
    harness.store.flush(moment(17_000));
}

#[test]
fn a_pod_that_is_bound_to_another_node_is_dropped_and_counted() {
    let harness = Harness::new();
    harness.node("n2");
    harness.pod("n2", "default/web-0");
    let done = harness.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    assert_eq!((done.foreign, done.held, done.new), (1, 0, 0));
    harness.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
    assert_eq!(harness.pods(), [""; 0]);
    // Its own node may report it.
    for (now, total) in [(0, 10), (15_000, 25)] {
        let batch = batch(&[row("app", now, total * CORE_SECOND)]);
        harness
            .store
            .ingest("n2", &uid("n2"), &batch, moment(now + 1));
    }
    assert_eq!(harness.recorder.node("n2").unwrap().pods.len(), 1);
}

#[test]
fn a_container_by_pod_uid_counts_for_the_pod_on_this_node_alone() {
    let harness = Harness::with_pod();
    harness.node("n2");
    harness.pod("n2", "default/web-1");
    let mut last = Ingested::default();
    for (now, total) in [(0, 10), (15_000, 25)] {
        let mut batch = NodeBatch::default();
        for pod in ["default/web-0", "default/web-1", "never-reported"] {
            let sample = row("app", now, total * CORE_SECOND).sample;
            batch.push_by_uid(&uid(pod), "app", sample).unwrap();
        }
        last = harness
            .store
            .ingest("n1", &uid("n1"), &batch, moment(now + 1_000));
    }
    assert_eq!((last.new, last.unknown, last.held), (1, 2, 0));
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    assert_eq!(harness.pods(), ["default/web-0"]);
}

#[test]
fn samples_held_for_a_pod_count_once_the_api_reports_it() {
    let harness = Harness::new();
    let publications = harness.recorder.publications();
    let done = harness.scrape(1_000, &[row("app", 0, 10 * CORE_SECOND)]);
    assert_eq!((done.held, done.new_sample), (1, true));
    let done = harness.scrape(2_000, &[row("app", 0, 10 * CORE_SECOND)]);
    assert_eq!((done.held, done.new_sample), (1, false));
    harness.scrape(16_000, &[row("app", 15_000, 25 * CORE_SECOND)]);
    assert_eq!(harness.recorder.publications(), publications);
    assert_eq!(harness.pods(), [""; 0], "it is not known");
    apply(&harness, pod("n1", "default/web-0"));
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
}

#[test]
fn samples_of_pods_that_the_api_never_reports_are_dropped() {
    let harness = Harness::new();
    two_samples(&harness);
    harness.store.expire(moment(61_100));
    apply(&harness, pod("n1", "default/web-0"));
    assert_eq!(harness.pods(), [""; 0]);
}

#[test]
fn the_number_of_held_containers_is_limited() {
    let harness = Harness::with_pod();
    let unknown = (0..600).map(|n| row_of(&format!("default/x-{n}"), "app", 0, CORE_SECOND));
    let mut rows: Vec<_> = unknown.collect();
    rows.push(row("app", 0, CORE_SECOND));
    for _ in 0..2 {
        let done = harness.scrape(1_000, &rows);
        assert_eq!((done.held, done.overflowed), (512, 88));
        assert_eq!(done.new + done.repeated, 1);
    }
}

#[test]
fn the_number_of_containers_of_a_pod_is_limited() {
    let harness = Harness::with_pod();
    let rows: Vec<_> = (0..600).map(|n| row(&format!("c-{n}"), 0, 1)).collect();
    let done = harness.scrape(1_000, &rows);
    assert_eq!((done.new, done.overflowed), (512, 88));
}

#[test]
fn only_running_pods_are_served() {
    let harness = Harness::new();
    let mut pending = pod("n1", "default/web-0");
    pending.phase = PodPhase::Pending;
    apply(&harness, pending);
    two_samples(&harness);
    assert_eq!(harness.pods(), [""; 0]);
    apply(&harness, pod("n1", "default/web-0"));
    two_samples(&harness);
    assert_eq!(harness.served("app"), Some((1_000, 15_000, 15_000)));
    let mut done = pod("n1", "default/web-0");
    done.phase = PodPhase::Succeeded;
    apply(&harness, done);
    assert_eq!(harness.pods(), [""; 0]);
    let done = harness.scrape(31_000, &[row("app", 30_000, 30 * CORE_SECOND)]);
    assert_eq!((done.foreign, done.held), (1, 0));
}

#[test]
fn a_deleted_pod_is_withdrawn_at_the_next_flush() {
    let harness = Harness::with_pod();
    two_samples(&harness);
    harness.store.pod_deleted(&pod("n1", "default/web-0"));
    harness.store.flush(moment(17_000));
    assert_eq!(harness.pods(), [""; 0]);
}

#[test]
fn a_recreated_pod_does_not_inherit_samples() {
    let harness = Harness::with_pod();
    two_samples(&harness);
    let mut again = pod("n1", "default/web-0");
    again.identity.uid = uid("another");
    apply(&harness, again);
    assert_eq!(harness.pods(), [""; 0]);
    // A late deletion of its predecessor does not affect it.
    harness.scrape(31_000, &[row("app", 30_000, 10 * CORE_SECOND)]);
    harness.scrape(46_000, &[row("app", 45_000, 13 * CORE_SECOND)]);
    harness.store.pod_deleted(&pod("n1", "default/web-0"));
    harness.store.flush(moment(46_000));
    assert_eq!(harness.served("app"), Some((200, 15_000, 45_000)));
}

#[test]
fn a_pod_recreated_on_another_node_leaves_its_old_node() {
    let harness = Harness::with_pod();
    harness.node("n2");
    two_samples(&harness);
    let mut again = pod("n2", "default/web-0");
    again.identity.uid = uid("another");
    apply(&harness, again);
    assert_eq!(harness.pods(), [""; 0]);
}

#[test]
fn a_burst_of_changes_publishes_a_node_once() {
    let harness = Harness::with_pod();
    two_samples(&harness);
    let before = harness.recorder.publications();
    let mut labels = Labels::default();
    for value in ["a", "b", "c"] {
        labels = Labels::from_sorted([("app".into(), value.into())].into());
        let mut changed = pod("n1", "default/web-0");
        changed.labels = labels.clone();
        harness.store.pod_applied(&Arc::new(changed));
    }
    harness.store.flush(moment(17_000));
    harness.store.flush(moment(17_000));
    assert_eq!(harness.recorder.publications(), before + 1);
    let seen = harness.recorder.node("n1").unwrap();
    assert_eq!(seen.pods.first().unwrap().labels, labels);
    assert_eq!(seen.published, at(17_000));
}

#[test]
fn a_resync_removes_missing_pods_and_keeps_the_samples_of_others() {
    let harness = Harness::with_pod();
    harness.pod("n1", "default/web-1");
    for (now, total) in [(0, 10), (15_000, 25)] {
        let total = total * CORE_SECOND;
        let both = ["default/web-0", "default/web-1"];
        harness.scrape(now + 1, &both.map(|pod| row_of(pod, "app", now, total)));
    }
    harness
        .store
        .pods_replaced(&[Arc::new(pod("n1", "default/web-1"))], moment(17_000));
    harness.store.flush(moment(17_000));
    assert_eq!(harness.pods(), ["default/web-1"]);
}

#[test]
fn a_resync_removes_missing_nodes() {
    let harness = Harness::new();
    harness.node("n2");
    harness.store.retain_nodes(["n2"], moment(0));
    assert_eq!(harness.recorder.node("n1"), None);
    assert!(harness.recorder.node("n2").is_some());
    assert_eq!(harness.store.readiness(moment(0)).counts.nodes, 1);
}

#[test]
fn pods_applied_before_their_node_are_served_with_it() {
    let harness = Harness::new();
    harness.pod("n2", "default/web-0");
    assert!(harness.recorder.node("n2").is_none());
    harness.node("n2");
    for (now, total) in [(0, 10), (15_000, 25)] {
        let batch = batch(&[row("app", now, total * CORE_SECOND)]);
        assert_eq!(
            harness
                .store
                .ingest("n2", &uid("n2"), &batch, moment(now + 1))
                .new,
            1
        );
    }
    assert_eq!(harness.recorder.node("n2").unwrap().pods.len(), 1);
}

/// When a pod began to run, the usage of its last init container was served until the next scrape.
#[test]
fn a_pod_that_starts_to_run_is_not_served_with_its_init_containers() {
    let harness = Harness::with_pod();
    let mut pending = pod("n1", "default/web-0");
    pending.phase = PodPhase::Pending;
    apply(&harness, pending);
    for (now, total) in [(0, 10), (15_000, 25)] {
        harness.scrape(now + 1_000, &[row("init", now, total * CORE_SECOND)]);
    }
    apply(&harness, pod("n1", "default/web-0"));
    assert_eq!(harness.pods(), [""; 0]);
    for (now, total) in [(20_000, 1), (35_000, 16)] {
        harness.scrape(now + 1_000, &[row("app", now, total * CORE_SECOND)]);
    }
    assert_eq!(harness.pods(), ["default/web-0"]);
    assert_eq!(harness.served("init"), None);
    assert!(harness.served("app").is_some());
}

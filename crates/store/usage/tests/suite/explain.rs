//! The messages that explain an absence.

use std::sync::Arc;

use kubevitals_model::{NodeName, PodPhase};

use crate::harness::{CORE_SECOND, Harness, Row, moment, of_node, pod, row, uid};

fn old(container: &str, millis: i64, total: u64) -> Row {
    row(container, millis, total).started(-86_400_000)
}

#[test]
fn a_pod_is_unknown_or_not_running() {
    let harness = Harness::new();
    insta::assert_snapshot!(harness.explain(0), @"pod not found");
    let mut waiting = pod("", "default/web-0");
    waiting.phase = PodPhase::Pending;
    harness.store.pod_applied(&Arc::new(waiting));
    insta::assert_snapshot!(harness.explain(0), @"pod is not scheduled to a node yet");
    let mut waiting = pod("n1", "default/web-0");
    waiting.phase = PodPhase::Pending;
    harness.store.pod_applied(&Arc::new(waiting));
    insta::assert_snapshot!(harness.explain(0), @"pod is Pending, and only running pods have metrics");
    harness.store.pod_deleted(&pod("n1", "default/web-0"));
    insta::assert_snapshot!(harness.explain(0), @"pod not found");
}

#[test]
fn the_node_is_unknown_or_not_scraped_or_failing() {
    let harness = Harness::new();
    harness.pod("n2", "default/web-0");
    insta::assert_snapshot!(harness.explain(0), @"node n2 not found");
    let harness = Harness::with_pod();
    insta::assert_snapshot!(harness.explain(0), @"node n1 has not been scraped yet");
    harness.fail(1_000, "certificate is not valid for 10.0.0.3");
    insta::assert_snapshot!(
        harness.explain(4_000),
        @"node n1: certificate is not valid for 10.0.0.3 (next attempt in 12 s)"
    );
    insta::assert_snapshot!(
        harness.explain(40_000),
        @"node n1: certificate is not valid for 10.0.0.3"
    );
    harness.scrape(46_000, &[]);
    insta::assert_snapshot!(
        harness.explain(48_000),
        @"not reported by node n1, last scraped 2 s ago"
    );
}

#[test]
fn the_samples_make_no_rate_yet() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, CORE_SECOND)]);
    insta::assert_snapshot!(
        harness.explain(8_000),
        @"container app: first sample 7 s old, second due in 8 s"
    );
    insta::assert_snapshot!(
        harness.explain(20_000),
        @"container app: first sample 19 s old, second overdue"
    );
    harness.scrape(16_000, &[old("app", 15_000, 1)]);
    insta::assert_snapshot!(
        harness.explain(17_000),
        @"container app: the counter of cpu time went backwards, next sample due in 14 s"
    );
    harness.scrape(31_000, &[row("app", 30_000, 1).started(25_000)]);
    insta::assert_snapshot!(
        harness.explain(32_000),
        @"container app: the container started too recently, next sample due in 14 s"
    );
    harness.scrape(46_000, &[row("app", 200_000, 1).started(25_000)]);
    insta::assert_snapshot!(
        harness.explain(47_000),
        @"container app: the clock of the node jumped, next sample due in 14 s"
    );
}

#[test]
fn cpu_or_memory_is_missing() {
    let harness = Harness::with_pod();
    let without_cpu = old("app", 0, 0).with(|own| own.cpu = None);
    harness.scrape(1_000, &[without_cpu]);
    insta::assert_snapshot!(harness.explain(2_000), @"container app: the node reports no CPU time");
    for (now, total) in [(15_000, 1), (30_000, 2)] {
        let harness = &harness;
        let without = old("side", now, total * CORE_SECOND).with(|own| own.memory = None);
        harness.scrape(now + 1_000, &[without]);
    }
    insta::assert_snapshot!(harness.explain(32_000), @"container side: the node reports no memory");
}

#[test]
fn the_last_usage_is_stale() {
    let harness = Harness::with_pod();
    harness.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    harness.scrape(16_000, &[old("app", 15_000, 25 * CORE_SECOND)]);
    insta::assert_snapshot!(harness.explain(17_000), @"metrics have just become available, please try again");
    harness.store.expire(moment(62_000));
    insta::assert_snapshot!(
        harness.explain(101_000),
        @"last usage became stale 40 s ago"
    );
    harness.fail(102_000, "connect to 10.0.0.3:10250: connection refused");
    insta::assert_snapshot!(
        harness.explain(103_000),
        @"last usage became stale 42 s ago; node n1: connect to 10.0.0.3:10250: connection refused (next attempt in 14 s)"
    );
}

#[test]
fn nodes_have_reasons_too() {
    let harness = Harness::new();
    let explain = |name, now| harness.store.explain_node(name, moment(now)).to_string();
    insta::assert_snapshot!(explain("n9", 0), @"node n9 not found");
    insta::assert_snapshot!(explain("n1", 0), @"node n1 has not been scraped yet");
    harness.store.ingest(
        "n1",
        &uid("n1"),
        &of_node(0, 10 * CORE_SECOND),
        moment(1_000),
    );
    insta::assert_snapshot!(explain("n1", 8_000), @"first sample 7 s old, second due in 8 s");
    harness.fail(16_000, "401 Unauthorized");
    insta::assert_snapshot!(
        explain("n1", 17_000),
        @"node n1: 401 Unauthorized (next attempt in 14 s)"
    );
    let batch = of_node(15_000, 25 * CORE_SECOND);
    harness
        .store
        .ingest("n1", &uid("n1"), &batch, moment(31_000));
    insta::assert_snapshot!(explain("n1", 32_000), @"metrics have just become available, please try again");
    insta::assert_snapshot!(
        explain("n1", 500_000),
        @"last usage became stale 7 min ago"
    );
}

#[test]
fn a_node_is_excluded() {
    let harness = Harness::with_pod();
    for (now, total) in [(0, 10), (15_000, 25)] {
        harness.scrape(now + 1_000, &[old("app", now, total * CORE_SECOND)]);
    }
    let name = NodeName::new("n1");
    let reason = "annotation kubevitals.io/scrape is \"false\"".into();
    harness
        .store
        .node_excluded(&name, &uid("n1"), &reason, moment(17_000));
    assert_eq!(harness.recorder.node("n1"), None, "it is withdrawn");
    insta::assert_snapshot!(
        harness.explain(17_000),
        @r#"node n1 is not scraped: annotation kubevitals.io/scrape is "false""#
    );
    let late = harness.scrape(18_000, &[old("app", 17_000, 1)]);
    assert!(
        !late.known_node,
        "a scrape in flight does not bring it back"
    );
    let counts = harness.store.readiness(moment(18_000)).counts;
    assert_eq!((counts.nodes, counts.nodes_excluded), (0, 1));
    assert_eq!(counts.running_pods, 0, "its pods are not waited for");
    // Included again, it starts without samples.
    harness.node("n1");
    insta::assert_snapshot!(harness.explain(18_000), @"node n1 has not been scraped yet");
    let reason = "it has another reason".into();
    harness
        .store
        .node_excluded(&name, &uid("n1"), &reason, moment(19_000));
    harness.store.node_deleted("n1", &uid("n1"), moment(20_000));
    insta::assert_snapshot!(harness.explain(20_000), @"node n1 not found");
}

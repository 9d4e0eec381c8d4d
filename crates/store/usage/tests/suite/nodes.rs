//! Usage of nodes.

use kubevitals_model::{BytesSample, CoreNanos, CpuSample, Labels, NodeName, Timestamp};

use crate::harness::{CORE_SECOND, Harness, millicores, moment, of_node, row, uid};

fn scrape(harness: &Harness, now: i64, sampled: i64, total: u64) -> bool {
    let batch = of_node(sampled, total);
    harness
        .store
        .ingest("n1", &uid("n1"), &batch, moment(now))
        .new_sample
}

#[test]
fn one_sample_is_not_enough() {
    let harness = Harness::new();
    assert!(scrape(&harness, 1_000, 0, 10 * CORE_SECOND));
    assert_eq!(harness.served_node(), None);
}

#[test]
fn two_distinct_samples_make_a_rate_over_the_time_between_them() {
    let harness = Harness::new();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    assert!(scrape(&harness, 16_000, 12_000, 16 * CORE_SECOND));
    assert_eq!(harness.served_node(), Some((500, 12_000, 12_000)));
}

#[test]
fn a_repeated_sample_changes_nothing_and_is_not_published() {
    let harness = Harness::new();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    scrape(&harness, 16_000, 12_000, 16 * CORE_SECOND);
    let publications = harness.recorder.publications();
    assert!(!scrape(&harness, 17_000, 12_000, 16 * CORE_SECOND));
    assert_eq!(harness.served_node(), Some((500, 12_000, 12_000)));
    assert_eq!(harness.recorder.publications(), publications);
    scrape(&harness, 31_000, 24_000, 28 * CORE_SECOND);
    assert_eq!(harness.served_node(), Some((1_000, 12_000, 24_000)));
}

#[test]
fn an_older_sample_is_ignored() {
    let harness = Harness::new();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    scrape(&harness, 16_000, 12_000, 16 * CORE_SECOND);
    assert!(!scrape(&harness, 17_000, 6_000, 13 * CORE_SECOND));
    scrape(&harness, 31_000, 24_000, 28 * CORE_SECOND);
    assert_eq!(harness.served_node(), Some((1_000, 12_000, 24_000)));
}

#[test]
fn after_a_counter_reset_the_last_rate_is_served_until_the_next() {
    let harness = Harness::new();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    scrape(&harness, 16_000, 12_000, 16 * CORE_SECOND);
    assert!(scrape(&harness, 31_000, 24_000, CORE_SECOND));
    assert_eq!(harness.served_node(), Some((500, 12_000, 12_000)));
    scrape(&harness, 46_000, 36_000, 4 * CORE_SECOND);
    assert_eq!(harness.served_node(), Some((250, 12_000, 36_000)));
}

#[test]
fn a_failed_scrape_loses_no_samples() {
    let harness = Harness::new();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    scrape(&harness, 16_000, 15_000, 25 * CORE_SECOND);
    harness.fail(31_000, "connection refused");
    harness.store.expire(moment(31_000));
    assert_eq!(harness.served_node(), Some((1_000, 15_000, 15_000)));
    // The next successful one continues from the last: the window spans the failure.
    scrape(&harness, 46_000, 45_000, 40 * CORE_SECOND);
    assert_eq!(harness.served_node(), Some((500, 30_000, 45_000)));
}

#[test]
fn the_second_older_sample_is_a_new_baseline() {
    let harness = Harness::new();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    scrape(&harness, 16_000, 15_000, 25 * CORE_SECOND);
    let hour = 3_600_000;
    assert!(!scrape(&harness, 31_000, 30_000 - hour, 26 * CORE_SECOND));
    assert!(scrape(&harness, 46_000, 45_000 - hour, 27 * CORE_SECOND));
    assert_eq!(harness.served_node(), Some((1_000, 15_000, 15_000)));
    scrape(&harness, 61_000, 60_000 - hour, 30 * CORE_SECOND);
    assert_eq!(harness.served_node(), Some((200, 15_000, 60_000 - hour)));
}

#[test]
fn a_clock_set_forward_makes_no_rate() {
    let harness = Harness::new();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    scrape(&harness, 16_000, 15_000, 25 * CORE_SECOND);
    scrape(&harness, 31_000, 150_000, 40 * CORE_SECOND);
    assert_eq!(harness.served_node(), Some((1_000, 15_000, 15_000)));
    scrape(&harness, 46_000, 165_000, 55 * CORE_SECOND);
    assert_eq!(harness.served_node(), Some((1_000, 15_000, 165_000)));
}

#[test]
fn a_deleted_node_is_withdrawn_and_a_late_scrape_does_not_bring_it_back() {
    let harness = Harness::with_pod();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    harness.store.node_deleted("n1", &uid("n1"), moment(0));
    assert_eq!(harness.recorder.node("n1"), None);
    assert!(!scrape(&harness, 16_000, 15_000, 25 * CORE_SECOND));
    assert_eq!(harness.recorder.node("n1"), None);
    // Recreated, it starts without samples.
    harness.node("n1");
    scrape(&harness, 31_000, 30_000, 40 * CORE_SECOND);
    assert_eq!(harness.served_node(), None);
}

#[test]
fn a_node_with_another_uid_starts_without_samples() {
    let harness = Harness::new();
    scrape(&harness, 1_000, 0, 10 * CORE_SECOND);
    scrape(&harness, 16_000, 15_000, 25 * CORE_SECOND);
    let (name, labels) = (NodeName::new("n1"), Labels::default());
    harness.store.node_applied(&name, &labels, &uid("another"));
    harness.store.flush(moment(17_000));
    assert_eq!(harness.served_node(), None);
    scrape(&harness, 31_000, 30_000, 40 * CORE_SECOND);
    assert_eq!(harness.served_node(), None);
}

#[test]
fn the_labels_of_a_node_are_published_when_they_change() {
    let harness = Harness::new();
    let labels = Labels::from_sorted([("zone".into(), "a".into())].into());
    let before = harness.recorder.publications();
    for _ in 0..2 {
        let name = NodeName::new("n1");
        harness.store.node_applied(&name, &labels, &uid("n1"));
        harness.store.flush(moment(1_000));
    }
    assert_eq!(harness.recorder.node("n1").unwrap().labels, labels);
    assert_eq!(harness.recorder.publications(), before + 1);
}

#[test]
fn the_kubelets_own_average_is_served_until_the_second_sample() {
    let harness = Harness::new();
    let mut batch = of_node(0, 10 * CORE_SECOND);
    batch.node.cpu_now = Some(millicores(700));
    harness
        .store
        .ingest("n1", &uid("n1"), &batch, moment(1_000));
    assert_eq!(harness.served_node(), Some((700, 15_000, 0)));
    batch = of_node(12_000, 13 * CORE_SECOND);
    batch.node.cpu_now = Some(millicores(700));
    harness
        .store
        .ingest("n1", &uid("n1"), &batch, moment(16_000));
    assert_eq!(harness.served_node(), Some((250, 12_000, 12_000)));
}

#[test]
fn an_average_of_the_kubelet_that_may_be_hours_old_is_not_served() {
    let harness = Harness::new();
    let mut batch = of_node(-3_600_000, 10 * CORE_SECOND);
    batch.node.cpu_now = Some(millicores(700));
    harness
        .store
        .ingest("n1", &uid("n1"), &batch, moment(1_000));
    assert_eq!(harness.served_node(), None);
}

/// The end of the old machine's scrape loop once removed the node by its name alone, and with it
/// the new machine: its samples were dropped until the Node object changed again.
#[test]
fn a_late_removal_of_the_old_node_does_not_affect_the_new_one() {
    let harness = Harness::with_pod();
    harness.store.node_deleted("n1", &uid("n1"), moment(0));
    let (name, labels) = (NodeName::new("n1"), Labels::default());
    harness.store.node_applied(&name, &labels, &uid("new"));
    harness.store.flush(moment(0));
    harness.store.node_deleted("n1", &uid("n1"), moment(500));
    for (now, total) in [(0, 10), (15_000, 25)] {
        let batch = of_node(now, total * CORE_SECOND);
        let now = moment(now + 1_000);
        harness.store.ingest("n1", &uid("new"), &batch, now);
    }
    assert_eq!(harness.served_node(), Some((1_000, 15_000, 15_000)));
}

#[test]
fn a_late_scrape_of_the_old_node_does_not_count_for_the_new_one() {
    let harness = Harness::new();
    let (name, labels) = (NodeName::new("n1"), Labels::default());
    harness.store.node_applied(&name, &labels, &uid("new"));
    assert!(!scrape(&harness, 1_000, 0, 10 * CORE_SECOND));
    harness.fail(1_000, "the old machine is gone");
    harness.store.ingest(
        "n1",
        &uid("new"),
        &of_node(15_000, 25 * CORE_SECOND),
        moment(16_000),
    );
    assert_eq!(harness.served_node(), None, "it has one sample");
    let explained = harness.store.explain_node("n1", moment(17_000));
    assert_eq!(
        explained.to_string(),
        "first sample 1 s old, second due in 14 s"
    );
}

#[test]
fn a_node_that_flaps_every_second_leaves_nothing_behind() {
    let harness = Harness::with_pod();
    for round in 0..50 {
        let own = uid(&format!("n1-{round}"));
        let (name, labels) = (NodeName::new("n1"), Labels::default());
        harness.store.node_applied(&name, &labels, &own);
        harness.store.flush(moment(round * 1_000));
        let batch = of_node(round * 1_000, CORE_SECOND);
        let now = moment(round * 1_000 + 500);
        assert!(harness.store.ingest("n1", &own, &batch, now).known_node);
        harness.store.node_deleted("n1", &own, now);
        let counts = harness.store.readiness(now).counts;
        assert_eq!((counts.nodes, counts.nodes_settled), (0, 0));
        assert_eq!((counts.nodes_served, counts.running_pods), (0, 0));
    }
    harness.node("n1");
    assert_eq!(harness.store.readiness(moment(0)).counts.running_pods, 1);
}

/// A node that reported years beyond 9999 once made every JSON list unreadable for Go clients.
#[test]
fn samples_outside_of_the_years_1970_to_9999_are_ignored() {
    let year_10000 = 253_402_300_800_000;
    for odd in [
        i64::MIN,
        -1,
        0,
        year_10000 - 15_000,
        i64::MAX / 2,
        i64::MAX - 15_000,
    ] {
        let harness = Harness::with_pod();
        for round in 0..3 {
            let time = Timestamp::from_unix_millis(odd.saturating_add(round * 15_000));
            let total = CoreNanos::new(round.unsigned_abs() * CORE_SECOND);
            let rows = row("app", 0, 0).with(|own| {
                own.cpu = Some(CpuSample { at: time, total });
                own.memory = own.memory.map(|memory| BytesSample { at: time, ..memory });
            });
            harness.scrape(1_000 + round * 15_000, &[rows]);
        }
        for pod in harness.recorder.node("n1").unwrap().pods {
            let served = pod.containers[0].usage.timestamp.unix_millis();
            assert!((1..year_10000).contains(&served), "{odd}: {served}");
        }
    }
    // The last instants that can be written are served.
    let harness = Harness::with_pod();
    for (now, before_end) in [(1_000, 15_001), (16_000, 1)] {
        let time = Timestamp::from_unix_millis(year_10000 - before_end);
        let rows = row("app", 0, 0).with(|own| {
            own.cpu = own.cpu.map(|cpu| CpuSample { at: time, ..cpu });
            own.memory = own.memory.map(|memory| BytesSample { at: time, ..memory });
        });
        harness.scrape(now, &[rows]);
    }
    assert_eq!(harness.pods(), ["default/web-0"]);
}

//! Leader election between replicas.

use std::collections::BTreeMap;

use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};

use super::harness::count;
use super::{Cluster, RoleHarness};

const FLAGS: [&str; 5] = [
    "--leader-elect",
    "--leader-elect-lease-duration=2s",
    "--leader-elect-renew-deadline=1500ms",
    "--leader-elect-retry-period=100ms",
    "--leader-elect-resource-namespace=default",
];

const LEADER: &str = "kubevitals_transitions_leader";

fn is(wanted: u64) -> impl Fn(u64) -> bool {
    move |value| value == wanted
}

/// The lines of both, by pod.
fn union(one: &[Value], two: &[Value]) -> BTreeMap<String, usize> {
    union_of("pod", one, two)
}

fn union_of(kind: &str, one: &[Value], two: &[Value]) -> BTreeMap<String, usize> {
    let mut all = count(one, kind);
    for (name, times) in count(two, kind) {
        *all.entry(name).or_default() += times;
    }
    all
}

async fn pair(cluster: &Cluster) -> (RoleHarness, RoleHarness) {
    let first = RoleHarness::ready(cluster, &FLAGS).await;
    first.until_metric(LEADER, is(1)).await;
    let second = RoleHarness::ready(cluster, &FLAGS).await;
    assert_eq!(second.metric(LEADER).await, Some(0));
    (first, second)
}

fn start_ready(cluster: &Cluster, names: impl Iterator<Item = u32>) {
    for number in names {
        cluster.make_ready(&format!("pod-{number}"));
    }
}

fn start(cluster: &Cluster, names: impl Iterator<Item = u32>) {
    for number in names {
        let name = format!("pod-{number}");
        cluster.create(&name);
        cluster.make_ready(&name);
    }
}

#[tokio::test]
async fn a_shutdown_of_the_leader_leaves_neither_a_gap_nor_a_duplicate() {
    let cluster = Cluster::start().await;
    let (mut first, mut second) = pair(&cluster).await;
    start(&cluster, 0..30);
    first.until_pods(30).await;
    assert!(second.lines().is_empty(), "a standby emits nothing");
    // Pods keep starting while the leadership changes.
    start(&cluster, 30..40);
    let handing_over = first.stop();
    let (by_first, ()) = tokio::join!(handing_over, async { start(&cluster, 40..50) });
    second.until_metric(LEADER, is(1)).await;
    start(&cluster, 50..60);
    second
        .until_lines(|lines| union(&by_first, lines).len() == 60)
        .await;
    let by_second = second.stop().await;
    let all = union(&by_first, &by_second);
    assert_eq!(all.len(), 60);
    assert!(all.values().all(|times| *times == 1), "{all:?}");

    let lease = cluster
        .api
        .object(Resource::Leases, Some("default"), "kubevitals-transitions");
    let lease = lease.unwrap();
    assert!(
        lease["spec"]["holderIdentity"]
            .as_str()
            .is_none_or(str::is_empty),
        "{lease}"
    );
    let until = lease["metadata"]["annotations"]["kubevitals.io/checkpoint"].as_str();
    let version: u64 = until.unwrap().split('@').next().unwrap().parse().unwrap();
    assert!(version >= 60);
}

#[tokio::test]
async fn each_pull_is_written_once_across_a_change_of_the_leader() {
    let cluster = Cluster::start().await;
    let (mut first, mut second) = pair(&cluster).await;
    let pull = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let name = format!("pod-{number}");
            cluster.create(&name);
            let message = "Container image \"web:2\" already present on machine";
            cluster.event(&name, "Pulled", message, std::time::Duration::ZERO);
        }
    };
    pull(0..20);
    first
        .until_lines(|lines| count(lines, "image_pull").len() == 20)
        .await;
    assert!(second.lines().is_empty(), "a standby emits nothing");
    pull(20..25);
    let (by_first, ()) = tokio::join!(first.stop(), async { pull(25..30) });
    second.until_metric(LEADER, is(1)).await;
    pull(30..35);
    let all = |lines: &[Value]| union_of("image_pull", &by_first, lines);
    second.until_lines(|lines| all(lines).len() == 35).await;
    let by_second = second.stop().await;
    assert!(all(&by_second).values().all(|times| *times == 1));
    // Nothing is repeated with the starts either, nor by the next process.
    let mut third = RoleHarness::ready(&cluster, &FLAGS).await;
    start_ready(&cluster, 0..35);
    third.until_pods(35).await;
    let by_third = third.stop().await;
    assert_eq!(count(&by_third, "image_pull").len(), 0);
}

#[tokio::test]
async fn a_standby_drops_what_the_leader_emitted() {
    let cluster = Cluster::start().await;
    let (mut first, second) = pair(&cluster).await;
    start(&cluster, 0..20);
    first.until_pods(20).await;
    // The checkpoint reaches the Lease soon.
    let skipped = "kubevitals_transitions_records_skipped_total{reason=\"leader_emitted\"}";
    second.until_metric(skipped, is(20)).await;
    let waiting = "kubevitals_transitions_records_queued";
    second.until_metric(waiting, is(0)).await;
    assert!(second.stop().await.is_empty());
    first.stop().await;
}

#[tokio::test]
async fn a_replica_that_starts_after_a_gap_continues_from_the_checkpoint() {
    let cluster = Cluster::start().await;
    let mut first = RoleHarness::ready(&cluster, &FLAGS).await;
    first.until_metric(LEADER, is(1)).await;
    start(&cluster, 0..10);
    first.until_pods(10).await;
    let by_first = first.stop().await;
    // No replica runs.
    start(&cluster, 10..20);
    let mut second = RoleHarness::ready(&cluster, &FLAGS).await;
    second
        .until_lines(|lines| union(&by_first, lines).len() == 20)
        .await;
    let all = union(&by_first, &second.stop().await);
    assert!(all.values().all(|times| *times == 1), "{all:?}");
}

#[tokio::test]
async fn the_permissions_of_the_manifest_suffice() {
    let manifest = include_str!("../../../../../deploy/transitions.yaml");
    let rules: [(&[&str], &str, &str); 3] = [
        (&["list", "watch"], "", "pods"),
        (&["list", "watch"], "", "events"),
        (&["get", "update"], "coordination.k8s.io", "leases"),
    ];
    for (verbs, group, resource) in rules {
        let group = if group.is_empty() { "\"\"" } else { group };
        let rule = format!("- apiGroups: [{group}]\n    resources: [{resource}]\n");
        let verbs = format!("verbs: [{}]\n", verbs.join(", "));
        let found = manifest.split(&rule).skip(1).any(|after| {
            let rule = after.split("  - apiGroups").next().unwrap();
            rule.contains(&verbs)
        });
        assert!(found, "{rule}{verbs}");
    }
    assert_eq!(manifest.matches("  - apiGroups").count(), rules.len());

    // The Lease is in the manifest, without a spec: the role cannot create any.
    assert!(manifest.contains("kind: Lease\nmetadata:\n  name: kubevitals-transitions\n"));
    let cluster = Cluster::start().await;
    let lease = json!({"metadata": {"name": "kubevitals-transitions", "namespace": "default"}});
    let writer = cluster.api.writer();
    writer.create(Resource::Leases, lease).unwrap();
    cluster.restrict(&rules);
    let (mut first, second) = pair(&cluster).await;
    start(&cluster, 0..3);
    first.until_pods(3).await;
    first.stop().await;
    second.until_metric(LEADER, is(1)).await;
    second.stop().await;
}

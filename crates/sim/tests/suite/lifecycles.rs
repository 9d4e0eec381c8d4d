//! Properties of all lifecycles, for any seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_sim::node_set::NodeSet;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::seed::Seed;
use kubevitals_sim::workload::{
    ChurnRate, Manifest, Scenario, ScenarioMix, Workload, WorkloadConfig,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::node_support::{START, Store, at};

/// A cluster of four nodes with churn, stepped at these intervals.
fn churned(seed: u64, millis: i64, step: i64) -> (Store, Workload) {
    let store = Store::default();
    let node_set = NodeSet::new(4, "node", Seed::new(seed));
    let config = WorkloadConfig {
        pods_per_node: 3,
        churn: ChurnRate::per_second(2),
        mix: ScenarioMix::of(Scenario::ALL.map(|kind| (kind, 1))),
        leases: false,
        ..WorkloadConfig::default()
    };
    let mut workload = Workload::new(config, node_set, Seed::new(seed));
    workload.populate(at(START), &store);
    let mut now = START;
    while now < START + millis {
        now += step;
        workload.step(at(now), &store);
    }
    (store, workload)
}

fn log(store: &Store) -> Vec<String> {
    let changes = store.all().into_iter();
    changes
        .map(|change| format!("{} {}", change.kind, change.object))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 3, ..ProptestConfig::default() })]

    #[test]
    fn the_same_seed_gives_the_same_history_for_any_step_size(seed: u64, step in 1_000_i64..20_000) {
        let steps = 40_000 / step * step;
        let (fine, _) = churned(seed, steps, step);
        let (coarse, _) = churned(seed, steps, steps);
        prop_assert_eq!(log(&fine), log(&coarse));
    }

    #[test]
    fn times_never_go_back_and_conditions_change_time_only_with_status(seed: u64) {
        let (store, workload) = churned(seed, 90_000, 5_000);
        prop_assert_eq!(workload.rejected_writes(), 0);
        let mut conditions: BTreeMap<(String, String), (String, String)> = BTreeMap::new();
        for change in store.changes(Resource::Pods) {
            let uid = change.object["metadata"]["uid"].to_string();
            let created = change.object["metadata"]["creationTimestamp"].to_string();
            for condition in change.object["status"]["conditions"].as_array().unwrap_or(&Vec::new()) {
                let kind = condition["type"].to_string();
                let status = condition["status"].to_string();
                let since = condition["lastTransitionTime"].to_string();
                prop_assert!(since >= created, "{kind} before the pod");
                let key = (uid.clone(), kind.clone());
                // The kubelet takes over a condition and sets its time once, in its first update.
                if let Some((had, before)) = conditions.get(&key) {
                    prop_assert!(since >= *before, "{kind} goes back: {before} {since}");
                    if *had == status {
                        prop_assert_eq!(&since, before, "{} moved without a change", kind);
                    }
                }
                conditions.insert(key, (status, since));
            }
            check_containers(&change.object)?;
        }
    }
}

fn check_containers(pod: &Value) -> Result<(), TestCaseError> {
    let none = Vec::new();
    for container in pod["status"]["containerStatuses"]
        .as_array()
        .unwrap_or(&none)
    {
        let ended = &container["state"]["terminated"];
        if let (Some(from), Some(to)) = (ended["startedAt"].as_str(), ended["finishedAt"].as_str())
        {
            prop_assert!(from <= to);
        }
        if container["ready"] == true {
            prop_assert!(container["state"]["running"].is_object(), "{container}");
        }
        if container["restartCount"] != 0 {
            prop_assert!(
                container["lastState"]["terminated"].is_object(),
                "{container}"
            );
        }
    }
    Ok(())
}

#[test]
fn different_seeds_give_different_histories() {
    assert_ne!(
        log(&churned(1, 30_000, 1_000).0),
        log(&churned(2, 30_000, 1_000).0)
    );
}

#[test]
fn churn_keeps_its_rate_and_the_population_steady() {
    let (store, mut workload) = churned(3, 100_000, 10_000);
    let mut populations = vec![workload.pods()];
    for second in (110..=200).step_by(10) {
        workload.step(at(START + second * 1_000), &store);
        populations.push(workload.pods());
    }
    let pods = store.changes(Resource::Pods);
    let created = pods.iter().filter(|pod| pod.kind == "ADDED").count();
    let initial = 4 * 3;
    // Two per second for 200 s. The intervals vary by half, the sum of hundreds by 2 %; this is
    // beyond twice that.
    let churned = created - initial;
    assert!(churned.abs_diff(400) <= 20, "{churned}");
    // As many are deleted, once the first ones have reached their age.
    let mean = populations.iter().sum::<usize>() / populations.len();
    for population in &populations {
        assert!(population.abs_diff(mean) <= mean / 10, "{populations:?}");
    }
    assert_eq!(workload.pods(), store.list(Resource::Pods).len());
    assert!(workload.events() <= 50_000);
    assert_eq!(workload.rejected_writes(), 0);
}

#[test]
fn every_scenario_shows_its_events_and_states() {
    let (store, _) = churned(5, 200_000, 1_000);
    let reasons: Vec<String> = store
        .changes(Resource::Events)
        .iter()
        .map(|change| change.object["reason"].as_str().unwrap().to_owned())
        .collect();
    for reason in [
        "Scheduled",
        "FailedScheduling",
        "Pulling",
        "Pulled",
        "Created",
        "Started",
        "Killing",
        "Unhealthy",
        "BackOff",
        "Failed",
        "Evicted",
        "SuccessfulCreate",
        "SuccessfulDelete",
        "ScalingReplicaSet",
        "Completed",
    ] {
        assert!(
            reasons.iter().any(|emitted| emitted == reason),
            "no event with reason {reason}"
        );
    }
    let text: Vec<String> = log(&store);
    for expected in [
        "SchedulingGated",
        "ReadinessGatesNotReady",
        "OOMKilled",
        "TerminationByKubelet",
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "Successfully pulled image",
    ] {
        assert!(
            text.iter().any(|line| line.contains(expected)),
            "{expected} never shown"
        );
    }
}

#[test]
fn a_rollout_keeps_enough_pods_ready() {
    let store = Store::default();
    let node_set = NodeSet::new(4, "node", Seed::new(1));
    let mut workload = Workload::new(WorkloadConfig::default(), node_set, Seed::new(1));
    let manifest = |name: &str| match Scenario::Rollout.manifest(name.into(), Seed::new(1)) {
        Manifest::Deployment { template, .. } => template,
        other => panic!("{other:?}"),
    };
    let deployment = Manifest::Deployment {
        name: "web".into(),
        replicas: 8,
        template: manifest("web"),
    };
    workload.launch("default", deployment, at(START), &store);
    workload.step(at(START + 30_000), &store);
    let ready = |store: &Store| {
        let pods = store.list(Resource::Pods);
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            pod["metadata"]["deletionTimestamp"].is_null()
                && conditions.is_some_and(|list| {
                    list.iter()
                        .any(|c| c["type"] == "Ready" && c["status"] == "True")
                })
        };
        pods.iter().filter(is_ready).count()
    };
    assert_eq!(ready(&store), 8);
    let new = manifest("web").label("revision", "2");
    assert!(workload.rollout("default", "web", new.clone(), at(START + 30_000), &store));
    assert!(!workload.rollout("default", "web", new, at(START + 30_000), &store));
    for second in 31..120 {
        workload.step(at(START + second * 1_000), &store);
        assert!(ready(&store) >= 6, "a quarter may be missing, not more");
        assert!(
            store.list(Resource::Pods).len() <= 8 + 2 + 8,
            "surge and those that end"
        );
    }
    let pods = store.list(Resource::Pods);
    assert_eq!(pods.len(), 8);
    assert!(
        pods.iter()
            .all(|pod| pod["metadata"]["labels"]["revision"] == "2")
    );
    let deployment = &store.list(Resource::Deployments)[0];
    assert_eq!(deployment["status"]["readyReplicas"], 8);
    assert_eq!(store.list(Resource::ReplicaSets).len(), 1);
}

#[test]
fn the_initial_population_looks_like_a_cluster() {
    let store = Store::default();
    let node_set = NodeSet::new(20, "node", Seed::new(1));
    let config = WorkloadConfig {
        pods_per_node: 30,
        ..WorkloadConfig::default()
    };
    let mut workload = Workload::new(config, Arc::clone(&node_set), Seed::new(1));
    workload.populate(at(START), &store);
    let pods = store.list(Resource::Pods);
    assert_eq!(pods.len(), 600);
    assert!(
        node_set
            .nodes()
            .iter()
            .all(|node| node.view().present.len() == 30)
    );
    assert_eq!(store.list(Resource::DaemonSets).len(), 2);
    assert_eq!(store.list(Resource::Nodes).len(), 20);
    assert_eq!(store.list(Resource::Leases).len(), 20);
    let owners: Vec<Value> = store.list(Resource::ReplicaSets);
    let uids: Vec<String> = pods
        .iter()
        .map(|pod| pod["metadata"]["uid"].to_string())
        .collect();
    let distinct: std::collections::BTreeSet<_> = uids.iter().collect();
    assert_eq!(distinct.len(), uids.len());
    for owner in &owners {
        let uid = &owner["metadata"]["uid"];
        let owned = pods
            .iter()
            .filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == *uid);
        assert_eq!(
            owned.count() as u64,
            owner["spec"]["replicas"].as_u64().unwrap()
        );
    }
    workload.step(at(START + 60_000), &store);
    let renewed = store
        .changes(Resource::Leases)
        .iter()
        .filter(|c| c.kind == "MODIFIED")
        .count();
    assert!((100..=140).contains(&renewed), "{renewed}");
}

#[test]
fn every_node_can_be_replaced_and_its_pods_are_recreated() {
    let store = Store::default();
    let node_set = NodeSet::with_spares(4, 4, "node", Seed::new(1));
    let config = WorkloadConfig {
        pods_per_node: 12,
        replacements: "6/min".parse().unwrap(),
        ..WorkloadConfig::default()
    };
    let mut workload = Workload::new(config, Arc::clone(&node_set), Seed::new(1));
    workload.populate(at(START), &store);
    let names = || {
        let nodes = store.list(Resource::Nodes);
        let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
        nodes.iter().map(name).collect::<Vec<_>>()
    };
    let uid = |name: &str| {
        let nodes = store.list(Resource::Nodes);
        let node = nodes.iter().find(|node| node["metadata"]["name"] == name);
        node.map(|node| node["metadata"]["uid"].clone()).unwrap()
    };
    let first = uid("node-00000");
    // Once every ten seconds: four are replaced, and their pods run elsewhere.
    workload.step(at(START + 49_000), &store);
    assert_eq!(
        names(),
        ["node-00004", "node-00005", "node-00006", "node-00007"]
    );
    workload.set_replacements(ChurnRate::NONE, at(START + 49_000));
    workload.step(at(START + 90_000), &store);
    let pods = store.list(Resource::Pods);
    assert_eq!(pods.len(), 48);
    for (index, node) in node_set.nodes().iter().enumerate() {
        assert_eq!(node.is_present(), index >= 4);
        let view = node.view();
        let daemons = view
            .present
            .iter()
            .filter(|pod| pod.name().starts_with("kube-proxy-"));
        assert_eq!(daemons.count(), usize::from(index >= 4), "{}", node.name());
    }
    assert!(pods.iter().all(|pod| pod["status"]["phase"] == "Running"));
    // Names are reused by other machines, which have their own heartbeats.
    workload.set_replacements("6/min".parse().unwrap(), at(START + 90_000));
    workload.step(at(START + 139_000), &store);
    workload.set_replacements(ChurnRate::NONE, at(START + 139_000));
    assert_eq!(
        names(),
        ["node-00000", "node-00001", "node-00002", "node-00003"]
    );
    assert_ne!(uid("node-00000"), first);
    workload.step(at(START + 900_000), &store);
    assert_eq!(store.list(Resource::Leases).len(), 4);
    assert_eq!(workload.rejected_writes(), 0);
}

#[test]
fn a_pod_removed_by_a_client_is_dropped() {
    use kubevitals_sim::objects::ObjectWriter;
    let (store, mut workload) = churned(8, 20_000, 1_000);
    let before = workload.pods();
    let pods = store.list(Resource::Pods);
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let namespace = pod["metadata"]["namespace"].as_str();
        store.delete(Resource::Pods, namespace, name).unwrap();
    }
    workload.set_churn(ChurnRate::NONE, at(START + 20_000));
    workload.step(at(START + 400_000), &store);
    assert!(workload.pods() < before, "{} {before}", workload.pods());
    assert_eq!(workload.rejected_writes(), 0);
}

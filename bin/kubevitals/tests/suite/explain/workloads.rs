//! `kubevitals explain` of workloads, nodes, groups and revisions.

use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_sim::api::{Rule, User};
use kubevitals_sim::node_set::NodeSet;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::seed::Seed;
use kubevitals_sim::workload::{
    ContainerTemplate, Delay, Manifest, PodTemplate, Pull, Workload, WorkloadConfig,
};
use serde_json::{Value, json};

use super::{Harness, ago, event, ready_pod, uid, waiting_pod};
use crate::schema::Schema;

/// 2026-11-16T09:00:00Z.
const START: i64 = 1_794_819_600_000;

/// A pod of a revision of the Deployment `web`.
fn deployed(mut pod: Value, hash: &str, image: &str) -> Value {
    let set = format!("web-{hash}");
    pod["metadata"]["labels"] = json!({"app": "web", "pod-template-hash": hash});
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "name": set, "uid": uid(&set), "controller": true}]);
    pod["spec"]["containers"][0]["image"] = image.into();
    pod
}

fn replica_set(hash: &str, revision: u32) -> Value {
    json!({"metadata": {"name": format!("web-{hash}"), "namespace": "shop", "uid": uid(hash),
        "labels": {"app": "web", "pod-template-hash": hash},
        "annotations": {"deployment.kubernetes.io/revision": revision.to_string()},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
            "uid": uid("web"), "controller": true}]}})
}

fn deployment(namespace: &str) -> Value {
    json!({"metadata": {"name": "web", "namespace": namespace, "uid": uid(namespace)},
        "spec": {"selector": {"matchLabels": {"app": "web"}}}})
}

/// A failure of a mount, as the kubelet writes it.
fn mount_failure(pod: &str, second: i64) -> Value {
    let message = "MountVolume.SetUp failed for volume \"config\" : configmap \"web\" not found";
    let mut event = event(pod, "m", "FailedMount", message, second);
    event["involvedObject"]["fieldPath"] = "".into();
    event["count"] = 6.into();
    event
}

/// A pod that has a node and waits for its volumes.
fn mounting_pod(name: &str) -> Value {
    let mut pod = waiting_pod(name);
    let since = ago(Duration::from_mins(185));
    pod["spec"]["nodeName"] = "node-b-2".into();
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": since});
    pod["status"] = json!({"phase": "Pending", "startTime": since,
        "conditions": [condition("PodScheduled", "True"), condition("PodReadyToStartContainers", "False")],
        "containerStatuses": [{"name": "app", "ready": false, "started": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ContainerCreating"}}}]});
    pod
}

/// Revision 3 of `web` with four quick pods, and revision 4 with twelve that pull an image, of
/// which those on one node are slow, and one that cannot mount its volumes. Other pods beside them.
async fn rolled_out() -> Harness {
    let harness = Harness::empty().await;
    let create = |resource, object| harness.create(resource, object);
    for number in 1..=3 {
        let labels = json!({"cloud.google.com/gke-nodepool": if number == 3 { "c" } else { "b" }});
        let name = format!("node-b-{number}");
        create(
            Resource::Nodes,
            json!({"metadata": {"name": name, "labels": labels,
            "creationTimestamp": super::stamp(-100_000)}}),
        );
    }
    create(Resource::Deployments, deployment("shop"));
    create(Resource::Deployments, deployment("other"));
    create(Resource::ReplicaSets, replica_set("5c9f", 3));
    create(Resource::ReplicaSets, replica_set("7d4b", 4));
    for number in 0..4 {
        let pod = ready_pod("shop", &format!("web-5c9f-{number}"), 9);
        create(
            Resource::Pods,
            deployed(pod, "5c9f", "registry.example/shop/web:1"),
        );
    }
    for number in 0..12 {
        let name = format!("web-7d4b-{number:02}");
        let slow = number % 6 == 5;
        let ready = if slow { 52 } else { 14 };
        let mut pod = ready_pod("shop", &name, ready);
        pod["spec"]["nodeName"] =
            format!("node-b-{}", if slow { 3 } else { 1 + number % 2 }).into();
        create(
            Resource::Pods,
            deployed(pod, "7d4b", "registry.example/shop/web:2"),
        );
        let took = ready - 11;
        let pulled = format!(
            "Successfully pulled image \"registry.example/shop/web:2\" in {took}s ({took}s \
             including waiting). Image size: 1234567890 bytes."
        );
        create(
            Resource::Events,
            event(&name, "a", "Pulling", "Pulling image", 5),
        );
        create(
            Resource::Events,
            event(&name, "b", "Pulled", &pulled, 5 + took),
        );
    }
    let stuck = deployed(
        mounting_pod("web-7d4b-stuck"),
        "7d4b",
        "registry.example/shop/web:2",
    );
    create(Resource::Pods, stuck);
    create(Resource::Events, mount_failure("web-7d4b-stuck", 5));
    // The same name in another namespace, a pod without an owner, and one of another workload.
    let mut other = deployed(ready_pod("other", "web-5c9f-x", 3_000), "5c9f", "web:1");
    other["metadata"]["uid"] = uid("other").into();
    create(Resource::Pods, other);
    let mut lone = ready_pod("shop", "lone", 2_000);
    lone["metadata"]["labels"] = json!({"app": "web"});
    create(Resource::Pods, lone);
    harness
}

#[tokio::test]
async fn a_deployment_is_explained_as_a_whole() {
    let harness = rolled_out().await;
    let text = harness.output(&["deployment", "web", "-n", "shop"]).await;
    insta::assert_snapshot!(text);
    for words in [
        &["deployment/web", "-n", "shop"][..],
        &["deploy", "shop/web"],
    ] {
        assert_eq!(harness.output(words).await, text, "{words:?}");
    }
    let (code, _, stderr) = harness.run(&["deployment/web"]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("deployment default/web not found"),
        "{stderr}"
    );
    let other = harness.output(&["deployment", "other/web"]).await;
    assert!(
        other.starts_with("Deployment other/web, revision 5c9f  1 pod: 1 ready"),
        "{other}"
    );
    harness.api.shutdown().await;
}

#[tokio::test]
async fn reports_are_documents_of_the_schema() {
    let harness = rolled_out().await;
    let schema = Schema::new(kubevitals_explain::document::SCHEMA);
    for words in [
        &["deployment", "shop/web"][..],
        &["node", "node-b-3"],
        &["--by=image"],
        &["--by=node", "--slowest=2"],
        &["--by=workload", "-n", "shop"],
        &["--by=pool", "-l", "app=web"],
        &["diff", "deployment", "shop/web", "3", "4"],
    ] {
        let json = harness.output(&[words, &["-o", "json"]].concat()).await;
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(schema.violation(&value), None, "{words:?}: {json}");
        let yaml = harness.output(&[words, &["-o", "yaml"]].concat()).await;
        assert!(
            yaml.contains("apiVersion: explain.kubevitals.io/v1alpha1\n"),
            "{yaml}"
        );
    }
    let json = harness
        .output(&["deployment", "shop/web", "-o", "json"])
        .await;
    let value: Value = serde_json::from_str(&json).unwrap();
    let starts = &value["starts"];
    assert_eq!(value["revision"], json!({"number": 4, "hash": "7d4b"}));
    assert_eq!(
        [&starts["pods"], &starts["ready"], &starts["starting"]],
        [13, 12, 1]
    );
    assert_eq!(
        [&starts["p50_seconds"], &starts["p95_seconds"]],
        [14.0, 52.0]
    );
    assert_eq!(starts["phases"][0]["phase"], "image_pull");
    assert_eq!(starts["causes"][2]["blocker"], "volumes");
    assert_eq!(value["outliers"][0]["name"], "node-b-3");
    assert_eq!(value["previous"]["starts"]["p95_seconds"], 9.0);
    assert_eq!(value["previous"]["image_changes"][0]["container"], "app");
    harness.api.shutdown().await;
}

#[tokio::test]
async fn groups_of_pods_are_ranked() {
    let harness = rolled_out().await;
    insta::assert_snapshot!(harness.output(&["--by", "workload"]).await);
    let by_node = harness
        .output(&["--by=node", "-n", "shop", "-l", "pod-template-hash=7d4b"])
        .await;
    let first = by_node.lines().nth(1).unwrap();
    assert!(first.contains("node-b-2"), "{by_node}");
    let by_image = harness.output(&["--by=image", "--slowest=1"]).await;
    assert!(
        by_image.ends_with("slowest 1 of 3 groups by image, of 19 pods\n"),
        "{by_image}"
    );
    let by_pool = harness.output(&["--by=pool", "-o", "wide"]).await;
    assert!(
        by_pool.contains("1.2 GB to node node-b-3 of pool c"),
        "{by_pool}"
    );
    let (code, _, stderr) = harness.run(&["--by=node", "-n", "nowhere"]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("no matching pods found"), "{stderr}");
    harness.api.shutdown().await;
}

#[tokio::test]
async fn a_node_is_explained_with_the_workloads_that_stand_out() {
    let harness = rolled_out().await;
    let text = harness.output(&["node", "node-b-1"]).await;
    assert!(text.starts_with("Node node-b-1  "), "{text}");
    assert!(text.contains("WORKLOADS THAT STAND OUT"), "{text}");
    assert!(text.contains("shop/lone (Pod)"), "{text}");
    let (code, _, stderr) = harness.run(&["node", "nowhere"]).await;
    assert_eq!(
        (code, stderr.contains("node nowhere not found")),
        (1, true),
        "{stderr}"
    );
    harness.api.shutdown().await;
}

#[tokio::test]
async fn missing_permissions_for_workloads_are_named() {
    let harness = rolled_out().await;
    let allow = |user: &str, rules: &[(&str, &str, &str)]| {
        for (verb, group, resource) in rules {
            harness
                .api
                .allow(Rule::for_user(user, [*verb], group, [*resource]));
        }
        let token = harness.api.issue_token(User::new(user, []), None).unwrap();
        let path = harness.write(user, &harness.api.kubeconfig_for_token(&token));
        format!("--kubeconfig={path}")
    };
    let none = allow("none", &[]);
    let (code, stdout, stderr) = harness.run(&["deployment", "shop/web", &none]).await;
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(
        stderr.contains("no permission to list pods in namespace shop"),
        "{stderr}"
    );
    // Pods alone: revisions by their newest pods, no pulls.
    let pods = allow("pods", &[("list", "", "pods"), ("get", "", "pods")]);
    let (code, stdout, stderr) = harness.run(&["deployment", "shop/web", &pods]).await;
    assert_eq!(code, 0, "{stderr}");
    for right in [
        "get deployments.apps in namespace shop",
        "list replicasets.apps in namespace shop",
        "list events in namespace shop",
    ] {
        assert!(
            stderr.contains(&format!("no permission to {right}")),
            "{stderr}"
        );
    }
    assert!(
        stdout.starts_with("Deployment shop/web, revision 7d4b  13 pods"),
        "{stdout}"
    );
    let (code, _, stderr) = harness.run(&["--by=pool", &pods]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("no permission to list nodes"), "{stderr}");
    let (code, _, stderr) = harness.run(&["node", "node-b-1", &none]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no permission to list pods in all namespaces"),
        "{stderr}"
    );
    harness.api.shutdown().await;
}

#[tokio::test]
async fn revisions_are_compared_with_an_exit_status() {
    let harness = rolled_out().await;
    let web = ["diff", "deployment", "shop/web"];
    let run = async |more: &[&str]| harness.run(&[&web[..], more].concat()).await;
    let (code, text, stderr) = run(&["3", "4", "--min-pods=4"]).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    insta::assert_snapshot!(text);
    // By hash, and by default the newest with the one before.
    assert_eq!(run(&["5c9f", "7d4b", "--min-pods=4"]).await.1, text);
    assert_eq!(run(&["--min-pods=4"]).await.1, text);
    for (thresholds, code, expected) in [
        (
            &["--threshold=p50=30s"][..],
            0,
            "p50=30s: within, p50 is 14 s\n",
        ),
        (
            &["--threshold=p50=+10s"],
            0,
            "p50=+10s: within, p50 is 14 s, before 9 s\n",
        ),
        (
            &["--threshold=p50=+20%"],
            2,
            "p50=+20%: beyond, p50 is 14 s, allowed 10 s, before 9 s\n",
        ),
        // The pod that cannot mount its volumes counts with its time so far.
        (
            &["--threshold=max=60s"],
            2,
            "max=1m0s: beyond, max is 3 h 5 min, allowed 60 s\n",
        ),
        (
            &["--threshold=p50=30s", "--threshold=p95=1s"],
            2,
            "p95=1s: beyond",
        ),
    ] {
        let words = [&["3", "4", "--min-pods=4"][..], thresholds].concat();
        let (found, stdout, stderr) = run(&words).await;
        assert_eq!(found, code, "{thresholds:?}: {stderr}");
        assert!(stdout.contains(expected), "{thresholds:?}: {stdout}");
        assert_eq!(stderr.is_empty(), code == 0, "{stderr}");
    }
    let (code, stdout, stderr) = run(&["3", "4", "--threshold=p95=+20%"]).await;
    assert_eq!(code, 3, "{stderr}");
    assert!(stdout.contains("too few pods for a verdict"), "{stdout}");
    let (code, _, stderr) = run(&["2", "4"]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("no pods of revision 2"), "{stderr}");
    assert!(
        stderr.contains("revision 4 (7d4b), revision 3 (5c9f)"),
        "{stderr}"
    );
    harness.api.shutdown().await;
}

#[tokio::test]
async fn recorded_lines_are_compared_without_a_cluster() {
    let harness = rolled_out().await;
    let lines = async |selector: &str| {
        let words = ["--slowest=50", "-n", "shop", "-l", selector, "-o", "json"];
        harness.output(&words).await
    };
    let before = harness.write("before.jsonl", &lines("pod-template-hash=5c9f").await);
    let after = lines("pod-template-hash=7d4b").await;
    // A record that is repeated counts once; what is no record is reported.
    let after = format!("{after}{after}\nno record\n");
    let after = harness.write("after.jsonl", &after);
    let words = [
        "diff",
        &before,
        &after,
        "--min-pods=4",
        "--threshold=p50=+20%",
        "--kubeconfig=/nowhere",
    ];
    let (code, stdout, stderr) = harness.run(&words).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("after.jsonl: 1 lines are no records of pods"),
        "{stderr}"
    );
    assert!(stdout.contains("image of app"), "{stdout}");
    assert!(
        stdout.contains("web:1 → registry.example/shop/web:2"),
        "{stdout}"
    );
    let json = harness.run(&[&words[..], &["-o", "json"]].concat()).await.1;
    let value: Value = serde_json::from_str(&json).unwrap();
    let schema = Schema::new(kubevitals_explain::document::SCHEMA);
    assert_eq!(schema.violation(&value), None, "{json}");
    assert_eq!(value["after"]["starts"]["pods"], 13);
    assert_eq!(value["checks"][0]["outcome"], "beyond");
    let (code, _, stderr) = harness.run(&["diff", &before, "/nowhere.jsonl"]).await;
    assert_eq!(
        (code, stderr.contains("cannot read /nowhere.jsonl")),
        (1, true),
        "{stderr}"
    );
    let (code, _, stderr) = harness
        .run(&["diff", &before, &after, "-n", "nowhere"])
        .await;
    assert_eq!(
        (code, stderr.contains("has no starts")),
        (1, true),
        "{stderr}"
    );
    harness.api.shutdown().await;
}

#[tokio::test]
async fn a_rollout_without_its_replica_sets_is_ordered_by_its_pods() {
    let harness = rolled_out().await;
    for hash in ["5c9f", "7d4b"] {
        let writer = harness.api.writer();
        writer
            .delete(Resource::ReplicaSets, Some("shop"), &format!("web-{hash}"))
            .unwrap();
    }
    let text = harness.output(&["deployment", "shop/web"]).await;
    // Its newest pod is the one that waits.
    assert!(
        text.starts_with("Deployment shop/web, revision 7d4b  13 pods"),
        "{text}"
    );
    assert!(text.contains("revision 5c9f"), "{text}");
    harness.api.shutdown().await;
}

#[tokio::test]
async fn a_workload_without_pods_is_an_error_and_one_that_never_starts_is_explained() {
    let harness = Harness::empty().await;
    harness.create(Resource::Deployments, deployment("shop"));
    let (code, _, stderr) = harness.run(&["deployment", "shop/web"]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no pods of deployment shop/web found"),
        "{stderr}"
    );
    let pod = deployed(waiting_pod("web-1a-x"), "1a", "web:1");
    harness.create(Resource::Pods, pod);
    let text = harness.output(&["deployment", "shop/web"]).await;
    assert!(text.contains("1 pod: 1 starting"), "{text}");
    assert!(
        text.contains("no pod became ready; starting for up to 3 h 5 min"),
        "{text}"
    );
    assert!(text.contains("no node fits"), "{text}");
    harness.api.shutdown().await;
}

/// A simulated cluster, stepped through ten minutes of the past.
struct Simulated {
    harness: Harness,
    workload: Workload,
}

impl Simulated {
    async fn start() -> Self {
        let harness = Harness::empty().await;
        let config = WorkloadConfig {
            leases: false,
            event_lifetime_millis: 3_600_000,
            ..WorkloadConfig::default()
        };
        let nodes = NodeSet::new(3, "node", Seed::new(7));
        let workload = Workload::new(config, nodes, Seed::new(7));
        Self { harness, workload }
    }

    /// Its nodes join.
    fn populate(&mut self) {
        let writer = self.harness.api.writer();
        self.workload.populate(at(0), &*writer);
    }

    fn launch(&mut self, manifest: Manifest, second: i64) {
        let writer = self.harness.api.writer();
        self.workload.launch("sim", manifest, at(second), &*writer);
    }

    fn finish(mut self) -> Harness {
        let writer = self.harness.api.writer();
        // Namespaces that the API server has by itself are not written again.
        let rejected = self.workload.rejected_writes();
        self.workload.step(at(600), &*writer);
        assert_eq!(self.workload.rejected_writes(), rejected);
        self.harness
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_millis(START + second * 1_000)
}

fn template(name: &str, delay: Option<Delay>) -> PodTemplate {
    let mut container = ContainerTemplate::new("app", &["/bin/sleep", "1d"]);
    container.image = "registry.example/app:1".into();
    container.pull = Pull::Takes {
        milliseconds: 3_000,
        bytes: 40_000_000,
    };
    let mut template = PodTemplate::new(vec![container]).label("app", name);
    template.delay = delay;
    template
}

#[tokio::test]
async fn delays_of_a_simulated_cluster_are_told_apart() {
    let mut cluster = Simulated::start().await;
    let delays = [
        (
            "scaled",
            Delay::NewNode {
                milliseconds: 40_000,
            },
            "waited for a new node for 40 s",
        ),
        (
            "stored",
            Delay::Volume {
                milliseconds: 25_000,
            },
            "attaching volumes took 25 s",
        ),
        ("mounts", Delay::MountFails { times: 5 }, "volumes took"),
        (
            "network",
            Delay::NetworkFails { times: 5 },
            "setting up the network took",
        ),
    ];
    for (index, (name, delay, _)) in delays.iter().enumerate() {
        let manifest = Manifest::Deployment {
            name: (*name).to_owned(),
            replicas: 6,
            template: template(name, Some(*delay)),
        };
        // The first waits for nodes that join later.
        if index == 0 {
            cluster.launch(manifest, -20);
            cluster.populate();
        } else {
            cluster.launch(manifest, 1);
        }
    }
    let harness = cluster.finish();
    for (name, _, cause) in delays {
        let text = harness.output(&["deployment", name, "-n", "sim"]).await;
        assert!(text.contains("6 pods: 6 ready"), "{text}");
        assert!(text.contains("revision 1 ("), "{text}");
        assert!(text.contains(cause), "{text}");
    }
    let text = harness.output(&["deployment", "sim/mounts"]).await;
    assert!(
        text.contains("(failed 5 times): MountVolume.SetUp failed"),
        "{text}"
    );
    harness.api.shutdown().await;
}

#[tokio::test]
async fn workloads_of_a_simulated_cluster_are_explained() {
    let mut cluster = Simulated::start().await;
    cluster.populate();
    let set = Manifest::StatefulSet {
        name: "db".to_owned(),
        replicas: 3,
        template: template("db", None),
    };
    cluster.launch(set, 1);
    let mut quick = template("load", None);
    quick.containers[0].exit = Some((5_000, 0));
    quick.restart = kubevitals_sim::workload::RestartPolicy::Never;
    let job = Manifest::Job {
        name: "load".to_owned(),
        completions: 25,
        template: quick,
        ttl_seconds: None,
    };
    cluster.launch(job, 1);
    let harness = cluster.finish();
    let set = harness.run(&["statefulset", "sim/db"]).await;
    // The simulated API server has no ControllerRevisions.
    assert!(set.2.contains("ordered by their newest pods"), "{}", set.2);
    assert!(set.1.contains("3 pods: 3 ready"), "{}", set.1);
    let job = harness.output(&["job", "load", "-n", "sim"]).await;
    assert!(job.starts_with("Job sim/load  25 pods: "), "{job}");
    assert!(job.contains("image of app"), "{job}");
    let node = harness.output(&["node", "node-00000"]).await;
    assert!(node.contains("ready after p50"), "{node}");
    harness.api.shutdown().await;
}

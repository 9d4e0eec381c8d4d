//! `kubevitals explain` against a simulated API server.

use std::process::Command;
use std::time::{Duration, SystemTime};

use kubevitals_model::Timestamp;
use kubevitals_sim::api::{Rule, SimApi, SimApiConfig, SimApiHandle, User};
use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::schema::Schema;
use crate::{kubevitals, output};

mod workloads;

/// A simulated cluster and a kubeconfig of an administrator.
struct Harness {
    api: SimApiHandle,
    folder: TempDir,
}

/// Seconds of one day long ago, as the API writes them.
fn stamp(second: i64) -> String {
    let time = Timestamp::from_unix_millis(1_794_773_520_000 + second * 1_000);
    time.rfc3339_seconds().to_string()
}

fn ago(duration: Duration) -> String {
    let time = SystemTime::now() - duration;
    Timestamp::from_system_time(time)
        .rfc3339_seconds()
        .to_string()
}

fn uid(name: &str) -> String {
    let number = name.bytes().fold(0_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    format!("00000000-0000-4000-8000-{:012}", number % 1_000_000_000_000)
}

/// A pod that was created at second 0 and ready at `ready`, with one container that ran two seconds
/// before.
fn ready_pod(namespace: &str, name: &str, ready: i64) -> Value {
    let condition = |kind: &str, second: i64| json!({"type": kind, "status": "True", "lastTransitionTime": stamp(second)});
    json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid(name), "creationTimestamp": stamp(0),
            "labels": {"app": name.split('-').next()},
        },
        "spec": {
            "nodeName": "node-b-1",
            "containers": [{"name": "app", "image": "registry.example/shop/web:2", "readinessProbe": {}}],
        },
        "status": {
            "phase": "Running",
            "startTime": stamp(1),
            "conditions": [
                condition("PodScheduled", 1), condition("PodReadyToStartContainers", 3),
                condition("Initialized", 1), condition("ContainersReady", ready), condition("Ready", ready),
            ],
            "containerStatuses": [{
                "name": "app", "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": stamp(ready - 2)}},
            }],
        },
    })
}

/// An unschedulable pod.
fn waiting_pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": uid(name), "creationTimestamp": ago(Duration::from_mins(185))},
        "spec": {"containers": [{"name": "app", "image": "web:2"}]},
        "status": {
            "phase": "Pending",
            "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/3 nodes are available: 3 Insufficient cpu.",
                "lastTransitionTime": ago(Duration::from_mins(185)),
            }],
        },
    })
}

fn event(pod: &str, name: &str, reason: &str, message: &str, second: i64) -> Value {
    json!({
        "metadata": {"name": format!("{pod}.{name}"), "namespace": "shop", "creationTimestamp": stamp(second)},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": pod, "uid": uid(pod), "fieldPath": "spec.containers{app}"},
        "reason": reason, "message": message, "type": "Normal", "count": 1,
        "firstTimestamp": stamp(second), "lastTimestamp": stamp(second),
    })
}

impl Harness {
    async fn empty() -> Self {
        kubevitals_tls::install_crypto_provider();
        let api = SimApi::start(SimApiConfig::default()).await.unwrap();
        let harness = Self {
            api,
            folder: tempfile::tempdir().unwrap(),
        };
        harness.write("config", &harness.api.kubeconfig());
        harness
    }

    /// Two pods, of which one pulled its image for long, one that waits, and the node that they are
    /// on.
    async fn start() -> Self {
        let harness = Self::empty().await;
        harness.create(
            Resource::Nodes,
            json!({"metadata": {"name": "node-b-1", "labels": {"cloud.google.com/gke-nodepool": "b"}}}),
        );
        harness.create(Resource::Pods, ready_pod("shop", "web-1", 52));
        harness.create(Resource::Pods, ready_pod("shop", "web-2", 9));
        harness.create(Resource::Pods, waiting_pod("stuck"));
        let pulled = "Successfully pulled image \"registry.example/shop/web:2\" in 40.5s (41.25s including waiting). \
                      Image size: 1234567890 bytes.";
        harness.create(
            Resource::Events,
            event("web-1", "a", "Pulling", "Pulling image", 5),
        );
        harness.create(Resource::Events, event("web-1", "b", "Pulled", pulled, 46));
        harness
    }

    fn create(&self, resource: Resource, object: Value) {
        self.api.writer().create(resource, object).unwrap();
    }

    fn write(&self, name: &str, kubeconfig: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, kubeconfig).unwrap();
        path.display().to_string()
    }

    /// The program as a user of this cluster runs it.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = kubevitals(&["explain"]);
        command.args(args);
        command.env("KUBECONFIG", self.folder.path().join("config"));
        command.env("HOME", self.folder.path());
        command
    }

    async fn run(&self, args: &[&str]) -> (i32, String, String) {
        run(self.command(args)).await
    }

    /// Standard output of a successful run.
    async fn output(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args).await;
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        stdout
    }

    /// A kubeconfig of a user with these permissions alone.
    fn reader(&self, name: &str, rules: &[(&str, &str)]) -> String {
        for (verb, resource) in rules {
            self.api
                .allow(Rule::for_user(name, [*verb], "", [*resource]));
        }
        let token = self.api.issue_token(User::new(name, []), None).unwrap();
        let path = self.write(name, &self.api.kubeconfig_for_token(&token));
        format!("--kubeconfig={path}")
    }
}

/// Runs the program on a thread, while the cluster serves on this runtime.
async fn run(mut command: Command) -> (i32, String, String) {
    let done = tokio::task::spawn_blocking(move || output(&mut command));
    done.await.unwrap()
}

#[tokio::test]
async fn one_pod_is_explained_with_bytes_node_and_pool() {
    let harness = Harness::start().await;
    insta::assert_snapshot!(harness.output(&["pod", "shop/web-1"]).await);
    // By any form of its name.
    let expected = harness.output(&["pod", "shop/web-1"]).await;
    for words in [
        &["pod", "web-1", "-n", "shop"][..],
        &["pod/web-1", "--namespace=shop"],
    ] {
        assert_eq!(harness.output(words).await, expected);
    }
    harness.api.shutdown().await;
}

#[tokio::test]
async fn the_namespace_is_that_of_the_context() {
    let harness = Harness::start().await;
    let text = harness.run(&["pod", "web-1"]).await;
    assert_eq!(text.0, 1);
    assert!(text.2.contains("pod default/web-1 not found"), "{}", text.2);
    assert!(text.2.contains("kubevitals replay"), "{}", text.2);
    // A context of another file, which the list of files adds.
    let config = kube::config::Kubeconfig::from_yaml(&harness.api.kubeconfig()).unwrap();
    let known = config.contexts[0].context.clone().unwrap();
    let (cluster, user) = (known.cluster, known.user.unwrap());
    let more = format!(
        "contexts: [{{name: shop, context: {{cluster: {cluster}, user: {user}, namespace: shop}}}}]"
    );
    let more = harness.write("more", &more);
    let mut command = harness.command(&["pod", "web-1", "--context=shop"]);
    let files = [harness.folder.path().join("config"), more.into()];
    command.env("KUBECONFIG", std::env::join_paths(files).unwrap());
    let (code, stdout, stderr) = run(command).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.starts_with("shop/web-1  ready after 52 s"),
        "{stdout}"
    );
    harness.api.shutdown().await;
}

#[tokio::test]
async fn a_pod_that_is_not_ready_is_explained_up_to_now() {
    let harness = Harness::start().await;
    let text = harness.output(&["pod", "shop/stuck"]).await;
    assert!(
        text.starts_with("shop/stuck  still starting after 3 h 5 min\n"),
        "{text}"
    );
    assert!(
        text.contains("not ready yet: no node fits, for 3 h 5 min"),
        "{text}"
    );
    assert!(text.contains("3 Insufficient cpu"), "{text}");
    harness.api.shutdown().await;
}

#[tokio::test]
async fn lines_are_those_of_the_schema() {
    let harness = Harness::start().await;
    let text = harness
        .output(&["pod", "web-1", "stuck", "-n", "shop", "-o", "json"])
        .await;
    let schema = Schema::new(kubevitals_jsonl::SCHEMA);
    let mut kinds = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(schema.violation(&value), None, "{line}");
        let metrics = &value["kube_transition_metrics"];
        kinds.push(format!("{} {}", metrics["pod_name"], metrics["type"]).replace('"', ""));
    }
    let expected = [
        "web-1 image_pull",
        "web-1 pod",
        "web-1 container",
        "web-1 lifecycle",
        "stuck pod",
        "stuck container",
        "stuck lifecycle",
    ];
    assert_eq!(kinds, expected);
    harness.api.shutdown().await;
}

#[tokio::test]
async fn a_readiness_flap_does_not_make_a_pod_one_of_the_slowest() {
    let harness = Harness::start().await;
    let mut flapped = ready_pod("shop", "web-3", 1_728_000);
    let state = json!({"running": {"startedAt": stamp(5)}});
    flapped["status"]["containerStatuses"][0]["state"] = state;
    harness.create(Resource::Pods, flapped);
    let text = harness
        .output(&["--slowest=3", "-n", "shop", "-l", "app=web"])
        .await;
    let place = |name: &str| text.find(name).unwrap();
    assert!(
        place("web-1") < place("web-2") && place("web-2") < place("web-3"),
        "{text}"
    );
    assert!(text.contains("ready, at most"), "{text}");
    let drawn = harness.output(&["pod", "shop/web-3"]).await;
    assert!(drawn.contains("ready after at most 480 h"), "{drawn}");
    harness.api.shutdown().await;
}

#[tokio::test]
async fn the_slowest_come_first() {
    let harness = Harness::start().await;
    // More than one page, and nothing that belongs among the slowest.
    for number in 0..620 {
        let mut pod = ready_pod("load", &format!("quick-{number}"), 4);
        pod["metadata"]["uid"] = format!("00000000-0000-4000-8000-9{number:011}").into();
        harness.create(Resource::Pods, pod);
    }
    let text = harness.output(&["--slowest", "3"]).await;
    insta::assert_snapshot!(text);
    let shop = harness
        .output(&["--slowest=10", "-n", "shop", "-l", "app=web"])
        .await;
    assert!(
        shop.ends_with("slowest 2 of 2 pods, 2 of them ready at some time\n"),
        "{shop}"
    );
    let recent = harness.output(&["--slowest", "--since=4h"]).await;
    assert!(
        recent.ends_with("slowest 1 of 1 pods, 0 of them ready at some time\n"),
        "{recent}"
    );
    let wide = harness
        .output(&["--slowest=10", "-l", "app=web", "-o", "wide"])
        .await;
    assert!(wide.contains("  node-b-1  b  "), "{wide}");
    assert!(
        wide.contains("1.2 GB to node node-b-1 of pool b\n"),
        "{wide}"
    );
    let drawn = harness
        .output(&["--slowest=2", "-n", "shop", "-o", "waterfall"])
        .await;
    assert!(drawn.contains("2 pods, 1 of them ready"), "{drawn}");
    let lines = harness
        .output(&["--slowest=2", "-n", "shop", "-o", "json"])
        .await;
    assert_eq!(
        lines.matches("\"type\":\"lifecycle\"").count(),
        2,
        "{lines}"
    );
    let (code, _, stderr) = harness.run(&["--slowest", "-n", "nowhere"]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("no matching pods found"), "{stderr}");
    harness.api.shutdown().await;
}

#[tokio::test]
async fn missing_permissions_are_named() {
    let harness = Harness::start().await;
    let none = harness.reader("none", &[]);
    let (code, stdout, stderr) = harness.run(&["pod", "shop/web-1", &none]).await;
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(
        stderr.contains("no permission to get pods in namespace shop"),
        "{stderr}"
    );
    assert!(
        stderr.contains("User \"none\" cannot get resource \"pods\""),
        "{stderr}"
    );
    let (code, _, stderr) = harness.run(&["--slowest", &none]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no permission to list pods in all namespaces"),
        "{stderr}"
    );

    // Without events there is no pull, without nodes no pool; of these only events are missed.
    let some = harness.reader("some", &[("get", "pods"), ("list", "pods")]);
    let (code, stdout, stderr) = harness.run(&["pod", "shop/web-1", &some]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("no permission to list events in namespace shop"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stdout.contains("start of app") && !stdout.contains("pool"),
        "{stdout}"
    );
    let (code, stdout, stderr) = harness.run(&["--slowest", &some]).await;
    assert_eq!((code, stderr.lines().count()), (0, 1), "{stderr}");
    assert!(stdout.contains("shop/web-1"), "{stdout}");
    let events = harness.reader("events", &[("get", "pods"), ("list", "events")]);
    let (code, stdout, stderr) = harness.run(&["pod", "shop/web-1", &events]).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("1.2 GB to node node-b-1\n"), "{stdout}");
    harness.api.shutdown().await;
}

#[tokio::test]
async fn watch_waits_until_the_pod_is_ready() {
    let harness = Harness::start().await;
    let command = harness.command(&["pod", "shop/late", "--watch"]);
    let text = tokio::spawn(run(command));
    // It need not exist yet.
    let mut pod = ready_pod("shop", "late", 9);
    let status = pod["status"].take();
    harness.create(Resource::Pods, pod.clone());
    pod["status"] = status;
    harness.api.writer().replace(Resource::Pods, pod).unwrap();
    let text = tokio::time::timeout(crate::DEADLINE, text).await.unwrap();
    let (code, stdout, stderr) = text.unwrap();
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("shop/late  ready after 9 s"), "{stdout}");
    harness.api.shutdown().await;
}

#[tokio::test]
async fn an_unreachable_cluster_is_an_error() {
    let mut harness = Harness::start().await;
    harness.api.stop().await;
    let (code, _, stderr) = harness.run(&["pod", "shop/web-1"]).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("cannot get pods in namespace shop"),
        "{stderr}"
    );
}

#[test]
fn contradictory_flags_exit_64() {
    for (flags, expected) in [
        (&[][..], "kubevitals explain pod NAMESPACE/NAME"),
        (&["rollout", "web"], "no pod given"),
        (&["deployment"], "no name given"),
        (&["diff", "a.jsonl"], "nothing to compare"),
        (&["diff", "a", "b", "--threshold=p95=soon"], "p95=30s"),
        (&["deployment", "web", "--by=node"], "cannot be combined"),
        (
            &["pod", "web", "--slowest=2"],
            "cannot be combined with the name of a pod",
        ),
        (&["--slowest=0"], "--slowest"),
        (&["pod", "web", "--kubeconfig=/nowhere"], "/nowhere"),
    ] {
        let (code, stdout, text) = output(kubevitals(&["explain"]).args(flags));
        assert_eq!((code, stdout.as_str()), (64, ""), "{flags:?}: {text}");
        assert!(text.contains(expected), "{flags:?}: {text}");
    }
}

#[test]
fn help_of_the_explanation_says_what_it_needs() {
    let (code, stdout, _) = output(&mut kubevitals(&["explain", "--help"]));
    assert_eq!(code, 0);
    insta::assert_snapshot!(stdout);
}

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

/// A cluster to ask, and a kubeconfig of somebody who may.
struct Asked {
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
    let number = name
        .bytes()
        .fold(0_u64, |sum, byte| sum * 31 + u64::from(byte));
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

/// A pod that no node can take.
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

impl Asked {
    /// Two pods, of which one pulled its image for long, one that waits, and the node that they are
    /// on.
    async fn start() -> Self {
        kubevitals_tls::install_crypto_provider();
        let api = SimApi::start(SimApiConfig::default()).await.unwrap();
        let asked = Self {
            api,
            folder: tempfile::tempdir().unwrap(),
        };
        asked.write("config", &asked.api.kubeconfig());
        asked.create(
            Resource::Nodes,
            json!({"metadata": {"name": "node-b-1", "labels": {"cloud.google.com/gke-nodepool": "b"}}}),
        );
        asked.create(Resource::Pods, ready_pod("shop", "web-1", 52));
        asked.create(Resource::Pods, ready_pod("shop", "web-2", 9));
        asked.create(Resource::Pods, waiting_pod("stuck"));
        let pulled = "Successfully pulled image \"registry.example/shop/web:2\" in 40.5s (41.25s including waiting). \
                      Image size: 1234567890 bytes.";
        asked.create(
            Resource::Events,
            event("web-1", "a", "Pulling", "Pulling image", 5),
        );
        asked.create(Resource::Events, event("web-1", "b", "Pulled", pulled, 46));
        asked
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

    async fn ask(&self, args: &[&str]) -> (i32, String, String) {
        run(self.command(args)).await
    }

    /// What is printed, where nothing is wrong.
    async fn told(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.ask(args).await;
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        stdout
    }

    /// Somebody who may do this alone.
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

/// The cluster answers on this runtime while the program asks.
async fn run(mut command: Command) -> (i32, String, String) {
    let done = tokio::task::spawn_blocking(move || output(&mut command));
    done.await.unwrap()
}

#[tokio::test]
async fn one_pod_is_explained_with_bytes_node_and_pool() {
    let asked = Asked::start().await;
    insta::assert_snapshot!(asked.told(&["pod", "shop/web-1"]).await);
    // However it is named.
    let expected = asked.told(&["pod", "shop/web-1"]).await;
    for words in [
        &["pod", "web-1", "-n", "shop"][..],
        &["pod/web-1", "--namespace=shop"],
    ] {
        assert_eq!(asked.told(words).await, expected);
    }
    asked.api.shutdown().await;
}

#[tokio::test]
async fn the_namespace_is_that_of_the_context() {
    let asked = Asked::start().await;
    let told = asked.ask(&["pod", "web-1"]).await;
    assert_eq!(told.0, 1);
    assert!(told.2.contains("pod default/web-1 not found"), "{}", told.2);
    assert!(told.2.contains("kubevitals replay"), "{}", told.2);
    // A context of another file, which the list of files adds.
    let config = kube::config::Kubeconfig::from_yaml(&asked.api.kubeconfig()).unwrap();
    let known = config.contexts[0].context.clone().unwrap();
    let (cluster, user) = (known.cluster, known.user.unwrap());
    let more = format!(
        "contexts: [{{name: shop, context: {{cluster: {cluster}, user: {user}, namespace: shop}}}}]"
    );
    let more = asked.write("more", &more);
    let mut command = asked.command(&["pod", "web-1", "--context=shop"]);
    let files = [asked.folder.path().join("config"), more.into()];
    command.env("KUBECONFIG", std::env::join_paths(files).unwrap());
    let (code, stdout, stderr) = run(command).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.starts_with("shop/web-1  ready after 52 s"),
        "{stdout}"
    );
    asked.api.shutdown().await;
}

#[tokio::test]
async fn a_pod_that_waits_is_told_so_far() {
    let asked = Asked::start().await;
    let told = asked.told(&["pod", "shop/stuck"]).await;
    assert!(
        told.starts_with("shop/stuck  still starting after 3 h 5 min\n"),
        "{told}"
    );
    assert!(
        told.contains("not ready yet: no node fits, for 3 h 5 min"),
        "{told}"
    );
    assert!(told.contains("3 Insufficient cpu"), "{told}");
    asked.api.shutdown().await;
}

#[tokio::test]
async fn lines_are_those_of_the_schema() {
    let asked = Asked::start().await;
    let told = asked
        .told(&["pod", "web-1", "stuck", "-n", "shop", "-o", "json"])
        .await;
    let schema = Schema::new(kubevitals_jsonl::SCHEMA);
    let mut kinds = Vec::new();
    for line in told.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(schema.violation(&value), None, "{line}");
        let metrics = &value["kube_transition_metrics"];
        kinds.push(format!("{} {}", metrics["pod_name"], metrics["type"]).replace('"', ""));
    }
    let expected = [
        "web-1 pod",
        "web-1 container",
        "web-1 image_pull",
        "web-1 lifecycle",
        "stuck pod",
        "stuck container",
        "stuck lifecycle",
    ];
    assert_eq!(kinds, expected);
    asked.api.shutdown().await;
}

#[tokio::test]
async fn the_slowest_come_first() {
    let asked = Asked::start().await;
    // More than one page, and nothing that belongs among the slowest.
    for number in 0..620 {
        let mut pod = ready_pod("load", &format!("quick-{number}"), 4);
        pod["metadata"]["uid"] = format!("00000000-0000-4000-8000-9{number:011}").into();
        asked.create(Resource::Pods, pod);
    }
    let told = asked.told(&["--slowest", "3"]).await;
    insta::assert_snapshot!(told);
    let shop = asked
        .told(&["--slowest=10", "-n", "shop", "-l", "app=web"])
        .await;
    assert!(
        shop.ends_with("slowest 2 of 2 pods, 2 of them ready at some time\n"),
        "{shop}"
    );
    let recent = asked.told(&["--slowest", "--since=4h"]).await;
    assert!(
        recent.ends_with("slowest 1 of 1 pods, 0 of them ready at some time\n"),
        "{recent}"
    );
    let wide = asked
        .told(&["--slowest=10", "-l", "app=web", "-o", "wide"])
        .await;
    assert!(wide.contains("  node-b-1  b  "), "{wide}");
    assert!(
        wide.contains("1.2 GB to node node-b-1 of pool b\n"),
        "{wide}"
    );
    let drawn = asked
        .told(&["--slowest=2", "-n", "shop", "-o", "waterfall"])
        .await;
    assert!(drawn.contains("2 pods, 1 of them ready"), "{drawn}");
    let lines = asked
        .told(&["--slowest=2", "-n", "shop", "-o", "json"])
        .await;
    assert_eq!(
        lines.matches("\"type\":\"lifecycle\"").count(),
        2,
        "{lines}"
    );
    let (code, _, stderr) = asked.ask(&["--slowest", "-n", "nowhere"]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("no matching pods found"), "{stderr}");
    asked.api.shutdown().await;
}

#[tokio::test]
async fn what_is_not_allowed_is_named() {
    let asked = Asked::start().await;
    let nobody = asked.reader("nobody", &[]);
    let (code, stdout, stderr) = asked.ask(&["pod", "shop/web-1", &nobody]).await;
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(
        stderr.contains("no permission to get pods in namespace shop"),
        "{stderr}"
    );
    assert!(
        stderr.contains("User \"nobody\" cannot get resource \"pods\""),
        "{stderr}"
    );
    let (code, _, stderr) = asked.ask(&["--slowest", &nobody]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no permission to list pods in all namespaces"),
        "{stderr}"
    );

    // Without events there is no pull, without nodes no pool; of these only events are missed.
    let some = asked.reader("some", &[("get", "pods"), ("list", "pods")]);
    let (code, stdout, stderr) = asked.ask(&["pod", "shop/web-1", &some]).await;
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
    let (code, stdout, stderr) = asked.ask(&["--slowest", &some]).await;
    assert_eq!((code, stderr.lines().count()), (0, 1), "{stderr}");
    assert!(stdout.contains("shop/web-1"), "{stdout}");
    let events = asked.reader("events", &[("get", "pods"), ("list", "events")]);
    let (code, stdout, stderr) = asked.ask(&["pod", "shop/web-1", &events]).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("1.2 GB to node node-b-1\n"), "{stdout}");
    asked.api.shutdown().await;
}

#[tokio::test]
async fn a_pod_is_followed_until_it_is_ready() {
    let asked = Asked::start().await;
    let command = asked.command(&["pod", "shop/late", "--watch"]);
    let told = tokio::spawn(run(command));
    // It need not exist when it is asked for.
    let mut pod = ready_pod("shop", "late", 9);
    let status = pod["status"].take();
    asked.create(Resource::Pods, pod.clone());
    pod["status"] = status;
    asked.api.writer().replace(Resource::Pods, pod).unwrap();
    let told = tokio::time::timeout(crate::server::DEADLINE, told)
        .await
        .unwrap();
    let (code, stdout, stderr) = told.unwrap();
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("shop/late  ready after 9 s"), "{stdout}");
    asked.api.shutdown().await;
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_a_failure() {
    let mut asked = Asked::start().await;
    asked.api.stop().await;
    let (code, _, stderr) = asked.ask(&["pod", "shop/web-1"]).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("cannot get pods in namespace shop"),
        "{stderr}"
    );
}

#[test]
fn what_cannot_be_meant_exits_64() {
    for (flags, said) in [
        (&[][..], "kubevitals explain pod NAMESPACE/NAME"),
        (&["deployment", "web"], "no pod given"),
        (
            &["pod", "web", "--slowest=2"],
            "cannot be combined with the name of a pod",
        ),
        (&["--slowest=0"], "--slowest"),
        (&["pod", "web", "--kubeconfig=/nowhere"], "/nowhere"),
    ] {
        let (code, stdout, told) = output(kubevitals(&["explain"]).args(flags));
        assert_eq!((code, stdout.as_str()), (64, ""), "{flags:?}: {told}");
        assert!(told.contains(said), "{flags:?}: {told}");
    }
}

#[test]
fn help_of_the_explanation_says_what_it_needs() {
    let (code, stdout, _) = output(&mut kubevitals(&["explain", "--help"]));
    assert_eq!(code, 0);
    insta::assert_snapshot!(stdout);
}

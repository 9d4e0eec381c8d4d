//! `deploy/server.yaml` as users apply it: in pods, with the rights, the read-only root and the
//! user of the manifest.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use kubevitals_e2e::{Burner, Cluster, InstalledServer, TestNamespace, is_ready};
use kubevitals_model::Timestamp;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::in_time;

/// Interval of each of the requests during restarts.
const INTERVAL: Duration = Duration::from_millis(100);

/// Rolling restarts under load, each of two replicas.
const ROLLING_RESTARTS: usize = 10;

/// The age of a sample that is served at the latest: three resolutions of the manifest, and the
/// interval at which a kubelet samples.
const MAX_AGE: Duration = Duration::from_mins(1);

/// The arguments of the server in its Deployment.
const ARGS: &str = "/spec/template/spec/containers/0/args";

/// Failures of one request that are kept, to be shown.
const MAX_SHOWN: usize = 5;

/// One request, repeated through the aggregation layer until it is stopped.
struct Repeated {
    path: String,
    stop: Arc<AtomicBool>,
    task: JoinHandle<Outcome>,
}

/// The responses to one request.
#[derive(Debug, Default)]
struct Outcome {
    requests: u64,
    failed: u64,
    /// Responses without the burner.
    gaps: u64,
    /// The first failures and gaps.
    shown: Vec<String>,
    slowest: Duration,
    /// The age of the oldest sample.
    oldest: Duration,
    /// How much older a sample was than one that had been served before.
    backwards: Duration,
}

impl Repeated {
    fn start(client: kube::Client, path: String, namespace: &TestNamespace) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(repeat(
            client,
            path.clone(),
            namespace.name().to_owned(),
            Arc::clone(&stop),
        ));
        Self { path, stop, task }
    }

    async fn finish(self) -> (String, Outcome) {
        self.stop.store(true, Ordering::Relaxed);
        (self.path, self.task.await.unwrap())
    }
}

impl Outcome {
    fn record(
        &mut self,
        answer: Result<Value, kube::Error>,
        namespace: &str,
        newest: &mut Option<Timestamp>,
    ) {
        self.requests += 1;
        let object = match answer {
            Ok(object) => object,
            Err(error) => {
                self.failed += 1;
                self.show(&error);
                return;
            }
        };
        let Some(pod) = burner(&object, namespace) else {
            self.gaps += 1;
            self.show(&object);
            return;
        };
        let at: Timestamp = pod["timestamp"].as_str().unwrap().parse().unwrap();
        let now = Timestamp::from_system_time(std::time::SystemTime::now());
        self.oldest = self.oldest.max(now.since(at).unwrap_or_default());
        let newest = newest.get_or_insert(at);
        self.backwards = self.backwards.max(newest.since(at).unwrap_or_default());
        *newest = at.max(*newest);
    }

    fn show(&mut self, what: &dyn fmt::Display) {
        if self.shown.len() < MAX_SHOWN {
            let now = Timestamp::from_system_time(std::time::SystemTime::now());
            let mut text = format!("{now}: {what}");
            text.truncate(text.floor_char_boundary(500));
            self.shown.push(text);
        }
    }
}

async fn repeat(
    client: kube::Client,
    path: String,
    namespace: String,
    stop: Arc<AtomicBool>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut newest = None;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let request = Request::get(&path).body(Vec::new()).unwrap();
        let sent = Instant::now();
        let answer = client.request::<Value>(request).await;
        outcome.slowest = outcome.slowest.max(sent.elapsed());
        outcome.record(answer, &namespace, &mut newest);
    }
    outcome
}

/// Returns the burner in a list or a single object, if its container has CPU and memory. Nodes are
/// searched for any node.
fn burner<'a>(object: &'a Value, namespace: &str) -> Option<&'a Value> {
    let found = match object["items"].as_array() {
        None => object,
        Some(items) if object["kind"] == "NodeMetricsList" => items.first()?,
        Some(items) => items.iter().find(|item| {
            let metadata = &item["metadata"];
            metadata["name"] == "burner" && metadata["namespace"] == namespace
        })?,
    };
    let usage = found
        .pointer("/containers/0/usage")
        .or(found.get("usage"))?;
    (usage["cpu"].is_string() && usage["memory"].is_string()).then_some(found)
}

/// Returns a client that sends a request once: the default one retries what it was refused.
fn client_without_retries(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    let mut config = cluster.config();
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

async fn until_served(namespace: &TestNamespace) {
    let path = format!(
        "/apis/metrics.k8s.io/v1/namespaces/{}/pods/burner",
        namespace.name()
    );
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    in_time("metrics of the burner", async {
        loop {
            ticks.tick().await;
            if namespace.kubectl(&["get", "--raw", &path]).await.is_ok() {
                return;
            }
        }
    })
    .await;
}

async fn our_pods(cluster: &Cluster) -> anyhow::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "kube-system");
    let ours = ListParams::default().labels("app.kubernetes.io/component=server");
    Ok(pods.list(&ours).await?.items)
}

#[tokio::test]
async fn the_shipped_manifest_serves_kubectl_and_both_versions() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("deploy").await?;
    let burner_pod = Burner::new("burner").cpu_millicores(100);
    namespace.apply(&burner_pod.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let server = InstalledServer::install(&namespace).await?;

    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "kube-system");
    let deployment = deployments.get("kubevitals-server").await?;
    let replicas = deployment.status.unwrap().ready_replicas;
    assert_eq!(replicas, Some(2), "on one node too");
    for pod in our_pods(&cluster).await? {
        let context = &pod.spec.as_ref().unwrap().containers[0].security_context;
        let context = context.as_ref().unwrap();
        assert_eq!(context.read_only_root_filesystem, Some(true));
        assert_eq!(context.run_as_non_root, Some(true));
        let statuses = pod.status.unwrap().container_statuses.unwrap();
        assert_eq!(statuses[0].restart_count, 0, "{statuses:?}");
    }

    until_served(&namespace).await;
    for version in ["v1", "v1beta1"] {
        let own = format!("namespaces/{}/pods", namespace.name());
        for (resource, kind) in [
            ("nodes", "NodeMetricsList"),
            (own.as_str(), "PodMetricsList"),
        ] {
            let path = format!("/apis/metrics.k8s.io/{version}/{resource}");
            let list = namespace.kubectl(&["get", "--raw", &path]).await?;
            let list: Value = serde_json::from_str(&list)?;
            assert_eq!(list["kind"], kind);
            assert_eq!(list["apiVersion"], format!("metrics.k8s.io/{version}"));
            assert!(burner(&list, namespace.name()).is_some(), "{list}");
        }
    }
    let pods = namespace.kubectl(&["top", "pods", "--no-headers"]).await?;
    assert!(pods.starts_with("burner "), "{pods}");
    let nodes = namespace.kubectl(&["top", "nodes", "--no-headers"]).await?;
    assert!(nodes.starts_with(cluster.node_name()), "{nodes}");
    server.remove(&namespace).await?;
    Ok(namespace.finish().await?)
}

/// During rolling updates of the manifest no client sees one: no request is refused or cut, and no
/// response lacks a pod.
#[tokio::test]
async fn rolling_restarts_fail_no_request_and_leave_no_gap() -> anyhow::Result<()> {
    /// A new replica waits for a resolution while another serves: with the 15 s of the manifest
    /// most of the test would be that wait. The age at which usage is stale is that of the
    /// manifest.
    const SHORTER: [&str; 2] = ["--metric-resolution=3s", "--staleness=45s"];
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("rollout").await?;
    let burner_pod = Burner::new("burner").cpu_millicores(50);
    namespace.apply(&burner_pod.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let server = InstalledServer::install_changed(&namespace, |manifest| {
        let deployment = manifest.object_mut("Deployment", "kubevitals-server");
        let args = deployment.unwrap().pointer_mut(ARGS).unwrap();
        let args = args.as_array_mut().unwrap();
        args.extend(SHORTER.map(Value::from));
    })
    .await?;
    until_served(&namespace).await;

    let client = client_without_retries(&cluster)?;
    let own = format!("v1beta1/namespaces/{}/pods/burner", namespace.name());
    let load: Vec<Repeated> = ["v1/pods", &own, "v1beta1/nodes"]
        .map(|path| {
            let path = format!("/apis/metrics.k8s.io/{path}");
            Repeated::start(client.clone(), path, &namespace)
        })
        .into();
    let began = Instant::now();
    for restart in 1..=ROLLING_RESTARTS {
        let restarting = Instant::now();
        server.rolling_restart(&namespace).await?;
        println!("rolling restart {restart}: {:?}", restarting.elapsed());
    }
    // Under load until the last of the old pods is gone.
    in_time("the end of the old pods", async {
        let mut ticks = tokio::time::interval(INTERVAL);
        while our_pods(&cluster).await?.len() > 2 {
            ticks.tick().await;
        }
        anyhow::Ok(())
    })
    .await?;
    println!("{ROLLING_RESTARTS} rolling restarts: {:?}", began.elapsed());
    let mut outcomes = Vec::new();
    for repeated in load {
        let (path, outcome) = repeated.finish().await;
        println!("{path}: {outcome:#?}");
        outcomes.push((path, outcome));
    }
    for (path, outcome) in &outcomes {
        assert_eq!(outcome.failed, 0, "{path}: {outcome:#?}");
        assert_eq!(outcome.gaps, 0, "{path}: {outcome:#?}");
        assert!(outcome.requests > 50, "{path}: {outcome:#?}");
        assert!(outcome.oldest <= MAX_AGE, "{path}: {outcome:#?}");
    }
    server.remove(&namespace).await?;
    Ok(namespace.finish().await?)
}

//! The Helm chart, in a namespace that enforces the Pod Security Standard `restricted`.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kubevitals_e2e::{
    Cluster, Inventory, Manifest, Prometheus, Release, ServingPair, TestNamespace,
};
use serde_json::{Value, json};

use crate::in_time;
use crate::monitoring::{assert_queries, rule_files};
use crate::server::deployment;

/// Interval at which a command is repeated.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The Secret of a certificate from elsewhere.
const SECRET: &str = "serving";

/// Repeats a `kubectl` command until it succeeds with an output as wanted.
async fn until(
    namespace: &TestNamespace,
    arguments: &[&str],
    is_wanted: impl Fn(&str) -> bool,
) -> String {
    in_time(&arguments.join(" "), async {
        loop {
            if let Ok(output) = namespace.kubectl(arguments).await
                && is_wanted(&output)
            {
                return output;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await
}

/// Asserts that both versions of the API are available and verified, and returns the CAs in force.
async fn authorities(namespace: &TestNamespace, release: &Release) -> anyhow::Result<String> {
    release.available(namespace).await?;
    let api: Api<APIService> = Api::all(namespace.cluster().client());
    let mut bundles = Vec::new();
    for version in ["v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"] {
        let spec = api.get(version).await?.spec.unwrap();
        assert_ne!(spec.insecure_skip_tls_verify, Some(true), "{version}");
        let bundle = spec.ca_bundle.unwrap_or_default();
        assert!(!bundle.0.is_empty(), "{version} has no caBundle");
        bundles.push(String::from_utf8(bundle.0)?);
    }
    // Through the aggregation layer, which verifies the certificate.
    let node = namespace.cluster().node_name();
    let named = |top: &str| top.contains(node);
    until(namespace, &["top", "nodes", "--no-headers"], named).await;
    for version in ["v1", "v1beta1"] {
        let path = format!("/apis/metrics.k8s.io/{version}/nodes");
        until(namespace, &["get", "--raw", &path], named).await;
    }
    Ok(bundles.swap_remove(0))
}

/// Waits until all pods of a Deployment of the release are ready: Helm waits until some are.
async fn until_ready(namespace: &TestNamespace, component: &str, pods: i32) -> anyhow::Result<()> {
    let all = |found: Option<&Deployment>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| {
            status.ready_replicas == Some(pods) && status.replicas == Some(pods)
        })
    };
    let name = format!("kubevitals-{component}");
    namespace.wait_for(&name, all).await?;
    Ok(())
}

/// Reads the heap of the image's program, which is static. Forwarded connections come from the
/// loopback of the pod, whose users need no permission.
async fn assert_heap_profile(namespace: &TestNamespace) -> anyhow::Result<()> {
    let folder = namespace.folder().display();
    let script = format!(
        "cd '{folder}'; export PPROF_TMPDIR=$PWD; \
         (kubectl port-forward deployment/kubevitals-combined :8080 > forward.txt 2>&1) & \
         for i in $(seq 100); do \
         port=$(sed -n 's/.*127.0.0.1:\\([0-9]*\\) .*/\\1/p' forward.txt); \
         test -n \"$port\" && break; sleep 0.2; done; \
         go tool pprof -top http://127.0.0.1:$port/debug/pprof/heap; \
         pkill -TERM -P $! || true; wait"
    );
    let top = namespace.shell(&script).await?;
    assert!(top.contains("Type: inuse_space"), "{top}");
    assert!(top.contains("kubevitals"), "{top}");
    Ok(())
}

/// A pod that the namespace must reject, or it enforces nothing.
async fn assert_restricted(namespace: &TestNamespace) -> anyhow::Result<()> {
    let run = ["run", "root", "--image=any", "--dry-run=server"];
    let run = [&run[..], &["--namespace", namespace.name()]].concat();
    let rejected = namespace.cluster().kubectl(&run).await?;
    assert!(!rejected.success);
    let reason = "violates PodSecurity \"restricted";
    assert!(rejected.stderr.contains(reason), "{}", rejected.stderr);
    Ok(())
}

/// An HPA scales by the usage that the release serves.
async fn assert_scaling(load: &TestNamespace) -> anyhow::Result<()> {
    load.apply(&deployment(true)).await?;
    load.apply(&json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 2,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
            }}],
        },
    }))
    .await?;
    load.wait_for("web", |web: Option<&Deployment>| {
        let status = web.and_then(|web| web.status.as_ref());
        status.is_some_and(|status| status.ready_replicas == Some(2))
    })
    .await?;
    Ok(())
}

/// The leader writes a line for each pod that has started.
async fn assert_lines(namespace: &TestNamespace, load: &TestNamespace, component: &str) {
    let selector = format!("--selector=app.kubernetes.io/component={component}");
    let logs = ["logs", &selector, "--tail=-1"];
    until(namespace, &logs, |logs| {
        let lines = logs
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines
            .filter(|line: &Value| {
                let record = &line["kube_transition_metrics"];
                record["type"] == "pod" && record["kube_namespace"] == load.name()
            })
            .count()
            >= 2
    })
    .await;
}

/// Prometheus finds the pods by the monitors of the chart, and queries return values.
async fn assert_metrics(
    namespace: &TestNamespace,
    load: &TestNamespace,
    values: &Value,
    targets: usize,
) -> anyhow::Result<()> {
    let mut values = values.clone();
    values["serviceMonitor"] = json!({"enabled": true});
    values["transitions"] = json!({"podMonitor": {"enabled": true}});
    let monitors = Release::rendered(namespace, &values).await?;
    let mut prometheus = Prometheus::start(namespace, &monitors, &rule_files()).await?;
    prometheus
        .until("up{job!=\"kubelet-resource\"} == 1", |series| {
            series.len() == targets
        })
        .await?;
    // The namespace of the pod that started, not that of the target: `honorLabels`.
    let started = format!(
        "sum(kubevitals_pod_startups_total{{namespace=\"{}\"}}) > 0",
        load.name()
    );
    for query in [
        started.as_str(),
        "sum(metrics_server_storage_points{type=\"container\"}) > 0",
        "min(kubevitals_apiserver_ca_bundle_in_sync) == 1",
        "sum(kubevitals_transitions_leader) == 1",
        "count(count by (pod) (process_resident_memory_bytes{job=\"kubevitals\"})) > 1",
    ] {
        prometheus.until(query, |series| !series.is_empty()).await?;
    }
    assert_queries(&mut prometheus).await
}

#[tokio::test]
async fn a_release_serves_changes_and_leaves_nothing_behind() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    // Objects of other tests would come and go meanwhile.
    let _alone = cluster.exclusive().await;
    let namespace = cluster.namespace("chart").await?;
    let load = cluster.namespace("chart-load").await?;
    let release = Release::prepare(&namespace).await?;
    assert_restricted(&namespace).await?;
    let before = Inventory::take(&cluster).await?;

    let values = json!({"metrics": {"enabled": true}, "networkPolicy": {"enabled": true}});
    let installed = release
        .install(&namespace, &values, &[])
        .await?
        .succeeded()?;
    assert!(installed.contains("kubectl top nodes"), "{installed}");
    authorities(&namespace, &release).await?;
    for component in ["server", "transitions"] {
        until_ready(&namespace, component, 2).await?;
    }
    until(&namespace, &["top", "pods", "--no-headers"], |top| {
        top.lines().count() == 4
    })
    .await;
    assert_scaling(&load).await?;
    assert_lines(&namespace, &load, "transitions").await;
    assert_metrics(&namespace, &load, &values, 4).await?;

    // A certificate from elsewhere: the APIServices have its CA, and no right to change them.
    let pair = ServingPair::sign(&format!("kubevitals-server.{}.svc", namespace.name()))?;
    let encode = |pem: &str| STANDARD.encode(pem);
    namespace
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET},
            "type": "kubernetes.io/tls",
            "data": {
                "tls.crt": encode(&pair.certificate),
                "tls.key": encode(&pair.key),
                "ca.crt": encode(&pair.authority),
            },
        }))
        .await?;
    let values = json!({
        "replicas": 1,
        "tls": {"type": "existingSecret", "existingSecret": {"name": SECRET}},
    });
    release.upgrade(&namespace, &values).await?.succeeded()?;
    // A replica that was about to be replaced may have added its own once more.
    let bundle = authorities(&namespace, &release).await?;
    assert!(bundle.contains(&pair.authority), "{bundle}");
    until_ready(&namespace, "server", 1).await?;
    let right = ["get", "clusterrole", "kubevitals-server-apiservices"];
    assert!(!cluster.kubectl(&right).await?.success);

    // The server writes its own CA again.
    release.rollback(&namespace, 1).await?;
    let own = authorities(&namespace, &release).await?;
    assert_ne!(own, pair.authority);
    until_ready(&namespace, "server", 2).await?;

    let values = json!({
        "combined": true,
        "metrics": {"enabled": true},
        "args": ["--profiling"],
    });
    release.upgrade(&namespace, &values).await?.succeeded()?;
    authorities(&namespace, &release).await?;
    until_ready(&namespace, "combined", 2).await?;
    assert_heap_profile(&namespace).await?;
    for component in ["server", "transitions"] {
        let name = format!("kubevitals-{component}");
        let found = namespace.api::<Deployment>().get_opt(&name).await?;
        assert!(found.is_none(), "{component}");
    }
    let restarted = ["rollout", "restart", "deployment/web"];
    load.kubectl(&restarted).await?;
    assert_lines(&namespace, &load, "combined").await;
    assert_metrics(&namespace, &load, &values, 2).await?;

    release.uninstall(&namespace).await?;
    namespace.kubectl(&["delete", "secret", SECRET]).await?;
    load.finish().await?;
    before.until_nothing_is_added(&cluster).await?;
    Ok(namespace.finish().await?)
}

/// Waits until a page of some pod of a component has a line that starts with this.
async fn until_exposed(namespace: &TestNamespace, component: &str, start: &str) {
    let script = format!(
        "for pod in $(kubectl get pods -o name -l app.kubernetes.io/component={component}); do \
         kubectl get --raw \"/api/v1/namespaces/{}/pods/${{pod#pod/}}:8080/proxy/metrics\"; done",
        namespace.name()
    );
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time(start, async {
        loop {
            ticks.tick().await;
            let page = namespace.shell(&script).await.unwrap_or_default();
            if page.lines().any(|line| line.starts_with(start)) {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_prober_and_the_reader_of_nodes_run_with_their_rights() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    // The DaemonSets tolerate all taints, also those of virtual nodes of other tests.
    let _alone = cluster.exclusive().await;
    let namespace = cluster.namespace("chart-nodes").await?;
    let release = Release::prepare_privileged().await;
    let values = json!({
        "server": {"enabled": false},
        "transitions": {"enabled": false},
        "node": {"enabled": true},
        "prober": {"enabled": true, "reportInterval": "2s"},
    });
    release
        .install(&namespace, &values, &[])
        .await?
        .succeeded()?;
    for (component, start) in [
        ("prober", "kubevitals_prober_cluster_node_condition{"),
        ("prober-node", "kubevitals_prober_node_condition{"),
        ("node", "kubevitals_host_"),
    ] {
        until_exposed(&namespace, component, start).await;
    }
    release.uninstall(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn what_is_rendered_from_the_chart_is_committed() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let checked = cluster.tool(&["manifests", "--check"]).await?;
    assert!(checked.success, "{}{}", checked.stdout, checked.stderr);
    Ok(())
}

#[tokio::test]
async fn wrong_values_are_rejected_with_the_reason() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("chart-values").await?;
    for (values, reason) in [
        (json!({"replica": 2}), "replica"),
        (json!({"tls": {"type": "helm"}}), "tls"),
        (json!({"replicas": "two"}), "replicas"),
        (
            json!({"hostNetwork": {"enabled": true}}),
            "needs another containerPort",
        ),
        (
            json!({"serviceMonitor": {"enabled": true}}),
            "needs metrics.enabled",
        ),
        (
            json!({"tls": {"type": "existingSecret"}}),
            "needs tls.existingSecret.name",
        ),
        (
            json!({"tls": {"type": "existingSecret", "existingSecret": {"name": "s"}}}),
            "set apiService.caBundle",
        ),
        (
            json!({"apiService": {"insecureSkipTLSVerify": true, "caBundle": "PEM"}}),
            "exclude each other",
        ),
        (
            json!({"prober": {"enabled": true, "providers": ["stackdriver"]}}),
            "providers",
        ),
        (
            json!({"combined": true, "server": {"enabled": false}, "transitions": {"enabled": false}}),
            "at least one enabled role",
        ),
    ] {
        let error = Release::rendered(&namespace, &values).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(reason), "{values}: {error}");
    }
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn kustomize_builds_what_the_manifests_have() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    // Nobody else may own the objects.
    let _alone = cluster.exclusive().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize");
    let build = async |name: &str| -> anyhow::Result<Manifest> {
        let folder = folder.join(name).display().to_string();
        let dry = ["apply", "--dry-run=server", "-k", &folder];
        cluster.kubectl(&dry).await?.succeeded()?;
        let built = cluster.kubectl(&["kustomize", &folder]).await?;
        Ok(Manifest::parse(&built.succeeded()?)?)
    };
    let sorted = |manifests: &[Manifest]| {
        let mut objects: Vec<String> = manifests
            .iter()
            .flat_map(Manifest::objects)
            .map(Value::to_string)
            .collect();
        objects.sort();
        objects
    };
    let plain = [
        Manifest::read("server.yaml")?,
        Manifest::read("transitions.yaml")?,
    ];
    let base = build("base").await?;
    assert_eq!(sorted(&[base]), sorted(&plain));

    let mut ha = build("ha").await?;
    let server = ha.object_mut("Deployment", "kubevitals-server").unwrap();
    assert_eq!(server["spec"]["replicas"], 3);
    let pod = &server["spec"]["template"]["spec"];
    assert_eq!(
        pod["topologySpreadConstraints"][0]["whenUnsatisfiable"],
        "DoNotSchedule"
    );
    let flags = pod["containers"][0]["args"].as_array().unwrap();
    assert_eq!(flags.last().unwrap(), "--goaway-chance=0.001");
    Ok(())
}

//! Records of pods of every kind on a real node, also across a restart of the API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kubevitals_e2e::{Cluster, RecordReader, Stop, TestNamespace, has_condition};
use serde_json::{Value, json};

const IMAGE: &str = "kubevitals.test/busybox:1";

/// A container that never needs to be pulled.
pub(crate) fn container(name: &str, script: &str) -> Value {
    json!({
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
    })
}

/// Returns the spec of a pod without a grace period.
pub(crate) fn spec(containers: &Value, rest: &Value) -> Value {
    let mut spec = json!({"terminationGracePeriodSeconds": 0, "containers": containers});
    for (key, value) in rest.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn workload(kind: &str, group: &str, name: &str, spec: &Value, rest: &Value) -> Value {
    let mut manifest = json!({
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    });
    for (key, value) in rest.as_object().unwrap() {
        manifest["spec"][key] = value.clone();
    }
    manifest
}

/// One of each kind of start.
fn workloads() -> Vec<Value> {
    let idle = container("main", "exec sleep 3600");
    let mut late = container("main", "sleep 1; touch /tmp/ok; exec sleep 3600");
    late["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/tmp/ok"]}, "periodSeconds": 1});
    // Without the probe both would be ready while they run, and it would be chance whether
    // that is observed.
    let never = json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
    let mut crashing = container("main", "exit 3");
    crashing["readinessProbe"] = never.clone();
    let mut done = container("main", "true");
    done["readinessProbe"] = never;
    let mut sidecar = container("sidecar", "exec sleep 3600");
    sidecar["restartPolicy"] = json!("Always");
    let mut absent = container("main", "true");
    // Nothing listens there.
    absent["image"] = json!("127.0.0.1:9/absent:1");
    absent["imagePullPolicy"] = json!("IfNotPresent");
    let two = |name: &str| json!({"replicas": 2, "selector": {"matchLabels": {"app": name}}});
    vec![
        workload(
            "Deployment",
            "apps/v1",
            "web",
            &spec(&json!([late]), &json!({})),
            &two("web"),
        ),
        workload(
            "StatefulSet",
            "apps/v1",
            "db",
            &spec(&json!([idle]), &json!({})),
            &two("db"),
        ),
        workload(
            "Job",
            "batch/v1",
            "once",
            &spec(&json!([done]), &json!({"restartPolicy": "Never"})),
            &json!({}),
        ),
        pod("crashing", &spec(&json!([crashing]), &json!({}))),
        pod(
            "accompanied",
            &spec(
                &json!([idle]),
                &json!({"initContainers": [sidecar, container("first", "true")]}),
            ),
        ),
        pod(
            "gated",
            &spec(
                &json!([idle]),
                &json!({"readinessGates": [{"conditionType": "example.com/open"}]}),
            ),
        ),
        pod("absent", &spec(&json!([absent]), &json!({}))),
    ]
}

/// Returns the records of a type, by the names of their pods.
pub(crate) fn records<'l>(lines: &'l [Value], kind: &str) -> BTreeMap<&'l str, Vec<&'l Value>> {
    let mut found: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for line in lines {
        let record = &line["kube_transition_metrics"];
        if record["type"] == kind {
            let name = record["pod_name"].as_str().unwrap();
            found.entry(name).or_default().push(record);
        }
    }
    found
}

/// Returns whether a container of a pod waits for this reason.
pub(crate) fn waits_for(pod: Option<&Pod>, reason: &str) -> bool {
    let status = pod.and_then(|pod| pod.status.as_ref());
    let mut containers = status
        .into_iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    containers.any(|container| {
        let waiting = container
            .state
            .as_ref()
            .and_then(|state| state.waiting.as_ref());
        waiting.and_then(|waiting| waiting.reason.as_deref()) == Some(reason)
    })
}

async fn pods(namespace: &TestNamespace) -> Vec<Pod> {
    let listed = namespace.api::<Pod>().list(&ListParams::default()).await;
    listed.unwrap().items
}

/// Returns the seconds from creation until a condition became true, from the API.
fn seconds_until(pod: &Pod, condition: &str) -> Option<f64> {
    let created = pod.metadata.creation_timestamp.as_ref()?;
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let held = conditions
        .iter()
        .find(|held| held.type_ == condition && held.status == "True")?;
    let since = held.last_transition_time.as_ref()?;
    Some(since.0.duration_since(created.0).as_secs_f64())
}

/// Asserts one record for each of the nine pods, and the phases of its critical path.
fn assert_lifecycles(lines: &[Value]) {
    let (pods, lifecycles) = (records(lines, "pod"), records(lines, "lifecycle"));
    assert_eq!(pods.len(), 9, "{pods:#?}");
    for (name, records) in &pods {
        assert_eq!(records.len(), 1, "{name}: {records:#?}");
    }
    let lifecycle = |name: &str| &lifecycles[name].last().unwrap()["lifecycle"];
    assert_eq!(lifecycle("crashing")["incomplete"]["kind"], "crash_loop");
    assert_eq!(
        lifecycle("crashing")["containers"][0]["last_exit"]["code"],
        3
    );
    assert_eq!(
        lifecycle("absent")["incomplete"]["kind"],
        "image_pull_failed"
    );
    let pull = &lifecycle("absent")["containers"][0]["image_pull"];
    assert!(pull["failures"].as_u64() > Some(0), "{pull}");
    let once = lifecycles
        .keys()
        .find(|name| name.starts_with("once-"))
        .unwrap();
    assert_eq!(lifecycle(once)["phase"], "Succeeded");
    assert_eq!(lifecycle("gated")["complete"], true);
    assert_eq!(
        lifecycle("gated")["readiness_gates"][0]["condition"],
        "example.com/open"
    );
    let roles: Vec<&Value> = lifecycle("accompanied")["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| &container["role"])
        .collect();
    assert_eq!(roles, ["sidecar", "init", "main"]);
    for name in pods.keys().filter(|name| name.starts_with("web-")) {
        let record = pods[name][0];
        assert_eq!(record["kube_deployment"], "web", "{record}");
        // On a busy machine any phase can be the longest.
        let path = lifecycle(name)["critical_path"].as_array().unwrap();
        let readiness = path.iter().find(|piece| piece["phase"] == "readiness");
        let waited = readiness.and_then(|piece| piece["seconds"].as_f64());
        assert!(waited >= Some(1.0), "{path:#?}");
    }
}

/// Returns the output of `kubevitals explain`, which needs only the API server.
pub(crate) async fn explain(namespace: &TestNamespace, arguments: &[&str]) -> String {
    let program = namespace.cluster().program("kubevitals").unwrap();
    let output = tokio::process::Command::new(program)
        .arg("explain")
        .arg("--kubeconfig")
        .arg(namespace.cluster().kubeconfig())
        .args(arguments)
        .output()
        .await
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that a late start and a missing one are explained in words, and that the list of the
/// slowest has all of them.
async fn assert_explained(namespace: &TestNamespace, pods: &[Pod]) {
    let names = pods.iter().filter_map(|pod| pod.metadata.name.as_deref());
    let names: Vec<&str> = names.collect();
    let web = names.iter().find(|name| name.starts_with("web-")).unwrap();
    let web = explain(namespace, &["pod", &format!("{}/{web}", namespace.name())]).await;
    assert!(web.contains("readiness"), "{web}");
    let absent = format!("{}/absent", namespace.name());
    let absent = explain(namespace, &["pod", &absent]).await;
    assert!(absent.contains("127.0.0.1:9/absent:1"), "{absent}");
    let slowest = explain(
        namespace,
        &["--slowest", "20", "--namespace", namespace.name()],
    )
    .await;
    for name in names {
        assert!(slowest.contains(name), "{name} is not in:\n{slowest}");
    }
    println!("{web}\n{absent}\n{slowest}");
}

#[tokio::test]
async fn every_start_ends_in_one_record() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("starts").await?;
    let mut role = RecordReader::start(&namespace, &["--lifecycle"]).await?;
    for manifest in workloads() {
        namespace.apply(&manifest).await?;
    }
    let containers_are_ready = |pod: Option<&Pod>| has_condition(pod, "ContainersReady");
    namespace
        .wait_for::<Pod>("gated", containers_are_ready)
        .await?;
    let open = r#"{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}"#;
    let patch = [
        "patch",
        "pod",
        "gated",
        "--subresource=status",
        "--patch",
        open,
    ];
    namespace.kubectl(&patch).await?;

    // Two of web, two of db, one each of once, accompanied and gated.
    role.until("pods that start", |lines| records(lines, "pod").len() >= 7)
        .await?;
    let seen = pods(&namespace).await;
    assert_eq!(seen.len(), 9, "{seen:#?}");
    let emitted = records(role.lines(), "pod");
    for pod in &seen {
        let name = pod.metadata.name.as_deref().unwrap();
        if ["crashing", "absent"].contains(&name) {
            assert!(!emitted.contains_key(name), "{name} has not started");
            continue;
        }
        let records = &emitted[name];
        assert_eq!(records.len(), 1, "{name}: {records:#?}");
        let is_job = name.starts_with("once-");
        assert_eq!(records[0]["partial"], json!(is_job), "{name}: {records:#?}");
        let took = |field: &str| records[0]["pod"][field].as_f64();
        assert_eq!(
            took("creation_to_scheduled_seconds"),
            seconds_until(pod, "PodScheduled"),
            "{name}"
        );
        if !is_job {
            assert_eq!(
                took("creation_to_ready_seconds"),
                seconds_until(pod, "Ready"),
                "{name}"
            );
        }
    }

    // A pod that never starts is reported when it is deleted, with the reason.
    namespace
        .wait_for::<Pod>("crashing", |pod| waits_for(pod, "CrashLoopBackOff"))
        .await?;
    namespace
        .wait_for::<Pod>("absent", |pod| waits_for(pod, "ImagePullBackOff"))
        .await?;
    assert_explained(&namespace, &seen).await;
    for name in ["crashing", "absent"] {
        namespace.delete::<Pod>(name).await?;
    }
    role.until("pods that never start", |lines| {
        let ended = records(lines, "lifecycle");
        let is_final = |name| {
            ended
                .get(name)
                .is_some_and(|all| all.iter().any(|one| one["lifecycle"]["final"] == true))
        };
        is_final("crashing") && is_final("absent")
    })
    .await?;

    assert_lifecycles(&role.stop().await?);
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn no_start_is_lost_with_the_api_server() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let alone = cluster.exclusive().await;
    let namespace = cluster.namespace("outage").await?;
    let mut role = RecordReader::start(&namespace, &[]).await?;
    let idle = spec(&json!([container("main", "exec sleep 3600")]), &json!({}));
    let mut slow = container("main", "sleep 8; touch /tmp/ok; exec sleep 3600");
    slow["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/tmp/ok"]}, "periodSeconds": 1});
    // One is ready before the outage, one becomes ready during it.
    namespace.apply(&pod("before", &idle)).await?;
    namespace
        .apply(&pod("across", &spec(&json!([slow]), &json!({}))))
        .await?;
    role.until("the first", |lines| {
        records(lines, "pod").contains_key("before")
    })
    .await?;
    cluster
        .restart(&alone, "kube-apiserver", Stop::Kill)
        .await?;
    cluster.reconnect(&alone).await?;
    namespace.apply(&pod("after", &idle)).await?;
    role.until("all of them", |lines| records(lines, "pod").len() == 3)
        .await?;
    let metrics = role.metrics().await?;
    let lines = role.stop().await?;
    for (name, records) in records(&lines, "pod") {
        assert_eq!(records.len(), 1, "{name}: {records:#?}");
        assert_eq!(records[0]["partial"], false, "{name}: {records:#?}");
    }
    let restarts = metrics
        .lines()
        .find(|line| line.starts_with("pod_collector_restarts_total"));
    assert!(
        restarts.is_some_and(|line| !line.ends_with(" 0")),
        "{restarts:?}"
    );
    Ok(namespace.finish().await?)
}

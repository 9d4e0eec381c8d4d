//! `kubevitals prober` as a process, against an API server and backends of its own.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use kubevitals_model::Clock;
use kubevitals_sim::api::{Rule, SimApi, SimApiConfig, SimApiHandle, User};
use kubevitals_sim::google::{CloudMonitoring, GoogleIdentity};
use kubevitals_sim::objects::Resource;
use kubevitals_sim::otlp::OtlpReceiver;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{kubevitals, output};

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(2);

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// What docs/prober.md lists: verbs, API group, resources.
const PERMISSIONS: &[(&[&str], &str, &[&str])] = &[
    (&["list", "watch"], "", &["nodes", "pods"]),
    (&["list", "watch"], "apps", &["daemonsets", "deployments"]),
    (
        &["get", "create", "update"],
        "coordination.k8s.io",
        &["leases"],
    ),
];

/// A prober, killed when the test ends.
struct Program {
    child: Child,
    folder: TempDir,
}

async fn cluster() -> SimApiHandle {
    kubevitals_tls::install_crypto_provider();
    let api = SimApi::start(SimApiConfig::default()).await.unwrap();
    for (verbs, group, resources) in PERMISSIONS {
        let (verbs, resources) = (verbs.iter().copied(), resources.iter().copied());
        api.allow(Rule::for_user("prober", verbs, group, resources));
    }
    let writer = api.writer();
    for name in ["a", "b"] {
        let labels = json!({"cloud.google.com/gke-nodepool": "pool-1", "topology.kubernetes.io/zone": "z-a"});
        let ready = json!({"type": "Ready", "status": "True"});
        let node = json!({
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels},
            "status": {"conditions": [ready]},
        });
        writer.create(Resource::Nodes, node).unwrap();
    }
    let pod = json!({
        "metadata": {"name": "netd-a", "namespace": "kube-system", "labels": {"k8s-app": "netd"}},
        "spec": {"nodeName": "a", "containers": [{"name": "netd", "image": "netd:v1"}]},
        "status": {
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "netd", "ready": true, "restartCount": 3, "image": "", "imageID": "",
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            }],
        },
    });
    writer.create(Resource::Pods, pod).unwrap();
    api
}

impl Program {
    fn start(api: &SimApiHandle, more: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let token = api.issue_token(User::new("prober", []), None).unwrap();
        std::fs::write(path("kubeconfig"), api.kubeconfig_for_token(&token)).unwrap();
        let child = kubevitals(&["prober", "--listen-address=127.0.0.1:0"])
            .arg(format!("--kubeconfig={}", path("kubeconfig").display()))
            .args(more)
            // No metadata server, unless a test has one.
            .env("GCE_METADATA_HOST", "127.0.0.1:1")
            .env("NO_PROXY", "*")
            .envs(environment.iter().copied())
            .stdout(Stdio::from(File::create(path("out")).unwrap()))
            .stderr(Stdio::from(File::create(path("err")).unwrap()))
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    async fn admin(&self) -> String {
        let notice = || {
            let text = self.read("out") + &self.read("err");
            let rest = text.split_once("admin on http://")?.1.to_owned();
            Some(rest.split_once('\n')?.0.to_owned())
        };
        self.until("a notice", || notice().is_some()).await;
        notice().unwrap()
    }

    async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let waited = timeout(DEADLINE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            while !is_so() {
                ticks.tick().await;
            }
        });
        let is_in_time = waited.await.is_ok();
        assert!(is_in_time, "not in time: {what}: {}", self.read("err"));
    }

    /// The status code and the body of a page.
    async fn get(&self, path: &str) -> (u16, String) {
        let admin = self.admin().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
        let mut stream = TcpStream::connect(admin).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    /// Polls a page until it has a text.
    async fn until_page(&self, path: &str, wanted: &str) -> String {
        let mut last = String::new();
        let polled = timeout(DEADLINE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            loop {
                ticks.tick().await;
                last = self.get(path).await.1;
                if last.contains(wanted) {
                    return;
                }
            }
        });
        let is_so = polled.await.is_ok();
        assert!(
            is_so,
            "{path} has no {wanted}: {last}\n{}",
            self.read("err")
        );
        last
    }

    /// Waits for the end after a signal.
    async fn end(mut self) -> (ExitStatus, String, String) {
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(killed.success());
        let status = timeout(DEADLINE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                ticks.tick().await;
            }
        });
        let status = status.await.unwrap();
        (status, self.read("out"), self.read("err"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn all_providers_work_at_once_in_cluster_mode() {
    let api = cluster().await;
    let google = GoogleIdentity::start().await.unwrap();
    let gcm = CloudMonitoring::start(LOOPBACK, None, "sim-project", Clock::system());
    let gcm = gcm.await.unwrap();
    let receiver = OtlpReceiver::start(LOOPBACK, None).await.unwrap();
    let program = Program::start(
        &api,
        &[
            "--provider=gcm,otlp,prometheus",
            "--provider=jsonl",
            "--leader-elect",
            "--namespace=kube-system",
            &format!("--gcm-endpoint=http://{}", gcm.address),
            &format!("--otlp-endpoint=http://{}", receiver.address),
        ],
        &[
            ("GCE_METADATA_HOST", &google.address.to_string()),
            ("REPORT_INTERVAL", "5s"),
            ("METRIC_PREFIX", "kube-prober"),
            ("HOME", "/nonexistent"),
        ],
    );
    let condition = "workload.googleapis.com/kube-prober/cluster/node_condition";
    let is_condition = |name: &str| name == condition;
    let written = gcm.until(|received| {
        let mut names = received.points.iter().map(|point| &point.metric_type);
        names.any(|name| is_condition(name))
    });
    let written = timeout(DEADLINE, written).await;
    let written = written.unwrap_or_else(|_| panic!("{}", program.read("err")));
    let mut points = written.points.iter();
    let point = points.find(|point| is_condition(&point.metric_type));
    let point = point.unwrap();
    assert_eq!(point.resource_type, "k8s_cluster");
    assert_eq!(point.resource_labels["location"], "europe-west1");
    assert_eq!(point.resource_labels["cluster_name"], "sim-cluster");
    let labels: Vec<_> = point
        .metric_labels
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        labels,
        ["nodepool=pool-1", "status=True", "type=Ready", "zone=z-a"]
    );
    assert_eq!((&*point.kind, &*point.value_type), ("GAUGE", "INT64"));
    assert_eq!(point.value, json!({"int64Value": "2"}));
    let described = written.descriptors.iter();
    assert!(
        described
            .map(|one| one["type"].as_str())
            .any(|one| one == Some(condition))
    );

    let received = receiver.until(|received| {
        let mut points = received.points.iter();
        points.any(|point| point.name == "k8s.node.condition.status")
    });
    timeout(DEADLINE, received).await.unwrap();

    let metrics = program
        .until_page("/metrics", "kubevitals_prober_cluster_node_condition{")
        .await;
    assert!(metrics.contains("kubevitals_prober_leader 1"), "{metrics}");
    program
        .until("a line", || {
            program.read("out").contains("cluster/node_condition")
        })
        .await;
    let (status, liveness) = program.get("/liveness").await;
    assert_eq!(status, 200);
    assert_eq!(
        liveness,
        r#"{"services":[{"name":"cluster","healthy":true}],"errors":[],"healthy":true}"#
    );
    assert_eq!(program.get("/readyz").await.0, 200);
    assert_eq!(program.get("/livez").await.0, 200);

    let (status, out, err) = program.end().await;
    assert!(status.success(), "{err}");
    for line in out.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["name"].is_string(), "{line}");
    }
}

/// gke-prober panics without a metadata server and with a short host name.
#[tokio::test]
async fn node_mode_needs_no_metadata_server() {
    let api = cluster().await;
    let environment = [
        ("PROBER_MODE", "node"),
        ("NODE_NAME", "a"),
        ("NODE_IP", "192.0.2.1"),
        ("POD_IP", "192.0.2.1"),
    ];
    let program = Program::start(&api, &[], &environment);
    let metrics = program
        .until_page("/metrics", "kubevitals_prober_node_available{")
        .await;
    for series in [
        r#"kubevitals_prober_node_available{available="True",done_warming="True",node="a",nodepool="pool-1",ready="True",schedulable="True",zone="z-a"} 1"#,
        r#"addon="netd",available="True""#,
        r#"container_name="netd",controller="Pod",exit_code="1""#,
    ] {
        assert!(metrics.contains(series), "{series} in {metrics}");
    }
    assert_eq!(program.get("/readyz").await.0, 200);
    let (status, _, err) = program.end().await;
    assert!(status.success(), "{err}");
}

#[tokio::test]
async fn cloud_monitoring_is_the_default_on_gke() {
    let api = cluster().await;
    let google = GoogleIdentity::start().await.unwrap();
    let gcm = CloudMonitoring::start(LOOPBACK, None, "sim-project", Clock::system());
    let gcm = gcm.await.unwrap();
    let program = Program::start(
        &api,
        &[
            "--mode=node",
            "--node-name=a",
            &format!("--gcm-endpoint=http://{}", gcm.address),
        ],
        &[
            ("GCE_METADATA_HOST", &google.address.to_string()),
            ("HOME", "/nonexistent"),
        ],
    );
    let restart = "workload.googleapis.com/gke-prober/addon/restart";
    let written = gcm.until(|received| {
        let mut points = received.points.iter();
        points.any(|point| point.metric_type == restart)
    });
    let written = timeout(DEADLINE, written).await;
    let written = written.unwrap_or_else(|_| panic!("{}", program.read("err")));
    let mut points = written.points.iter();
    let point = points.find(|point| point.metric_type == restart).unwrap();
    assert_eq!(point.resource_type, "k8s_pod");
    assert_eq!(point.resource_labels["pod_name"], "netd-a");
    assert_eq!(
        (&*point.kind, &point.value),
        ("CUMULATIVE", &json!({"int64Value": "3"}))
    );
    let start = point.start.unwrap();
    assert_eq!(start.rfc3339_seconds().as_str(), "2026-01-01T00:00:00Z");
    let available = "workload.googleapis.com/gke-prober/node/available";
    let mut points = written.points.iter();
    let point = points.find(|point| point.metric_type == available).unwrap();
    assert_eq!(point.resource_type, "k8s_node");
    assert_eq!(point.resource_labels["node_name"], "a");
    assert_eq!(point.metric_labels["scheduleable"], "True");
    assert!(program.end().await.0.success());
}

#[tokio::test]
async fn probes_of_a_file_run_and_are_reloaded() {
    let api = cluster().await;
    let target = GoogleIdentity::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probes.yaml");
    let write = |names: &[&str]| {
        let probes: String = names
            .iter()
            .map(|name| {
                format!(
                    "  - {{name: {name}, module: tcp_connect, targets: ['{}'], interval: 1s}}\n",
                    target.address
                )
            })
            .collect();
        std::fs::write(&file, format!("probes:\n{probes}")).unwrap();
    };
    write(&["first"]);
    let flags = [
        &*format!("--probes={}", file.display()),
        "--probes-reload-interval=1s",
        "--provider=prometheus",
    ];
    let program = Program::start(&api, &flags, &[]);
    let up = |name: &str| {
        let address = target.address;
        format!(r#"kubevitals_probe_up{{probe="{name}",target="{address}"}} 1"#)
    };
    program.until_page("/metrics", &up("first")).await;
    let address = target.address;
    let (status, probed) = program
        .get(&format!("/probe?target={address}&module=tcp_connect"))
        .await;
    assert_eq!(status, 200);
    assert!(probed.contains("\nprobe_success 1\n"), "{probed}");
    let (status, _) = program
        .get("/probe?target=192.0.2.1:1&module=tcp_connect")
        .await;
    assert_eq!(status, 403);

    write(&["second"]);
    let metrics = program.until_page("/metrics", &up("second")).await;
    assert!(!metrics.contains(r#"probe="first""#), "{metrics}");
    std::fs::write(&file, "probes: 7").unwrap();
    program
        .until_page(
            "/metrics",
            "kubevitals_probes_config_last_reload_successful 0",
        )
        .await;
    program.until_page("/metrics", &up("second")).await;
    assert!(program.end().await.0.success());
}

#[tokio::test]
async fn probers_of_nodes_measure_paths_to_each_other() {
    let api = cluster().await;
    let writer = api.writer();
    // Nothing listens at the address of the third.
    for (node, address) in [("a", "127.0.0.1"), ("b", "127.0.0.2"), ("c", "127.0.0.3")] {
        if node == "c" {
            let node = json!({"metadata": {"name": node}});
            writer.create(Resource::Nodes, node).unwrap();
        }
        let pod = json!({
            "metadata": {"name": format!("prober-{node}"), "namespace": "kube-system", "labels": {"app": "prober"}},
            "spec": {"nodeName": node, "containers": [{"name": "prober", "image": "prober:v1"}]},
            "status": {
                "phase": "Running", "podIP": address,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        writer.create(Resource::Pods, pod).unwrap();
    }
    let flags = [
        "--provider=prometheus",
        "--namespace=kube-system",
        "--node-prober-selector=app=prober",
        "--report-interval=1s",
    ];
    let coordinator = Program::start(&api, &flags, &[]);
    coordinator.until_page("/mesh", r#""probers":3"#).await;
    let coordinator_flag = format!("--mesh-coordinator=http://{}", coordinator.admin().await);
    let start = |node: &str, listen: String| {
        let node_flag = format!("--node-name={node}");
        let flags = [
            "--mode=node",
            "--provider=prometheus",
            "--mesh-interval=1s",
            &*node_flag,
            &*coordinator_flag,
            &*listen,
        ];
        Program::start(&api, &flags, &[])
    };
    let a = start("a", "--listen-address=127.0.0.1:0".to_owned());
    let admin = a.admin().await;
    let port = admin.rsplit(':').next().unwrap();
    // All probers listen at the same port, each at an address of its own.
    let b = start("b", format!("--listen-address=127.0.0.2:{port}"));
    let is_measured = r#"mesh_duration_seconds_count{source_zone="z-a",target_zone="z-a"}"#;
    for program in [&a, &b] {
        program.until_page("/metrics", is_measured).await;
        let refused = r#"kubevitals_prober_mesh_pings_total{result="refused",source_zone="z-a",target_zone="Unknown"}"#;
        program.until_page("/metrics", refused).await;
    }
    let own = a.until_page(
        "/mesh",
        r#""node":"b","zone":"z-a","address":"127.0.0.2","result":"ok""#,
    );
    assert!(own.await.contains(r#""result":"refused""#));
    let matrix = coordinator
        .until_page(
            "/mesh",
            r#""failed":[{"source":"a","target":"c"},{"source":"b","target":"c"}]"#,
        )
        .await;
    assert!(
        matrix.contains(r#""source":"z-a","target":"z-a","pairs":"#),
        "{matrix}"
    );
    for program in [a, b, coordinator] {
        assert!(program.end().await.0.success());
    }
}

/// A node as large as real ones are: images and managed fields are most of it.
fn large_node(index: usize) -> Value {
    let images: Vec<_> = (0..30)
        .map(|image| json!({"names": [format!("registry.example.com/team/image-{image}@sha256:{image:064x}")], "sizeBytes": 1 << 28}))
        .collect();
    let kinds = [
        "Ready",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
    ];
    let condition = |kind: &str| json!({"type": kind, "status": if kind == "Ready" {"True"} else {"False"}, "reason": "Kubelet", "message": "as it should be"});
    json!({
        "metadata": {
            "name": format!("node-{index:05}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "cloud.google.com/gke-nodepool": format!("pool-{}", index % 20),
                "topology.kubernetes.io/zone": format!("z-{}", index % 3),
                "kubernetes.io/hostname": format!("node-{index:05}"),
            },
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:images": "x".repeat(2_000)}}}],
        },
        "status": {"conditions": kinds.map(condition), "images": images},
    })
}

/// The bar is 100 MiB for the program as it is shipped; this one is not optimized.
#[tokio::test]
async fn a_cluster_of_5000_nodes_fits_into_100_mib() {
    let api = cluster().await;
    let writer = api.writer();
    for index in 0..5_000 {
        writer.create(Resource::Nodes, large_node(index)).unwrap();
        let pod = json!({
            "metadata": {"name": format!("prober-{index}"), "namespace": "kube-system", "labels": {"app": "prober"}},
            "spec": {"nodeName": format!("node-{index:05}"), "containers": [{"name": "prober", "image": "prober:v1"}]},
            "status": {
                "phase": "Running", "podIP": "192.0.2.1",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        writer.create(Resource::Pods, pod).unwrap();
    }
    let flags = [
        "--provider=prometheus",
        "--namespace=kube-system",
        "--node-prober-selector=app=prober",
        "--report-interval=1s",
    ];
    let program = Program::start(&api, &flags, &[]);
    let metrics = program
        .until_page("/metrics", "kubevitals_prober_cluster_node_available{")
        .await;
    let available: u64 = metrics
        .lines()
        .filter(|line| {
            line.starts_with("kubevitals_prober_cluster_node_available{available=\"True\"")
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(available, 5_002);
    program
        .until_page(
            "/metrics",
            r#"kubevitals_prober_ticks_total{result="recorded"} 3"#,
        )
        .await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.child.id())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 100 << 10, "the peak is {} MiB", peak >> 10);
    assert!(program.end().await.0.success());
}

#[test]
fn bad_settings_are_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let run = |flags: &[&str], environment: &[(&str, &str)]| {
        let mut command = kubevitals(&["prober"]);
        command.args(flags).envs(environment.iter().copied());
        // Never a cluster of the user.
        command
            .env("KUBECONFIG", folder.path().join("none"))
            .env("HOME", folder.path());
        output(&mut command)
    };
    for (flags, environment, advice) in [
        (
            &[][..],
            &[("REPORT_INTERVAL", "1")][..],
            "such as 1m or 30s",
        ),
        (&["--report-interval=0s"], &[], "one second at least"),
        (&[], &[("PROBER_MODE", "pod")], "to cluster or node"),
        (&["--addon=web"], &[], "use NAME=SELECTOR"),
        (&["--addon=web=a in ("], &[], "use a label selector"),
        (&["--provider=otlp"], &[], "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (
            &["--mode=node", "--mesh-coordinator=prober"],
            &[],
            "use http://HOST:PORT",
        ),
    ] {
        let (code, _, err) = run(flags, environment);
        assert_eq!(code, 64, "{flags:?} {environment:?}: {err}");
        assert!(err.contains(advice), "{err}");
    }
}

#[test]
fn a_configuration_of_blackbox_exporter_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blackbox.yml");
    std::fs::write(
        &file,
        "modules:\n  web: {prober: http, timeout: 5s}\n  ping: {prober: icmp}\n",
    )
    .unwrap();
    let flag = format!("--convert-blackbox={}", file.display());
    let (code, out, err) = output(&mut kubevitals(&["prober", &flag]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("web:"), "{out}");
    assert!(
        !out.contains("\n  ping:") && out.contains("# line 3: "),
        "{out}"
    );
}

//! `kubevitals server` on a simulated cluster, from its flags to its responses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use kubevitals_cli::ShutdownTrigger;
use kubevitals_model::Clock;
use kubevitals_sim::cluster::{SimCluster, SimClusterConfig};
use kubevitals_sim::faults::Fault;
use kubevitals_sim::kubelet::Binding;
use kubevitals_sim::workload::WorkloadConfig;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::{Identity, get, get_as};
use crate::{DEADLINE, kubevitals, output, roles, within};

/// A server in this process.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    folder: TempDir,
    token: String,
    trigger: ShutdownTrigger,
    task: JoinHandle<Result<(), String>>,
}

impl Running {
    /// Starts it on a cluster, with an administrator's kubeconfig.
    pub(crate) async fn start(cluster: &SimCluster, more: &[&str]) -> Self {
        let flags: Vec<&str> = more.iter().copied().chain(["--roles=server"]).collect();
        Self::start_with(cluster, &flags, None).await
    }

    /// Starts the roles that `more` names, with the data of a role to `data`.
    pub(crate) async fn start_with(
        cluster: &SimCluster,
        more: &[&str],
        data: Option<Box<dyn std::io::Write + Send>>,
    ) -> Self {
        Self::start_as(cluster, &cluster.api().kubeconfig(), more, data).await
    }

    /// The same with another kubeconfig.
    pub(crate) async fn start_as(
        cluster: &SimCluster,
        kubeconfig: &str,
        more: &[&str],
        data: Option<Box<dyn std::io::Write + Send>>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = folder.path().join("kubelets.crt");
        std::fs::write(&authority, cluster.fleet().authority_pem()).unwrap();
        let authority = format!("--kubelet-certificate-authority={}", authority.display());
        let mut flags = vec![authority];
        flags.extend(more.iter().map(ToString::to_string));
        Self::launch(cluster, folder, kubeconfig, flags, data).await
    }

    /// Starts it with a kubeconfig, and without a CA for kubelets other than that of the cluster.
    pub(crate) async fn start_bare(cluster: &SimCluster, kubeconfig: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let flags = more.iter().copied().chain(["--roles=server"]);
        let flags = flags.map(str::to_owned).collect();
        Self::launch(cluster, folder, kubeconfig, flags, None).await
    }

    async fn launch(
        cluster: &SimCluster,
        folder: TempDir,
        kubeconfig: &str,
        more: Vec<String>,
        data: Option<Box<dyn std::io::Write + Send>>,
    ) -> Self {
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig).unwrap();
        let mut flags = vec![
            "--shutdown-grace-period=5s".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
            format!("--kubeconfig={}", file.display()),
            format!("--cert-dir={}", folder.path().join("cert").display()),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=0".to_owned(),
            "--kubelet-use-node-status-port".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--metric-resolution=15s".to_owned(),
        ];
        // A flag of the test replaces the one above.
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        flags.retain(|flag| !more.iter().any(|other| name(other) == name(flag)));
        flags.extend(more);
        let (sender, mut notices) = mpsc::channel(8);
        let (trigger, task) = roles::start(flags, Notices(sender), data);
        let address = within("the server serves", async {
            loop {
                let notice = notices.recv().await.expect("the server serves");
                if let Some((_, rest)) = notice.split_once("https://") {
                    break rest.split(',').next().unwrap().parse().unwrap();
                }
            }
        });
        let address = address.await;
        let admin = kubevitals_sim::api::User::new("admin", ["system:masters"]);
        Self {
            address,
            folder,
            token: cluster.api().issue_token(admin, None).unwrap(),
            trigger,
            task,
        }
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("cert/kubevitals-ca.crt")
    }

    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> (StatusCode, String) {
        let url = format!("https://{}{path}", self.address);
        let (status, body): (_, Bytes) = get(&url, &self.authority(), token).await;
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Sends a GET with an identity, and returns the status.
    pub(crate) async fn status_for(&self, path: &str, identity: Identity<'_>) -> StatusCode {
        let url = format!("https://{}{path}", self.address);
        get_as(&url, &self.authority(), identity).await.0
    }

    /// Sends a GET as an administrator.
    pub(crate) async fn get_as_admin(&self, path: &str) -> (StatusCode, String) {
        self.get(path, Some(&self.token)).await
    }

    /// Repeats a GET until the response is as expected.
    pub(crate) async fn until(
        &self,
        path: &str,
        is_expected: impl Fn(StatusCode, &str) -> bool,
    ) -> String {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let mut last = None;
        let expected = tokio::time::timeout(DEADLINE, async {
            loop {
                ticks.tick().await;
                let (status, body) = self.get_as_admin(path).await;
                if is_expected(status, &body) {
                    return body;
                }
                last = Some((status, body));
            }
        });
        let expected = expected.await.ok();
        expected.unwrap_or_else(|| panic!("{path} not as expected within {DEADLINE:?}: {last:?}"))
    }

    /// Waits until so many nodes have metrics.
    pub(crate) async fn until_nodes(&self, nodes: usize) {
        self.until(NODES, |_, body| count(body, "\"usage\"") == nodes)
            .await;
    }

    /// Waits until a node has no metrics for a reason that contains a text, and returns the
    /// response.
    pub(crate) async fn until_failing(&self, node: &str, reason: &str) -> String {
        let path = format!("{NODES}/{node}");
        self.until(&path, |_, body| body.contains(reason)).await
    }

    /// Waits until the server is ready, without a token that would have to be reviewed.
    pub(crate) async fn until_ready(&self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let ready = async {
            while self.get("/readyz", None).await.0 != StatusCode::OK {
                ticks.tick().await;
            }
        };
        within("the server is ready", ready).await;
    }

    /// Waits until a GET of the path succeeds.
    pub(crate) async fn until_served(&self, path: &str) {
        self.until(path, |status, _| status == StatusCode::OK).await;
    }

    /// Requests the shutdown, as SIGTERM does.
    pub(crate) fn begin_stop(&self) {
        self.trigger.trigger();
    }

    pub(crate) async fn stop(self) {
        self.begin_stop();
        let ended = within("the server ends after its shutdown", self.task).await;
        ended.unwrap().unwrap();
    }
}

/// The notices of roles.
struct Notices(mpsc::Sender<String>);

impl std::io::Write for Notices {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.try_send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) async fn cluster(nodes: usize) -> SimCluster {
    cluster_of(nodes, 4, Clock::system()).await
}

pub(crate) async fn cluster_of(nodes: usize, pods_per_node: usize, clock: Clock) -> SimCluster {
    kubevitals_tls::install_crypto_provider();
    let config = SimClusterConfig {
        nodes,
        workload: WorkloadConfig {
            pods_per_node,
            containers_per_pod: 2,
            ..WorkloadConfig::default()
        },
        binding: Binding::Wildcard(0),
        clock,
        ..SimClusterConfig::default()
    };
    SimCluster::start(config, |_| ()).await.unwrap()
}

/// Makes a node of the cluster fail.
pub(crate) fn fail_node(cluster: &SimCluster, node: &str, fault: Fault) {
    let is_known = cluster.fleet().faults().set(node, fault);
    assert!(is_known, "there is no node {node}");
}

pub(crate) fn count(list: &str, needle: &str) -> usize {
    list.matches(needle).count()
}

pub(crate) const PODS: &str = "/apis/metrics.k8s.io/v1/pods";
pub(crate) const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";

#[tokio::test]
async fn every_pod_and_node_is_served_after_the_first_scrapes() {
    let cluster = cluster(3).await;
    let server = Running::start(&cluster, &[]).await;
    let pods = cluster.api().count(kubevitals_sim::objects::Resource::Pods);
    server
        .until(PODS, |status, body| {
            status == StatusCode::OK && count(body, "\"containers\"") == pods
        })
        .await;
    server.until_nodes(3).await;
    let (status, ready) = server.get("/readyz?verbose", None).await;
    assert_eq!(status, StatusCode::OK, "{ready}");
    insta::assert_snapshot!("readyz", ready);
    let (_, alive) = server.get("/livez?verbose", None).await;
    insta::assert_snapshot!("livez", alive);

    let (status, denied) = server.get(PODS, None).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{denied}");
    let (status, denied) = server.get(PODS, Some("invalid")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{denied}");
    let (status, missing) = server
        .get_as_admin("/apis/metrics.k8s.io/v1/namespaces/default/pods/missing")
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(
        missing.contains("pods \\\"missing\\\" not found"),
        "{missing}"
    );
    let (status, selected) = server
        .get_as_admin(&format!("{PODS}?fieldSelector=spec.nodeName=node-00001"))
        .await;
    assert_eq!(status, StatusCode::OK, "{selected}");
    let of_node = count(&selected, "\"containers\"");
    assert!((4..pods).contains(&of_node), "{selected}");
    let (_, metrics) = server.get_as_admin("/metrics").await;
    let mut inherited: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter(|line| line.starts_with("metrics_server_"))
        .collect();
    inherited.sort_unstable();
    assert_eq!(
        inherited,
        [
            "metrics_server_api_metric_freshness_seconds histogram",
            "metrics_server_kubelet_last_request_time_seconds gauge",
            "metrics_server_kubelet_request_duration_seconds histogram",
            "metrics_server_kubelet_request_total counter",
            "metrics_server_manager_tick_duration_seconds histogram",
            "metrics_server_storage_points gauge",
        ]
    );
    for family in [
        "metrics_server_kubelet_request_total{success=\"true\"}",
        "metrics_server_storage_points{type=\"container\"}",
        "rest_client_requests_total{code=\"200\",host=\"127.0.0.1:",
        "rest_client_request_duration_seconds_bucket{",
        "kube_client_streams_open{",
        "kube_client_reflector_lists_total{name=\"nodes\"}",
        "kube_client_reflector_watches_total{name=\"pods\"}",
        "apiserver_request_duration_seconds_bucket{",
        "kubevitals_watch_",
    ] {
        assert!(metrics.contains(family), "{family} is missing");
    }
    let guide = include_str!("../../../../docs/server.md");
    let prefixes = [
        "metrics_server_",
        "apiserver_",
        "rest_client_",
        "kubevitals_",
    ];
    let names = guide.split('`').filter(|text| {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        text.chars().all(is_name) && !text.ends_with('_')
    });
    for name in names.filter(|name| prefixes.iter().any(|p| name.starts_with(p))) {
        assert!(metrics.contains(name), "docs/server.md names {name}");
    }
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_failing_node_affects_no_other_and_its_404_has_the_reason() {
    let cluster = cluster(3).await;
    fail_node(&cluster, "node-00001", Fault::ServerError);
    let server = Running::start(&cluster, &[]).await;
    server.until_nodes(2).await;
    let reason = server.until_failing("node-00001", "500").await;
    assert!(reason.contains("not found"), "{reason}");
    cluster.fleet().faults().clear("node-00001");
    server.until_nodes(3).await;
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_role_waits_for_an_unavailable_api_server() {
    let mut cluster = cluster(2).await;
    cluster.api_mut().stop().await;
    let server = Running::start(&cluster, &[]).await;
    let (status, alive) = server.get("/livez", None).await;
    assert_eq!((status, &*alive), (StatusCode::OK, "ok"));
    let (status, ready) = server.get("/readyz?verbose", None).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(ready.contains("[-]metadata-informer-sync"), "{ready}");
    cluster.api_mut().resume().await.unwrap();
    server.until_ready().await;
    server.stop().await;
    cluster.shutdown().await;
}

#[test]
fn contradicting_flags_exit_64_and_say_what_to_change() {
    for (flags, message) in [
        (&["--metric-resolution=0s"][..], "metric-resolution"),
        (&["--metric-resolution=900ms"], "write 1s or more"),
        (
            &["--metric-resolution=10s", "--kubelet-request-timeout=10s"],
            "write 9s or less",
        ),
        (&["--kubelet-request-timeout=0s"], "greater than zero"),
        (&["--kubelet-request-timeout=-1s"], "greater than zero"),
        (&["--tls-curve-preferences=1"], "tls-curve-preferences"),
        (&["--audit-log-path=-"], "there is no audit log"),
        (&["--staleness=5s"], "staleness"),
        (
            &[
                "--kubelet-insecure-tls",
                "--kubelet-certificate-authority=x",
            ],
            "kubelet-certificate-authority",
        ),
        (
            &[
                "--deprecated-kubelet-completely-insecure",
                "--kubelet-insecure-tls=true",
            ],
            "kubelet-insecure-tls",
        ),
        (&["--kubelet-preferred-address-types=IP"], "InternalIP"),
        (&["--node-selector=a=b=c"], "node-selector"),
        (&["--exclude-node-selector=a=b=c"], "exclude-node-selector"),
        (
            &["--exclude-node-taints=virtual-kubelet.io/provider=aws:NoSchedule"],
            "keys without value and effect",
        ),
        (&["--extra-resources=gpu"], "ephemeral-storage"),
        (&["--apiservice-backend=metrics"], "NAMESPACE/NAME"),
        (&["--goaway-chance=0.5"], "0 to 0.02"),
        (&["--shutdown-delay-duration=-1s"], "negative"),
        (
            &["--shutdown-delay-duration=30s"],
            "part of --shutdown-grace-period, which is 30s",
        ),
        (&["--kubelet-insecure-tlss"], "kubelet-insecure-tls"),
        (&["--kubeconfig=/nowhere"], "/nowhere"),
    ] {
        let (code, _, stderr) = output(kubevitals(&["server"]).args(flags));
        assert_eq!(code, 64, "{flags:?}: {stderr}");
        assert!(stderr.contains(message), "{flags:?}: {stderr}");
    }
}

#[test]
fn a_link_named_metrics_server_accepts_the_flags_of_metrics_server() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("metrics-server");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kubevitals"), &link).unwrap();
    let mut command = std::process::Command::new(&link);
    // The flags of metrics-server's own manifest, and an error that comes after all flags are read.
    command.args([
        "--cert-dir=/tmp",
        "--secure-port=10250",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        "--kubelet-use-node-status-port",
        "--metric-resolution=15s",
        "--v=2",
        "--kubeconfig=/nowhere",
    ]);
    let (code, _, stderr) = output(command.env("NO_COLOR", "1"));
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("/nowhere"), "{stderr}");
    // Charts append a user's flags to their own.
    command.args(["--metric-resolution=5s", "--kubelet-insecure-tls=false"]);
    command.args(["--kubelet-insecure-tls", "--kubelet-insecure-tls=false"]);
    let (code, _, stderr) = output(&mut command);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("/nowhere"), "{stderr}");
    let (code, version, _) = output(std::process::Command::new(&link).arg("--version"));
    assert_eq!(code, 0, "{version}");
}

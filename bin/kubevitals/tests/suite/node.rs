//! `kubevitals node` as a process, against an API server of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use http::StatusCode;
use kubevitals_sim::api::{Rule, SimApi, SimApiConfig, SimApiHandle, User};
use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::get;
use crate::{kubevitals, output};

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(2);

const NODE: &str = "sim-1";

/// What docs/node.md lists: verbs, API group, resources.
const PERMISSIONS: &[(&[&str], &str, &[&str])] = &[
    (&["get", "create", "patch"], "", &["nodes"]),
    (&["patch"], "", &["nodes/status", "pods/status"]),
    (
        &["get", "create", "update"],
        "coordination.k8s.io",
        &["leases"],
    ),
    (&["get", "list", "watch", "delete"], "", &["pods"]),
    (&["create", "patch"], "", &["events"]),
    (&["get"], "", &["configmaps", "secrets"]),
    (&["list"], "", &["services"]),
    (&["create"], "", &["serviceaccounts/token"]),
    (&["create"], "authentication.k8s.io", &["tokenreviews"]),
    (
        &["create"],
        "authorization.k8s.io",
        &["subjectaccessreviews"],
    ),
];

/// A node, killed when the test ends.
struct Program {
    child: Child,
    folder: TempDir,
}

async fn cluster() -> SimApiHandle {
    kubevitals_tls::install_crypto_provider();
    let config = SimApiConfig {
        graceful_pod_deletion: true,
        ..SimApiConfig::default()
    };
    let api = SimApi::start(config).await.unwrap();
    for (verbs, group, resources) in PERMISSIONS {
        let (verbs, resources) = (verbs.iter().copied(), resources.iter().copied());
        api.allow(Rule::for_user("node", verbs, group, resources));
    }
    api.allow(Rule::for_user(
        "scraper",
        ["get"],
        "",
        ["nodes/metrics", "nodes/stats"],
    ));
    api
}

fn token(api: &SimApiHandle, user: &str) -> String {
    api.issue_token(User::new(user, []), None).unwrap()
}

impl Program {
    fn start(api: &SimApiHandle, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let kubeconfig = api.kubeconfig_for_token(&token(api, "node"));
        std::fs::write(path("kubeconfig"), kubeconfig).unwrap();
        let child = kubevitals(&["node", "--provider=sim", "--listen-address=127.0.0.1:0"])
            .arg(format!("--kubeconfig={}", path("kubeconfig").display()))
            .arg(format!("--root-dir={}", path("root").display()))
            .arg(format!("--node-name={NODE}"))
            .arg("--sim-start-delay=0s")
            .args(more)
            .stdout(Stdio::from(File::create(path("notices")).unwrap()))
            .stderr(Stdio::from(File::create(path("log")).unwrap()))
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

    /// The addresses of the kubelet server and of the admin server.
    async fn addresses(&self) -> (String, String) {
        until("a notice", || self.read("notices").contains('\n')).await;
        let notice = self.read("notices");
        let after = |start: &str| {
            let rest = notice.split_once(start).unwrap().1;
            rest.split([',', '\n']).next().unwrap().to_owned()
        };
        (after("on https://"), after("admin on http://"))
    }

    async fn get(&self, path: &str, token: Option<&str>) -> (StatusCode, String) {
        let (address, _) = self.addresses().await;
        let authority = self.path("root/pki/kubevitals-node-ca.crt");
        let (status, body) = get(&format!("https://{address}{path}"), &authority, token).await;
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Waits for the end after a signal.
    async fn end(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let signal = Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(signal.unwrap().success());
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let ended = tokio::time::timeout(DEADLINE, async {
            loop {
                ticks.tick().await;
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
            }
        });
        ended
            .await
            .unwrap_or_else(|_| panic!("{}", self.read("log")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _waited_already = self.child.wait();
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let waited = tokio::time::timeout(DEADLINE, async {
        while !is_so() {
            ticks.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "not in time: {what}");
}

fn node(api: &SimApiHandle) -> Value {
    api.object(Resource::Nodes, None, NODE).unwrap_or_default()
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
    })
}

fn pod(api: &SimApiHandle) -> Option<Value> {
    api.object(Resource::Pods, Some("default"), "web")
}

fn create_pod(api: &SimApiHandle) {
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "web:1"}]},
        "status": {"phase": "Pending"},
    });
    api.writer().create(Resource::Pods, pod).unwrap();
}

async fn get_plain(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_node_joins_and_runs_a_pod() {
    let api = cluster().await;
    let program = Program::start(&api, &["--node-labels=zone=attic"]);
    until("ready", || is_ready(&node(&api))).await;
    let object = node(&api);
    let (kubelet, admin) = program.addresses().await;
    let port = &object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    assert!(kubelet.ends_with(&format!(":{port}")), "{kubelet} {port}");
    assert_eq!(object["metadata"]["labels"]["zone"], "attic");
    assert_eq!(object["spec"]["taints"][0]["value"], "sim");
    create_pod(&api);
    until("running", || pod(&api).is_some_and(|pod| is_ready(&pod))).await;

    let ready = get_plain(&admin, "/readyz?verbose").await;
    for check in ["node-lease", "node-pods", "node-runtime"] {
        assert!(ready.contains(&format!("[+]{check} ok")), "{ready}");
    }
    let metrics = get_plain(&admin, "/metrics").await;
    for family in [
        "kubevitals_node_pods 1\n",
        "kubevitals_node_lease_renewals_total{result=\"success\"}",
        "workqueue_depth{name=\"node_pods\"}",
        "kubevitals_watch_",
    ] {
        assert!(metrics.contains(family), "{family}: {metrics}");
    }

    // Deletion ends the pod and then the object.
    let config = kube::config::Kubeconfig::from_yaml(&api.kubeconfig()).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options);
    let client = kube::Client::try_from(config.await.unwrap()).unwrap();
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client);
    pods.delete("web", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    until("deleted", || pod(&api).is_none()).await;

    assert_eq!(program.end().await.code(), Some(0));
    until("no watch is left", || api.open_watches() == 0).await;
    api.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_endpoints_need_a_token() {
    let api = cluster().await;
    let program = Program::start(&api, &[]);
    create_pod(&api);
    until("running", || pod(&api).is_some_and(|pod| is_ready(&pod))).await;
    let (scraper, stranger) = (token(&api, "scraper"), token(&api, "stranger"));
    let (status, body) = program.get("/metrics/resource", Some(&scraper)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert!(
        body.contains(
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"default\",pod=\"web\"}"
        ),
        "{body}"
    );
    assert!(body.contains("\nresource_scrape_error 0\n"), "{body}");
    let (status, body) = program.get("/stats/summary", Some(&scraper)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let summary: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(summary["node"]["nodeName"], NODE);
    assert_eq!(summary["pods"][0]["podRef"]["name"], "web");
    for (path, token, expected) in [
        ("/metrics/resource", None, StatusCode::UNAUTHORIZED),
        ("/metrics/resource", Some("wrong"), StatusCode::UNAUTHORIZED),
        (
            "/metrics/resource",
            Some(stranger.as_str()),
            StatusCode::FORBIDDEN,
        ),
        // What may be scraped is not what may be read or executed.
        ("/pods", Some(scraper.as_str()), StatusCode::FORBIDDEN),
        (
            "/containerLogs/default/web/c",
            Some(scraper.as_str()),
            StatusCode::FORBIDDEN,
        ),
        (
            "/exec/default/web/c?command=ls&output=1",
            Some(scraper.as_str()),
            StatusCode::FORBIDDEN,
        ),
        ("/pods", None, StatusCode::UNAUTHORIZED),
    ] {
        let (status, body) = program.get(path, token).await;
        assert_eq!(status, expected, "{path}: {body}");
    }
    api.allow(Rule::for_user(
        "operator",
        ["get", "create"],
        "",
        ["nodes/proxy"],
    ));
    let operator = token(&api, "operator");
    let (status, body) = program.get("/pods", Some(&operator)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let pods: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    let (status, body) = program
        .get("/containerLogs/default/web/c?tailLines=1", Some(&operator))
        .await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert!(
        body.starts_with("line ") && body.ends_with(" of default/web/c\n"),
        "{body}"
    );
    assert_eq!(program.end().await.code(), Some(0));
    api.shutdown().await;
}

#[test]
fn wrong_settings_are_named() {
    let run = |flags: &[&str]| output(kubevitals(&["node", "--provider=sim"]).args(flags));
    let (code, _, stderr) = run(&["--kubeconfig=/nowhere"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("--node-address"), "{stderr}");
    let (code, _, stderr) = run(&["--node-address=192.0.2.1", "--kubeconfig=/nowhere"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("/nowhere"), "{stderr}");
    // It runs by itself.
    let (code, _, stderr) = output(&mut kubevitals(&["run", "--roles=server,node"]));
    assert_eq!(code, 64, "{stderr}");
}

#[test]
fn the_shim_is_a_command_that_help_does_not_name() {
    let (code, _, stderr) = output(&mut kubevitals(&["process-shim"]));
    assert_eq!(code, 64, "{stderr}");
    let (_, stdout, _) = output(&mut kubevitals(&["--help"]));
    assert!(!stdout.contains("process-shim"), "{stdout}");
}

#[test]
fn the_documented_permissions_are_those_that_the_tests_grant() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/node.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    for (verbs, _, resources) in PERMISSIONS {
        for resource in *resources {
            let verbs = verbs.join(", ");
            let row = |line: &&&str| {
                line.starts_with(&format!("| {verbs} |")) && line.contains(&format!("`{resource}`"))
            };
            assert!(rows.iter().any(|line| row(&line)), "{verbs} {resource}");
        }
    }
}

//! The server while the API server is away, as a process of its own: its log and its probes.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::StatusCode;
use kubevitals_sim::api::User;
use kubevitals_sim::cluster::SimCluster;
use tempfile::TempDir;

use crate::client::get;
use crate::server::{PODS, cluster};
use crate::{DEADLINE, kubevitals};

/// A server that is killed when dropped.
struct Process {
    child: Child,
    folder: TempDir,
}

impl Process {
    fn start(cluster: &SimCluster) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("kubeconfig"), cluster.api().kubeconfig()).unwrap();
        std::fs::write(path("kubelets.crt"), cluster.fleet().authority_pem()).unwrap();
        let child = kubevitals(&["server", "--bind-address=127.0.0.1", "--secure-port=0"])
            .args([
                "--kubelet-use-node-status-port",
                "--kubelet-preferred-address-types=InternalIP",
                "--metric-resolution=15s",
                "--manage-apiservices",
                "--log-level=info,kubevitals_watch=debug,kubevitals_telemetry=debug",
            ])
            .arg(format!("--kubeconfig={}", path("kubeconfig").display()))
            .arg(format!(
                "--kubelet-certificate-authority={}",
                path("kubelets.crt").display()
            ))
            .arg(format!("--cert-dir={}", path("cert").display()))
            .stdout(Stdio::from(File::create(path("notices")).unwrap()))
            .stderr(Stdio::from(File::create(path("log")).unwrap()))
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits until so many lines of the log contain a text.
    async fn logged(&self, text: &str, times: usize) {
        let logged = || self.log().iter().filter(|line| line.contains(text)).count() >= times;
        until(text, logged).await;
    }

    async fn address(&self) -> String {
        let notice = || std::fs::read_to_string(self.path("notices")).unwrap();
        until("a notice", || {
            notice().contains("https://") && notice().contains('\n')
        })
        .await;
        let notice = notice();
        let rest = notice.split_once("https://").unwrap().1;
        rest.split([',', '\n']).next().unwrap().trim().to_owned()
    }

    async fn get(&self, address: &str, path: &str, token: Option<&str>) -> (StatusCode, String) {
        let authority = self.path("cert").join("kubevitals-ca.crt");
        let (status, body) = get(&format!("https://{address}{path}"), &authority, token).await;
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// The client library logged an ERROR for every failed request, every half minute for each watch;
/// later each APIService and the lookup of client CAs had lines of their own.
#[tokio::test]
async fn an_outage_is_one_line_when_it_begins_and_one_when_it_ends() {
    let mut cluster = cluster(1).await;
    let server = Process::start(&cluster);
    let address = server.address().await;
    let ready = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        while server.get(&address, "/readyz", None).await.0 != StatusCode::OK {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(DEADLINE, ready).await.unwrap();
    // There is no APIService, so that the bundle is retried every five seconds.
    server.logged("failed to update caBundle", 2).await;
    let before = server.log().len();
    let user = User::new("reader", None);
    let token = cluster.api().issue_token(user, None).unwrap();
    cluster.api_mut().stop().await;
    let (status, _) = server.get(&address, PODS, Some(&token)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    // Every part fails, and both watches several times.
    server.logged("reason=\"unreachable\"", 6).await;
    for part in ["look-up-authentication", "write-ca-bundle"] {
        server.logged(&format!("part=\"{part}\""), 1).await;
    }
    let (status, alive) = server.get(&address, "/livez", None).await;
    assert_eq!((status, &*alive), (StatusCode::OK, "ok"));
    cluster.api_mut().resume().await.unwrap();
    server.logged("API server is available again", 1).await;
    let log = server.log();
    let lines: Vec<&String> = log[before..]
        .iter()
        .filter(|line| !line.contains("DEBUG"))
        .collect();
    let [begin, end] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert!(begin.contains("WARN") && begin.contains("API server is unavailable"));
    assert!(end.contains("INFO") && end.contains("API server is available again"));
    drop(server);
    cluster.shutdown().await;
}

/// SIGHUP ended the process in the middle of its requests.
#[tokio::test]
async fn a_hangup_drains_like_sigterm() {
    let cluster = cluster(1).await;
    let mut server = Process::start(&cluster);
    server.address().await;
    let process = server.child.id().to_string();
    let sent = Command::new("kill").args(["-HUP", &process]).status();
    assert!(sent.unwrap().success());
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let ended = tokio::time::timeout(DEADLINE, async {
        loop {
            ticks.tick().await;
            if let Some(status) = server.child.try_wait().unwrap() {
                return status;
            }
        }
    });
    let status = ended.await.unwrap();
    assert_eq!(status.code(), Some(0), "{:#?}", server.log());
    server.logged("SIGHUP", 1).await;
    cluster.shutdown().await;
}

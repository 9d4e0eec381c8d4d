//! The server while the API server is away, as a process of its own: its log and its probes.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::StatusCode;
use kubevitals_sim::cluster::SimCluster;
use tempfile::TempDir;

use crate::client::get;
use crate::kubevitals;
use crate::server::{DEADLINE, cluster};

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
                "--log-level=info,kubevitals_watch=debug",
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

    async fn get(&self, address: &str, path: &str) -> (StatusCode, String) {
        let authority = self.path("cert").join("kubevitals-ca.crt");
        let (status, body) = get(&format!("https://{address}{path}"), &authority, None).await;
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

/// The client library logged an ERROR for every failed request, every half minute for each watch.
#[tokio::test]
async fn an_outage_begins_with_one_line_and_fails_no_liveness() {
    let mut cluster = cluster(1).await;
    let server = Process::start(&cluster);
    let address = server.address().await;
    let ready = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        while server.get(&address, "/readyz").await.0 != StatusCode::OK {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(DEADLINE, ready).await.unwrap();
    let before = server.log().len();
    cluster.api_mut().stop().await;
    // Both watches fail a few times.
    server.logged("reason=\"unreachable\"", 6).await;
    let (status, alive) = server.get(&address, "/livez").await;
    assert_eq!((status, &*alive), (StatusCode::OK, "ok"));
    let log = server.log();
    let during: Vec<&String> = log[before..]
        .iter()
        .filter(|line| !line.contains("DEBUG"))
        .collect();
    // Another part may log that it fails too, once.
    assert!(during.len() <= 2, "{during:#?}");
    assert!(
        !during.iter().any(|line| line.contains("ERROR")),
        "{during:#?}"
    );
    let begins = during
        .iter()
        .filter(|line| line.contains("WARN") && line.contains("API server is unreachable"));
    assert_eq!(begins.count(), 1, "{during:#?}");
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

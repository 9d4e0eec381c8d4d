//! Proxies before the API server, by the variables that Go programs read.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;

use http::StatusCode;
use kubevitals_sim::cluster::SimCluster;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::DEADLINE;
use crate::client::get;
use crate::kubevitals;
use crate::server::cluster;

/// The name of the API server, which the proxy alone can resolve.
const SERVER: &str = "api.kubevitals.invalid:6443";

/// A proxy for `CONNECT`.
struct Proxy {
    address: SocketAddr,
    /// What it was asked to connect to.
    targets: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Connects all requests to `target`.
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let targets = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&targets);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(tunnel(client, target, Arc::clone(&seen)));
            }
        });
        Self {
            address,
            targets,
            task,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tunnel(mut client: TcpStream, target: SocketAddr, seen: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    seen.lock().push(head.lines().next().unwrap().to_owned());
    let mut server = TcpStream::connect(target).await.unwrap();
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    client.write_all(established).await.unwrap();
    let _either_side_ends = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// The server as a process of its own, since variables belong to a process.
struct Process {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
}

impl Process {
    async fn start(kubeconfig: &str, variables: &[(&str, &str)]) -> Self {
        let address_types = "--kubelet-preferred-address-types=InternalIP";
        Self::start_with(kubeconfig, variables, &[address_types]).await
    }

    async fn start_with(kubeconfig: &str, variables: &[(&str, &str)], more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig).unwrap();
        let mut command = kubevitals(&[
            "server",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--kubelet-use-node-status-port",
            "--metric-resolution=15s",
        ]);
        command
            .arg(format!("--kubeconfig={}", file.display()))
            .arg(format!("--cert-dir={}", folder.path().display()))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        let mut child = command.envs(variables.iter().copied()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let address = tokio::task::spawn_blocking(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            lines.find_map(|line| {
                let (_, rest) = line.split_once("https://")?;
                rest.split(',').next()?.parse().ok()
            })
        });
        let address = tokio::time::timeout(DEADLINE, address).await.unwrap();
        Self {
            child,
            folder,
            address: address.unwrap().expect("the server starts"),
        }
    }

    /// Waits until nodes and pods are listed and scraped.
    async fn until_ready(&self) {
        let url = format!("https://{}/readyz", self.address);
        let ca = self.folder.path().join("kubevitals-ca.crt");
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(50));
        let ready = async {
            while get(&url, &ca, None).await.0 != StatusCode::OK {
                ticks.tick().await;
            }
        };
        tokio::time::timeout(DEADLINE, ready).await.unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A kubeconfig that names the server as the proxy knows it.
fn kubeconfig(cluster: &SimCluster) -> String {
    let own = format!("server: {}", cluster.api().url());
    let named = format!("server: https://{SERVER}\n    tls-server-name: kubernetes");
    let kubeconfig = cluster.api().kubeconfig();
    assert!(kubeconfig.contains(&own));
    kubeconfig.replace(&own, &named)
}

#[tokio::test]
async fn the_api_server_is_reached_through_the_proxy() {
    let cluster = cluster(1).await;
    let proxy = Proxy::start(cluster.api().address()).await;
    let url = format!("http://{}", proxy.address);
    let server = Process::start(&kubeconfig(&cluster), &[("https_proxy", &url)]).await;
    server.until_ready().await;
    let targets = proxy.targets.lock().clone();
    assert!(!targets.is_empty());
    for target in targets {
        assert_eq!(target, format!("CONNECT {SERVER} HTTP/1.1"));
    }
    drop(server);
    cluster.shutdown().await;
}

/// It did not start: the proxy was an error of its own, and `NO_PROXY` was not read.
#[tokio::test]
async fn a_server_in_no_proxy_is_reached_without_the_proxy() {
    let cluster = cluster(1).await;
    let proxy = Proxy::start(cluster.api().address()).await;
    let url = format!("http://{}", proxy.address);
    // In upper case it is not exempt by itself, and still resolves.
    let named = format!("https://LOCALHOST:{}", cluster.api().address().port());
    let kubeconfig = cluster.api().kubeconfig();
    let kubeconfig = kubeconfig.replace(&cluster.api().url(), &named);
    let variables = [
        ("HTTPS_PROXY", url.as_str()),
        ("NO_PROXY", ".svc,10.96.0.0/12,localhost"),
    ];
    let server = Process::start(&kubeconfig, &variables).await;
    server.until_ready().await;
    assert_eq!(*proxy.targets.lock(), Vec::<String>::new());
    drop(server);
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_proxy_of_the_kubeconfig_is_used() {
    let cluster = cluster(1).await;
    let proxy = Proxy::start(cluster.api().address()).await;
    let named = format!("server: https://{SERVER}\n");
    let with_proxy = format!("{named}    proxy-url: http://{}\n", proxy.address);
    let kubeconfig = kubeconfig(&cluster).replace(&named, &with_proxy);
    // The variable does not apply to the proxy of a kubeconfig.
    let server = Process::start(&kubeconfig, &[("NO_PROXY", "*")]).await;
    server.until_ready().await;
    assert!(!proxy.targets.lock().is_empty());
    drop(server);
    cluster.shutdown().await;
}

/// The API server is on a loopback address, which has no proxy.
#[tokio::test]
async fn kubelets_are_reached_through_the_proxy_if_the_flag_is_set() {
    let cluster = cluster(1).await;
    let kubelet = cluster.fleet().address("node-00000").unwrap();
    let proxy = Proxy::start(kubelet).await;
    let url = format!("http://{}", proxy.address);
    let flags = [
        "--kubelet-use-proxy",
        "--kubelet-preferred-address-types=Hostname",
    ];
    let kubeconfig = cluster.api().kubeconfig();
    let variables = [("HTTPS_PROXY", url.as_str())];
    let server = Process::start_with(&kubeconfig, &variables, &flags).await;
    server.until_ready().await;
    let expected = format!("CONNECT node-00000:{} HTTP/1.1", kubelet.port());
    assert_eq!(proxy.targets.lock().first(), Some(&expected));
    drop(server);
    cluster.shutdown().await;
}

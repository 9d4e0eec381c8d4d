//! The demo: the printed commands work, and nothing is left behind.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use http::StatusCode;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{get, parse_curl};
use crate::{KillAtDeadline, kubevitals, output, within};

/// A demo that has printed its commands.
pub(crate) struct Running {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    pub(crate) printed: Vec<String>,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut process = kubevitals(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _deadline = KillAtDeadline::new(&process);
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut printed = Vec::new();
        loop {
            match output.next().map(Result::unwrap) {
                Some(line) if line == "stop with Ctrl-C" => break,
                Some(line) => printed.push(line),
                None => panic!("it ended, or did not start in time: {printed:#?}"),
            }
        }
        Self {
            process,
            output,
            printed,
        }
    }

    pub(crate) fn line(&self, holds: &str) -> &str {
        let line = self.printed.iter().find(|line| line.contains(holds));
        line.unwrap_or_else(|| panic!("no line holds {holds}: {:#?}", self.printed))
    }

    /// Sends Ctrl-C and waits for a clean end that says no more.
    pub(crate) fn stop(mut self, signal: &str) {
        let _deadline = KillAtDeadline::new(&self.process);
        let id = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
        assert!(self.process.wait().unwrap().success());
        assert!(self.output.next().is_none());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only a test that failed comes here with a process that still runs.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The URL that `kubectl get --raw` or `kubectl top` requests, on the API server of a curl line.
fn on_api_server(curl: &str, path: &str) -> (String, std::sync::Arc<Path>, String) {
    let (url, ca, token) = parse_curl(curl);
    let (server, _) = url.split_once("/apis/").unwrap();
    (format!("{server}{path}"), ca, token)
}

async fn get_json(url: &str, ca: &Path, token: &str) -> Value {
    let (status, body) = get(url, ca, Some(token)).await;
    assert_eq!(status, StatusCode::OK, "{url}: {body:?}");
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn the_printed_commands_work_and_ctrl_c_leaves_nothing_behind() {
    let demo = Running::start(&["demo", "--nodes=3", "--pods-per-node=4", "--churn=0/s"]);
    let curl = demo.line("curl --cacert");
    let (url, ca, token) = parse_curl(curl);
    let nodes = get_json(&url, &ca, &token).await;
    assert_eq!(nodes["kind"], "NodeMetricsList");
    assert_eq!(nodes["items"].as_array().unwrap().len(), 3);
    let (status, _) = get(&url, &ca, None).await;
    assert_eq!(
        status,
        StatusCode::FORBIDDEN,
        "anonymous requests are refused"
    );

    // The requests of `kubectl top nodes` and `kubectl top pods -A`.
    for (line, path) in [
        ("kubectl top nodes", "/apis/metrics.k8s.io/v1beta1/nodes"),
        ("kubectl top pods -A", "/apis/metrics.k8s.io/v1beta1/pods"),
    ] {
        demo.line(line);
        let (url, ca, token) = on_api_server(curl, path);
        let list = get_json(&url, &ca, &token).await;
        for item in list["items"].as_array().unwrap() {
            let usage = item.get("usage").or(item.pointer("/containers/0/usage"));
            assert!(usage.unwrap()["cpu"].is_string(), "{path}: {item}");
        }
    }
    let raw = demo.line("kubectl get --raw");
    let (url, ca, token) = on_api_server(curl, raw.rsplit(' ').next().unwrap());
    get_json(&url, &ca, &token).await;

    let kubeconfig = demo.line("export KUBECONFIG=").split_once('=').unwrap().1;
    let explain = demo.line("kubevitals explain").trim();
    let args: Vec<&str> = explain.split(' ').skip(1).collect();
    let (code, table, problem) = output(kubevitals(&args).env("KUBECONFIG", kubeconfig));
    assert_eq!(code, 0, "{problem}");
    assert!(table.lines().count() > 3, "{table}");

    let admin: Vec<&str> = demo.printed.iter().map(|line| line.trim()).collect();
    let admin = admin.iter().filter_map(|line| line.strip_prefix("curl "));
    let admin: Vec<&str> = admin
        .map(|url| url.trim_matches('\''))
        .filter_map(|url| url.strip_prefix("http://"))
        .collect();
    assert_eq!(admin.len(), 2, "{:#?}", demo.printed);
    for url in admin {
        let (address, path) = url.split_once('/').unwrap();
        let response = plain_get(address, path).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }

    let folder = Path::new(kubeconfig).parent().unwrap().to_owned();
    assert!(folder.exists());
    demo.stop("-INT");
    assert!(!folder.exists(), "{} was left", folder.display());
}

/// A GET in plain HTTP, as the printed `curl` of the admin server makes it.
pub(crate) async fn plain_get(address: &str, path: &str) -> String {
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    within(&format!("the response to GET /{path}"), async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    })
    .await
}

//! The example is a whole virtual kubelet, and short.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::support::DEADLINE;

/// Cargo builds examples before it runs tests, into a folder beside theirs.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap();
    folder.join("examples").join("invented")
}

async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn the_example_serves_an_invented_provider() {
    let mut child = Command::new(program())
        .arg("127.0.0.1:0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let served = async {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.next_line().await.unwrap().unwrap();
        let metrics = get(&address, "/metrics/resource").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("\nnode_swap_usage_bytes 42 "), "{metrics}");
        let log = get(&address, "/containerLogs/default/hello/app").await;
        assert!(log.contains("hello\n"), "{log}");
        let missing = get(&address, "/containerLogs/default/other/app").await;
        assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
        let lacking = get(&address, "/pods").await;
        assert!(lacking.starts_with("HTTP/1.1 501 "), "{lacking}");
        drop(child.stdin.take());
        assert!(child.wait().await.unwrap().success());
    };
    tokio::time::timeout(DEADLINE, served).await.unwrap();
}

#[test]
fn the_example_is_short() {
    let source = include_str!("../../examples/invented.rs");
    assert!(source.lines().count() < 100);
}

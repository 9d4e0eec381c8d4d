//! The demo: what it prints works, and nothing is left of it.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use http::StatusCode;
use kubevitals_promtext::parse;

use crate::client::{get, parse_curl};
use crate::kubevitals;

/// A demo that has told what to try.
pub(crate) struct Running {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    pub(crate) told: Vec<String>,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut process = kubevitals(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let told = output
            .by_ref()
            .map(Result::unwrap)
            .take_while(|line| line != "stop with Ctrl-C")
            .collect();
        Self {
            process,
            output,
            told,
        }
    }

    pub(crate) fn line(&self, holds: &str) -> &str {
        let line = self.told.iter().find(|line| line.contains(holds));
        line.unwrap_or_else(|| panic!("no line holds {holds}: {:#?}", self.told))
    }

    /// Sends Ctrl-C and waits for a clean end that says no more.
    pub(crate) fn stop(mut self, signal: &str) {
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

#[tokio::test]
async fn the_lines_to_try_work_and_ctrl_c_leaves_nothing_behind() {
    let demo = Running::start(&["demo", "--nodes=3", "--pods-per-node=4"]);
    let (url, ca, token) = parse_curl(demo.line("/api/v1/nodes"));
    let (status, body) = get(&url, &ca, Some(&token)).await;
    assert_eq!(status, StatusCode::OK);
    assert!(String::from_utf8_lossy(&body).contains("\"name\":\"node-00000\""));
    assert_eq!(
        get(&url, &ca, None).await.0,
        StatusCode::FORBIDDEN,
        "anonymous may not"
    );

    let (url, ca, token) = parse_curl(demo.line("/metrics/resource"));
    let (status, body) = get(&url, &ca, Some(&token)).await;
    assert_eq!(status, StatusCode::OK);
    let summary = parse(&body, |_| {});
    assert_eq!(summary.errors, 0);
    assert!(summary.samples > 20, "{summary:?}");
    assert_eq!(get(&url, &ca, None).await.0, StatusCode::UNAUTHORIZED);

    let kubeconfig = demo
        .line("export KUBECONFIG=")
        .split_once('=')
        .unwrap()
        .1
        .to_owned();
    let folder = Path::new(&kubeconfig).parent().unwrap().to_owned();
    assert!(Path::new(&kubeconfig).exists());
    demo.stop("-INT");
    assert!(!folder.exists(), "{} was left", folder.display());
}

//! The program itself: signals, standard output, crashes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use super::{Cluster, RoleHarness};
use crate::{KillAtDeadline, kubevitals, output};

/// A running program, killed when the test ends.
struct Program {
    child: Child,
    stderr: BufReader<ChildStderr>,
    _deadline: KillAtDeadline,
}

impl Program {
    /// Starts the program and returns its standard output.
    fn start(cluster: &Cluster, more: &[&str]) -> (Self, BufReader<ChildStdout>) {
        let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig().display());
        let mut words = vec!["transitions", &kubeconfig, "--listen-address=127.0.0.1:0"];
        words.extend(["--image-pull-cancel-delay=0", "--log-level=INFO"]);
        words.extend(more);
        let mut child = kubevitals(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let deadline = KillAtDeadline::new(&child);
        let program = Self {
            child,
            stderr,
            _deadline: deadline,
        };
        (program, stdout)
    }

    /// Reads the log up to a line with this text.
    fn until_logged(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let length = self.stderr.read_line(&mut line).unwrap();
            assert!(length > 0, "it ended without a word of {text:?}");
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    fn end(mut self) -> Option<i32> {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _waited_already = self.child.wait();
    }
}

fn names(text: &str) -> BTreeSet<String> {
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines
        .map(|line| {
            line["kube_transition_metrics"]["pod_name"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_drains_the_role() {
    let cluster = Cluster::start().await;
    let (mut program, mut stdout) = Program::start(&cluster, &[]);
    program.until_logged("processed a list of all pods");
    cluster.create("web");
    cluster.make_ready("web");
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert!(first.contains("\"web\""), "{first}");
    program.signal("TERM");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(names(&rest), BTreeSet::from(["web".to_owned()]));
    assert_eq!(program.end(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_standard_output_does_not_end_the_process() {
    let cluster = Cluster::start().await;
    let (mut program, stdout) = Program::start(&cluster, &[]);
    program.until_logged("processed a list of all pods");
    drop(stdout);
    for number in 0..50 {
        let name = format!("pod-{number}");
        cluster.create(&name);
        cluster.make_ready(&name);
    }
    cluster.until_watches(2).await;
    program.signal("TERM");
    program.until_logged("dropped lines");
    assert_eq!(program.end(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_no_gap() {
    const FLAGS: [&str; 5] = [
        "--leader-elect",
        "--leader-elect-lease-duration=2s",
        "--leader-elect-renew-deadline=1500ms",
        "--leader-elect-retry-period=100ms",
        "--leader-elect-resource-namespace=default",
    ];
    let cluster = Cluster::start().await;
    let (mut program, mut stdout) = Program::start(&cluster, &FLAGS);
    program.until_logged("acquired leadership, emitting records");
    let mut standby = RoleHarness::ready(&cluster, &FLAGS).await;
    for number in 0..20 {
        let name = format!("pod-{number}");
        cluster.create(&name);
        cluster.make_ready(&name);
    }
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    program.signal("KILL");
    assert_eq!(program.end(), None, "ended by a signal");
    for number in 20..30 {
        let name = format!("pod-{number}");
        cluster.create(&name);
        cluster.make_ready(&name);
    }
    stdout.read_to_string(&mut line).unwrap();
    // The crash may have cut off the last line; emitted pods have whole lines.
    let whole = line
        .rfind('\n')
        .and_then(|end| line.get(..end))
        .unwrap_or_default();
    let by_first = names(whole);
    standby
        .until_lines(|lines| {
            let mut all = by_first.clone();
            all.extend(super::harness::count(lines, "pod").into_keys());
            all.len() == 30
        })
        .await;
    let by_second = super::harness::count(&standby.stop().await, "pod");
    assert!(by_second.values().all(|times| *times == 1), "{by_second:?}");
}

#[test]
fn help_of_the_transitions_shows_every_flag_with_its_default() {
    let (code, stdout, stderr) = output(&mut kubevitals(&["transitions", "--help"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    insta::assert_snapshot!(stdout);
}

#[test]
fn invalid_flags_are_rejected_before_anything_is_opened() {
    for (flags, named) in [
        (&["--shard=4/4"][..], "--shard"),
        (&["--image-pull-cancel-delay=-1"], "image-pull-cancel-delay"),
        (
            &["--image-pull-cancel-delay=NaN"],
            "image-pull-cancel-delay",
        ),
        (
            &["--statistic-event-queue-length=-1"],
            "--statistic-event-queue-length",
        ),
        (&["--stdout-buffer=1Ki"], "stdout-buffer"),
        (&["-l", "app in"], "selector"),
        (&["--field-selector=a"], "field-selector"),
        (
            &["--leader-elect", "--leader-elect-renew-deadline=20s"],
            "leader-elect",
        ),
        (&["--listen-address=8080"], "--admin-bind-address"),
    ] {
        let words: Vec<&str> = [&["transitions", "--kubeconfig=none"], flags].concat();
        let (code, stdout, stderr) = output(&mut kubevitals(&words));
        assert_eq!((code, stdout.as_str()), (64, ""), "{flags:?}: {stderr}");
        assert!(stderr.contains(named), "{flags:?}: {stderr}");
    }
}

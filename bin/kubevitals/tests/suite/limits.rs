//! The program under small limits: open files, and memory beside hostile nodes.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::demo::{Running, plain_get};
use crate::{KillAtDeadline, kubevitals};

/// Reached only by a hang: thousands of handshakes take a while without optimization.
const DEADLINE: Duration = Duration::from_mins(4);
const TICK: Duration = Duration::from_millis(20);
/// Metrics of thousands of nodes take a while too.
const TICKS_PER_LOOK: usize = 50;

/// A simulated cluster and a server as programs.
struct Programs {
    server: Child,
    admin: String,
    folder: TempDir,
    _cluster: Running,
}

impl Programs {
    /// Starts a cluster, and a server under a limit of the shell's `ulimit`.
    fn start(cluster: &[&str], ulimit: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let kubeconfig = path("kubeconfig").display().to_string();
        let write = format!("--write-kubeconfig={kubeconfig}");
        let flags = ["sim", "--containers-per-pod=1", "--churn=0/s", &write];
        let cluster = Running::start(&[&flags, cluster].concat());
        let flags = [
            "server".to_owned(),
            format!("--kubeconfig={kubeconfig}"),
            format!("--cert-dir={}", path("cert").display()),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=0".to_owned(),
            "--kubelet-use-node-status-port".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            // One round of scrapes, with time for a busy machine.
            "--metric-resolution=2m".to_owned(),
            "--kubelet-request-timeout=1m".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let program = kubevitals(&[&flags, more].concat());
        let mut command = Command::new("sh");
        let script = format!("{ulimit} && exec \"$0\" \"$@\"");
        command.args(["-c", &script]).arg(program.get_program());
        command.args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut server = command
            .stdout(Stdio::piped())
            .stderr(File::create(path("log")).unwrap())
            .spawn()
            .unwrap();
        let _deadline = KillAtDeadline::new(&server);
        let mut line = String::new();
        let mut stdout = BufReader::new(server.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(path("log")).unwrap();
        assert!(line.contains("admin on http://"), "{line}{}", log());
        let admin = line.trim().rsplit("http://").next().unwrap().to_owned();
        Self {
            server,
            admin,
            folder,
            _cluster: cluster,
        }
    }

    async fn get(&self, path: &str) -> String {
        plain_get(&self.admin, path).await
    }

    /// Waits until the metrics are as expected, and calls `each` at each tick.
    async fn until(&self, wanted: impl Fn(&str) -> bool, mut each: impl FnMut()) -> String {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let metrics = tokio::time::timeout(DEADLINE, async {
            loop {
                for _ in 0..TICKS_PER_LOOK {
                    ticks.tick().await;
                    each();
                }
                let metrics = self.get("metrics").await;
                if wanted(&metrics) {
                    return metrics;
                }
            }
        });
        let Ok(metrics) = metrics.await else {
            panic!("not in time: {}\n{}", self.get("metrics").await, self.log());
        };
        metrics
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// A line of a file of the server in `/proc`.
    fn proc_line(&self, file: &str, start: &str) -> String {
        let file = Path::new("/proc")
            .join(self.server.id().to_string())
            .join(file);
        let text = std::fs::read_to_string(file).unwrap();
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with(start))
            .unwrap()
            .to_owned()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The value of a series without a timestamp.
fn value(metrics: &str, series: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let line = line.unwrap_or_else(|| panic!("{series} is missing: {metrics}"));
    line.trim().parse().unwrap()
}

const OK: &str = r#"kubevitals_scrape_nodes{state="ok"}"#;
const OPEN_FILES: &str = r#"kubevitals_scrape_failures_total{reason="open-files"}"#;

/// Container runtimes start programs with a soft limit of 1,024, which was once too low for 1,000
/// nodes.
#[tokio::test]
async fn the_soft_limit_of_open_files_is_raised() {
    let cluster = ["--nodes=1500", "--pods-per-node=1"];
    let programs = Programs::start(&cluster, "ulimit -S -n 1024", &[]);
    let limits = programs.proc_line("limits", "Max open files");
    let limits: Vec<&str> = limits.split_whitespace().skip(3).collect();
    assert_eq!(limits[0], limits[1], "soft and hard limit");
    let metrics = programs.until(|text| value(text, OK) == 1_500, || ()).await;
    assert_eq!(value(&metrics, OPEN_FILES), 0, "{}", programs.log());
    assert!(programs.get("livez").await.starts_with("HTTP/1.1 200"));
    assert!(!programs.log().contains("open files"), "{}", programs.log());
}

#[tokio::test]
async fn more_nodes_than_open_files_are_scraped_in_turns() {
    let cluster = ["--nodes=1500", "--pods-per-node=1"];
    let programs = Programs::start(&cluster, "ulimit -n 512", &[]);
    let metrics = programs.until(|text| value(text, OK) == 1_500, || ()).await;
    assert_eq!(value(&metrics, OPEN_FILES), 0, "{}", programs.log());
    assert!(programs.get("livez").await.starts_with("HTTP/1.1 200"));
    let ready = programs.get("readyz?verbose").await;
    let warning = "[+]kubelet-connections ok: 224 of 1500 nodes keep a connection";
    assert!(ready.contains(warning), "{ready}");
    let log = programs.log();
    let lines = log.lines().filter(|line| line.contains("open files"));
    assert_eq!(lines.count(), 1, "{log}");
    assert!(!log.contains("failed to accept"), "{log}");
}

/// Twenty nodes that sent 2 GB each once took the server from 24 to 118 MiB, and nothing limited
/// what more of them could take.
#[tokio::test]
async fn hostile_nodes_share_one_memory_limit() {
    let cluster = ["--nodes=41", "--pods-per-node=1", "--fault=huge:2Gi=40"];
    let programs = Programs::start(&cluster, "true", &["--scrape-memory-limit=64Mi"]);
    let anonymous = || {
        let line = programs.proc_line("status", "RssAnon:");
        let kilobytes = line.split_whitespace().nth(1).unwrap();
        kilobytes.parse::<u64>().unwrap() / 1_024
    };
    let (before, mut peak) = (anonymous(), 0);
    let reasons = ["too-large", "memory-limit"]
        .map(|reason| format!("kubevitals_scrape_failures_total{{reason=\"{reason}\"}}"));
    let failed = |text: &str| -> u64 { reasons.iter().map(|series| value(text, series)).sum() };
    let wanted = |text: &str| value(text, OK) == 1 && failed(text) >= 40;
    let metrics = programs
        .until(wanted, || peak = peak.max(anonymous()))
        .await;
    assert!(
        peak < before + 64 + 16,
        "{before} MiB, at the peak {peak} MiB"
    );
    assert!(value(&metrics, reasons[0].as_str()) >= 5);
}

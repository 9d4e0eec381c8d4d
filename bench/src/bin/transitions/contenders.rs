//! The programs that watch pods, and the fake API server that they watch.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubevitals_bench::BenchError;
use kubevitals_bench::contender::{Contender, Running};
use kubevitals_bench::serving::free_address;
use kubevitals_bench::sim::poll_until;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep};

use crate::{INFORMER, KUBEVITALS, fake_apiserver};

/// The measured program runs alone on this core; all others share the other one.
const MEASURED_CORE: &str = "0";
const OTHER_CORE: &str = "1";

/// Timeout of the list: 20,000 pods take seconds.
const LIST_TIMEOUT: Duration = Duration::from_mins(3);

/// Timeout of the last changes after they were written.
const CHANGES_TIMEOUT: Duration = Duration::from_mins(1);

/// Interval of polls for counts while the last changes are pending. Not shorter: responding is work
/// on the measured core.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum size of a response.
const MAX_RESPONSE_BYTES: u64 = 256 << 20;

/// A program that watches pods.
#[derive(Debug)]
pub(crate) enum Watcher {
    Kubevitals(PathBuf),
    Informer(PathBuf),
}

/// A running watcher.
pub(crate) struct RunningWatcher {
    pub(crate) process: Running,
    pub(crate) counts: Counts,
    log: PathBuf,
}

/// Endpoint with the counts of a watcher.
#[derive(Debug, Clone)]
pub(crate) enum Counts {
    /// Prometheus metrics.
    Kubevitals(SocketAddr),
    /// Two numbers.
    Informer(SocketAddr),
}

/// The fake API server.
pub(crate) struct FakeApiServer {
    process: Running,
    stdin: ChildStdin,
    lines: tokio::io::Lines<tokio::io::BufReader<ChildStdout>>,
    kubeconfig: PathBuf,
}

impl FakeApiServer {
    pub(crate) async fn start(pods: usize, folder: &Path) -> Result<Self, BenchError> {
        let own = std::env::current_exe().map_err(BenchError::file("locate", "this program"))?;
        let kubeconfig = folder.join("kubeconfig");
        let arguments = vec![
            "fake-apiserver".to_owned(),
            pods.to_string(),
            kubeconfig.display().to_string(),
        ];
        let log = folder.join("fake-apiserver.log");
        let contender = pinned(OTHER_CORE, "the fake API server", &own, arguments, log);
        let (process, stdin, stdout) = contender.start_piped()?;
        let mut server = Self {
            process,
            stdin,
            lines: tokio::io::BufReader::new(stdout).lines(),
            kubeconfig,
        };
        // The kubeconfig has been written by then.
        server.line().await?;
        Ok(server)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn cpu(&self) -> Result<Duration, BenchError> {
        self.process.cpu()
    }

    /// Starts the changes, and waits until all are sent.
    pub(crate) async fn send_all(&mut self) -> Result<(), BenchError> {
        let written = self.stdin.write_all(b"go\n").await;
        written.map_err(BenchError::file("write to", "the fake API server"))?;
        let line = self.line().await?;
        if line == fake_apiserver::SENT {
            return Ok(());
        }
        Err(BenchError::Protocol {
            name: "the fake API server".to_owned(),
            output: line,
            expected: "`sent`",
        })
    }

    pub(crate) async fn stop(self) {
        drop(self.stdin);
        self.process.stop().await;
    }

    async fn line(&mut self) -> Result<String, BenchError> {
        let line = self.lines.next_line().await;
        let line = line.map_err(BenchError::file("read from", "the fake API server"))?;
        match line {
            Some(line) => Ok(line),
            None => Err(self.process.check().err().unwrap_or(BenchError::Protocol {
                name: "the fake API server".to_owned(),
                output: String::new(),
                expected: "a line",
            })),
        }
    }
}

impl Watcher {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Kubevitals(_) => KUBEVITALS,
            Self::Informer(_) => INFORMER,
        }
    }

    pub(crate) async fn start(
        &self,
        kubeconfig: &Path,
        folder: &Path,
    ) -> Result<RunningWatcher, BenchError> {
        let log = folder.join("watcher.log");
        let kubeconfig = kubeconfig.display();
        match self {
            Self::Kubevitals(program) => {
                let address = free_address().await?;
                let arguments = vec![
                    "transitions".to_owned(),
                    format!("--kubeconfig={kubeconfig}"),
                    format!("--admin-bind-address={address}"),
                ];
                let contender = pinned(MEASURED_CORE, KUBEVITALS, program, arguments, log.clone());
                Ok(RunningWatcher {
                    process: contender.start()?,
                    counts: Counts::Kubevitals(address),
                    log,
                })
            }
            Self::Informer(program) => {
                let arguments = vec![kubeconfig.to_string()];
                let contender = pinned(MEASURED_CORE, INFORMER, program, arguments, log.clone());
                let mut process = contender.start()?;
                let output = || std::fs::read_to_string(&log).unwrap_or_default();
                let address = poll_until(
                    "the informer's address",
                    POLL_INTERVAL,
                    LIST_TIMEOUT,
                    async || {
                        process.check()?;
                        Ok(output().lines().next().and_then(|line| line.parse().ok()))
                    },
                );
                let address = address.await?;
                Ok(RunningWatcher {
                    process,
                    counts: Counts::Informer(address),
                    log,
                })
            }
        }
    }
}

impl RunningWatcher {
    /// Waits until it has listed this many pods.
    pub(crate) async fn until_listed(&mut self, pods: u64) -> Result<(), BenchError> {
        let every = Duration::from_millis(100);
        let process = &mut self.process;
        let counts = &self.counts;
        poll_until("the list", every, LIST_TIMEOUT, async || {
            process.check()?;
            // It may not listen yet.
            let seen = counts.read().await.map_or(0, |(listed, _)| listed);
            Ok((seen == pods).then_some(()))
        })
        .await
    }

    /// Stops it. For kubevitals, returns the number of pods with a record; each must have one.
    pub(crate) async fn end(self) -> Result<Option<u64>, BenchError> {
        let is_ours = matches!(self.counts, Counts::Kubevitals(_));
        self.process.stop().await;
        if !is_ours {
            return Ok(None);
        }
        pods_with_a_record(&self.log).map(Some)
    }
}

impl Counts {
    /// Waits until it has received this many changes; more is an error. Returns the number, and the
    /// time of the request that returned it.
    pub(crate) async fn until_changed(&self, wanted: u64) -> Result<(u64, Instant), BenchError> {
        // Changes in flight are received in less.
        sleep(POLL_INTERVAL / 2).await;
        let seen = poll_until(
            "the last change",
            POLL_INTERVAL,
            CHANGES_TIMEOUT,
            async || {
                let requested_at = Instant::now();
                let (_, changed) = self.read().await?;
                Ok((changed >= wanted).then_some((changed, requested_at)))
            },
        );
        let (seen, requested_at) = seen.await?;
        if seen == wanted {
            return Ok((seen, requested_at));
        }
        Err(BenchError::DifferentWork {
            name: format!("{self:?}"),
            found: seen,
            reference: "the fake API server".to_owned(),
            expected: wanted,
        })
    }

    /// Waits until the published count of changes agrees.
    pub(crate) async fn until_confirmed(&self, wanted: u64) -> Result<(), BenchError> {
        let Self::Kubevitals(address) = self else {
            return Ok(());
        };
        poll_until(
            "the count of changes",
            POLL_INTERVAL,
            CHANGES_TIMEOUT,
            async || {
                let text = http_get(*address, "/metrics").await?;
                let changed = value(&text, "pod_watch_events_total{event_type=\"MODIFIED\"}");
                Ok((changed == Some(wanted)).then_some(()))
            },
        )
        .await
    }

    /// Reads the number of pods and of changes that it has received.
    pub(crate) async fn read(&self) -> Result<(u64, u64), BenchError> {
        let unknown = |text: String| BenchError::Protocol {
            name: format!("{self:?}"),
            output: text,
            expected: "counts",
        };
        match self {
            Self::Informer(address) => {
                let text = http_get(*address, "/").await?;
                let mut numbers = text.split_whitespace().map(str::parse);
                match (numbers.next(), numbers.next()) {
                    (Some(Ok(added)), Some(Ok(updated))) => Ok((added, updated)),
                    _ => Err(unknown(text)),
                }
            }
            Self::Kubevitals(address) => {
                let text = http_get(*address, "/metrics").await?;
                let tracked = value(&text, "pod_statistics_tracked");
                // Updated with each event, unlike the counters that the loop publishes four times a
                // second.
                let taken = "statistic_event_processing_seconds_count{event_loop=\"pod\"}";
                let changed = value(&text, taken);
                match tracked {
                    Some(tracked) => Ok((tracked, changed.unwrap_or(0))),
                    None => Err(unknown(text)),
                }
            }
        }
    }
}

/// Returns the value of a series.
pub(crate) fn value(text: &str, series: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series))?;
    let number: f64 = line.trim().parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are whole"
    )]
    (number >= 0.0).then_some(number as u64)
}

/// Sends a GET request over plain HTTP.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> Result<String, BenchError> {
    let failed = |error: std::io::Error| BenchError::Request {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    // Responses to HTTP/1.0 are not chunked.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut response = String::new();
    let mut limited = stream.take(MAX_RESPONSE_BYTES);
    limited
        .read_to_string(&mut response)
        .await
        .map_err(failed)?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    if head.split(' ').nth(1) == Some("200") {
        return Ok(body.to_owned());
    }
    Err(BenchError::Request {
        path: path.to_owned(),
        problem: head.lines().next().unwrap_or_default().to_owned(),
    })
}

/// Counts the pods with a `pod` record among the lines; a second record of a pod is an error.
fn pods_with_a_record(lines: &Path) -> Result<u64, BenchError> {
    let file = std::fs::File::open(lines).map_err(BenchError::file("open", lines))?;
    let mut seen = HashSet::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(BenchError::file("read", lines))?;
        // Log messages are among the lines.
        let Ok(value) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let Some(metrics) = value.get("kube_transition_metrics") else {
            continue;
        };
        if metrics.get("type") != Some(&Value::from("pod")) {
            continue;
        }
        let name = |key: &str| metrics.get(key).and_then(Value::as_str).unwrap_or_default();
        let pod = format!("{}/{}", name("kube_namespace"), name("pod_name"));
        if !seen.insert(pod.clone()) {
            return Err(BenchError::ConditionsNotMet(format!(
                "{pod} has two records"
            )));
        }
    }
    Ok(u64::try_from(seen.len()).unwrap_or(u64::MAX))
}

/// A program that runs on one core only.
pub(crate) fn pinned(
    core: &str,
    name: &str,
    program: &Path,
    arguments: Vec<String>,
    log: PathBuf,
) -> Contender {
    let mut words = vec![
        "-c".to_owned(),
        core.to_owned(),
        program.display().to_string(),
    ];
    words.extend(arguments);
    Contender {
        name: name.to_owned(),
        program: "/usr/bin/taskset".into(),
        arguments: words,
        environment: Vec::new(),
        log,
    }
}

//! Who follows pods, and the fake API server that they follow.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubevitals_bench::BenchError;
use kubevitals_bench::contender::{Contender, Running};
use kubevitals_bench::serving::free_address;
use kubevitals_bench::sim::until;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep};

use crate::{INFORMER, KUBEVITALS, feeder};

/// Who is measured has this core to itself; the other is for all else.
const MEASURED: &str = "0";
const OTHERS: &str = "1";

/// A list of 20,000 pods takes seconds.
const LIST: Duration = Duration::from_mins(3);

/// How long changes may take after the last was written: they are on their way.
const REST: Duration = Duration::from_mins(1);

/// How often counts are asked for while the last changes are awaited. Not often: to answer is work
/// on the core that is measured.
const LOOK: Duration = Duration::from_millis(50);

/// More is no answer.
const MAX_ANSWER: u64 = 256 << 20;

/// A program that follows pods.
#[derive(Debug)]
pub(crate) enum Follower {
    Kubevitals(PathBuf),
    Informer(PathBuf),
}

/// One that runs.
pub(crate) struct Following {
    pub(crate) process: Running,
    pub(crate) counts: Counts,
    log: PathBuf,
}

/// Where it says what it has seen.
#[derive(Debug, Clone)]
pub(crate) enum Counts {
    /// Metrics.
    Kubevitals(SocketAddr),
    /// Two numbers.
    Informer(SocketAddr),
}

/// The fake API server.
pub(crate) struct Stream {
    process: Running,
    stdin: ChildStdin,
    lines: tokio::io::Lines<tokio::io::BufReader<ChildStdout>>,
    kubeconfig: PathBuf,
}

impl Stream {
    pub(crate) async fn start(pods: usize, folder: &Path) -> Result<Self, BenchError> {
        let own = std::env::current_exe().map_err(BenchError::file("find", "this program"))?;
        let kubeconfig = folder.join("kubeconfig");
        let arguments = vec![
            "feeder".to_owned(),
            pods.to_string(),
            kubeconfig.display().to_string(),
        ];
        let log = folder.join("feeder.log");
        let contender = pinned(OTHERS, "the fake API server", &own, arguments, log);
        let (process, stdin, stdout) = contender.start_piped()?;
        let mut stream = Self {
            process,
            stdin,
            lines: tokio::io::BufReader::new(stdout).lines(),
            kubeconfig,
        };
        // The kubeconfig is written by then.
        stream.line().await?;
        Ok(stream)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn cpu(&self) -> Result<Duration, BenchError> {
        self.process.cpu()
    }

    /// Has all changes sent, and waits until they are.
    pub(crate) async fn send_all(&mut self) -> Result<(), BenchError> {
        let told = self.stdin.write_all(b"go\n").await;
        told.map_err(BenchError::file("write to", "the fake API server"))?;
        let line = self.line().await?;
        if line == feeder::SENT {
            return Ok(());
        }
        Err(BenchError::Protocol {
            name: "the fake API server".to_owned(),
            answer: line,
            expected: "that it has sent everything",
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
                answer: String::new(),
                expected: "a line",
            })),
        }
    }
}

impl Follower {
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
    ) -> Result<Following, BenchError> {
        let log = folder.join("follower.log");
        let kubeconfig = kubeconfig.display();
        match self {
            Self::Kubevitals(program) => {
                let address = free_address().await?;
                let arguments = vec![
                    "transitions".to_owned(),
                    format!("--kubeconfig={kubeconfig}"),
                    format!("--admin-bind-address={address}"),
                ];
                let contender = pinned(MEASURED, KUBEVITALS, program, arguments, log.clone());
                Ok(Following {
                    process: contender.start()?,
                    counts: Counts::Kubevitals(address),
                    log,
                })
            }
            Self::Informer(program) => {
                let arguments = vec![kubeconfig.to_string()];
                let contender = pinned(MEASURED, INFORMER, program, arguments, log.clone());
                let mut process = contender.start()?;
                let told = || std::fs::read_to_string(&log).unwrap_or_default();
                let address = until("a word of the informer", LOOK, LIST, async || {
                    process.check()?;
                    Ok(told().lines().next().and_then(|line| line.parse().ok()))
                });
                let address = address.await?;
                Ok(Following {
                    process,
                    counts: Counts::Informer(address),
                    log,
                })
            }
        }
    }
}

impl Following {
    /// Waits until it has so many pods.
    pub(crate) async fn until_listed(&mut self, pods: u64) -> Result<(), BenchError> {
        let every = Duration::from_millis(100);
        let process = &mut self.process;
        let counts = &self.counts;
        until("the list", every, LIST, async || {
            process.check()?;
            // It may not listen yet.
            let seen = counts.read().await.map_or(0, |(listed, _)| listed);
            Ok((seen == pods).then_some(()))
        })
        .await
    }

    /// Ends it. Of ours, every pod must be told of once: how many were.
    pub(crate) async fn end(self) -> Result<Option<u64>, BenchError> {
        let is_ours = matches!(self.counts, Counts::Kubevitals(_));
        self.process.stop().await;
        if !is_ours {
            return Ok(None);
        }
        pods_told_of(&self.log).map(Some)
    }
}

impl Counts {
    /// Waits until it has seen so many changes; more is an error. Gives how many, and when it was
    /// asked for them.
    pub(crate) async fn until_changed(&self, wanted: u64) -> Result<(u64, Instant), BenchError> {
        // What is still on its way is read in less.
        sleep(LOOK / 2).await;
        let seen = until("the last change", LOOK, REST, async || {
            let asked = Instant::now();
            let (_, changed) = self.read().await?;
            Ok((changed >= wanted).then_some((changed, asked)))
        });
        let (seen, asked) = seen.await?;
        if seen == wanted {
            return Ok((seen, asked));
        }
        Err(BenchError::DifferentWork {
            name: format!("{self:?}"),
            found: seen,
            reference: "the fake API server".to_owned(),
            expected: wanted,
        })
    }

    /// What it says of the changes in the end, once that is published.
    pub(crate) async fn until_confirmed(&self, wanted: u64) -> Result<(), BenchError> {
        let Self::Kubevitals(address) = self else {
            return Ok(());
        };
        until("the count of changes", LOOK, REST, async || {
            let text = ask(*address, "/metrics").await?;
            let changed = value(&text, "pod_watch_events_total{event_type=\"MODIFIED\"}");
            Ok((changed == Some(wanted)).then_some(()))
        })
        .await
    }

    /// Pods it has, and changes it has seen.
    pub(crate) async fn read(&self) -> Result<(u64, u64), BenchError> {
        let unknown = |text: String| BenchError::Protocol {
            name: format!("{self:?}"),
            answer: text,
            expected: "counts",
        };
        match self {
            Self::Informer(address) => {
                let text = ask(*address, "/").await?;
                let mut numbers = text.split_whitespace().map(str::parse);
                match (numbers.next(), numbers.next()) {
                    (Some(Ok(added)), Some(Ok(updated))) => Ok((added, updated)),
                    _ => Err(unknown(text)),
                }
            }
            Self::Kubevitals(address) => {
                let text = ask(*address, "/metrics").await?;
                let tracked = value(&text, "pod_statistics_tracked");
                // Counted as it happens, unlike what the loop publishes four times a second.
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

/// The value of a series.
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

/// A GET in plain HTTP.
pub(crate) async fn ask(address: SocketAddr, path: &str) -> Result<String, BenchError> {
    let failed = |error: std::io::Error| BenchError::Request {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    // The answer of the oldest version has no pieces.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = String::new();
    let mut limited = stream.take(MAX_ANSWER);
    limited.read_to_string(&mut answer).await.map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) == Some("200") {
        return Ok(body.to_owned());
    }
    Err(BenchError::Request {
        path: path.to_owned(),
        problem: head.lines().next().unwrap_or_default().to_owned(),
    })
}

/// How many pods have a `pod` record among the lines; more than one of a pod is an error.
fn pods_told_of(lines: &Path) -> Result<u64, BenchError> {
    let file = std::fs::File::open(lines).map_err(BenchError::file("open", lines))?;
    let mut seen = HashSet::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(BenchError::file("read", lines))?;
        // Logs are among the lines.
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
            return Err(BenchError::Missed(format!("{pod} was told of twice")));
        }
    }
    Ok(u64::try_from(seen.len()).unwrap_or(u64::MAX))
}

/// A program on one core of its own.
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

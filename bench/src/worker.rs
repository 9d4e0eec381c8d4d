//! Small contenders that repeat one operation, such as parsing the same bytes.
//!
//! Each is a process in whatever language, so that all are measured alike and none warms the caches
//! or fills the heap of another. The protocol, whose Go side is `bench/go/internal/worker`:
//!
//! 1. the worker loads its input, does one untimed pass, prints `ready` and waits for a line;
//! 2. it does its passes and prints a [`WorkerResult`] as one line of JSON;
//! 3. it waits for the end of its input, so that the harness can still read its costs.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use crate::BenchError;
use crate::contender::{Contender, Usage};

/// Timeout of one step of a worker.
const TIMEOUT: Duration = Duration::from_mins(5);

/// A worker's report of its passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerResult {
    /// Number of timed passes.
    pub passes: u32,
    /// The shortest pass: the least disturbed by other load of the machine.
    pub best_seconds: f64,
    pub median_seconds: f64,
    /// Number of items that one pass found; equal for all contenders.
    pub items: u64,
    /// Heap that the result retains, if the job measures it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
}

/// A worker's report, and the cost of its passes as seen from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRun {
    pub result: WorkerResult,
    pub usage: Usage,
}

/// Runs a worker from start to exit.
pub async fn run(contender: &Contender) -> Result<WorkerRun, BenchError> {
    let (mut running, mut input, output) = contender.start_piped()?;
    let mut lines = BufReader::new(output).lines();
    let ready = line(contender, &mut lines).await?;
    if ready != "ready" {
        return Err(unexpected(contender, ready, "`ready`"));
    }
    let passes = async {
        let failed = |_| unexpected(contender, String::new(), "a wait for its start");
        input.write_all(b"go\n").await.map_err(failed)?;
        line(contender, &mut lines).await
    };
    let (line, usage) = running.during(passes).await?;
    let Ok(result) = serde_json::from_str(&line) else {
        return Err(unexpected(contender, line, "a result in JSON"));
    };
    drop(input);
    running.end().await?;
    Ok(WorkerRun { result, usage })
}

/// The worker's side of the protocol: times passes after an untimed one. A pass returns the number
/// of items that it found.
pub fn serve(passes: u32, mut pass: impl FnMut() -> u64) -> std::io::Result<()> {
    let mut items = pass();
    start()?;
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..passes.max(1) {
        let started = Instant::now();
        items = pass();
        times.push(started.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let at = |index: usize| times.get(index).copied().unwrap_or_default();
    finish(&WorkerResult {
        passes: passes.max(1),
        best_seconds: at(0),
        median_seconds: at(times.len() / 2),
        items,
        kept_bytes: None,
    })
}

/// Like [`serve`], but runs `make` once and without an untimed pass; it returns the number of items
/// and the bytes that they retain.
pub fn serve_once(make: impl FnOnce() -> (u64, u64)) -> std::io::Result<()> {
    start()?;
    let started = Instant::now();
    let (items, kept) = make();
    let seconds = started.elapsed().as_secs_f64();
    finish(&WorkerResult {
        passes: 1,
        best_seconds: seconds,
        median_seconds: seconds,
        items,
        kept_bytes: Some(kept),
    })
}

fn start() -> std::io::Result<()> {
    write_line("ready")?;
    let mut go = String::new();
    std::io::stdin().lock().read_line(&mut go)?;
    if go.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn finish(result: &WorkerResult) -> std::io::Result<()> {
    write_line(&serde_json::to_string(result)?)?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

fn write_line(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

async fn line(
    contender: &Contender,
    lines: &mut Lines<BufReader<ChildStdout>>,
) -> Result<String, BenchError> {
    match timeout(TIMEOUT, lines.next_line()).await {
        Ok(Ok(Some(line))) => Ok(line),
        Ok(_) => Err(unexpected(
            contender,
            "nothing".to_owned(),
            "a line; see its log",
        )),
        Err(_) => Err(BenchError::Timeout {
            event: format!("a line from {}", contender.name),
            timeout: TIMEOUT,
        }),
    }
}

fn unexpected(contender: &Contender, output: String, expected: &'static str) -> BenchError {
    BenchError::Protocol {
        name: contender.name.clone(),
        output,
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run_script(script: &str) -> Result<WorkerRun, BenchError> {
        let folder = tempfile::tempdir().unwrap();
        run(&Contender {
            name: "shell".to_owned(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: Vec::new(),
            log: folder.path().join("log"),
        })
        .await
    }

    #[tokio::test]
    async fn a_worker_in_any_language_is_measured() {
        let result = r#"{"passes":3,"best_seconds":0.1,"median_seconds":0.2,"items":7}"#;
        let script = format!("echo ready; read go; echo '{result}'; read end; exit 0");
        let worked = run_script(&script).await.unwrap();
        assert_eq!((worked.result.items, worked.result.kept_bytes), (7, None));
        assert!(worked.usage.peak > 0);
    }

    #[tokio::test]
    async fn unexpected_output_of_a_worker_is_quoted() {
        let error = run_script("echo hello; read go").await.unwrap_err();
        assert_eq!(error.to_string(), "shell wrote \"hello\", expected `ready`");
        let error = run_script("echo ready; read go; echo 7; read end")
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("\"7\", expected a result in JSON"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_worker_that_fails_after_its_result_is_an_error() {
        let result =
            r#"{"passes":1,"best_seconds":0.1,"median_seconds":0.1,"items":1,"kept_bytes":5}"#;
        let script = format!("echo ready; read go; echo '{result}'; read end; exit 9");
        let error = run_script(&script).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 9"), "{error}");
    }
}

//! Small contenders that do one thing many times over, such as parsing the same bytes.
//!
//! Each is a process, whatever it is written in, so that all are measured by the same means and
//! none warms the caches or fills the heap of another. The protocol, of which
//! `bench/go/internal/worker` is the Go end:
//!
//! 1. the worker loads its input, practises once, prints `ready` and waits for a line;
//! 2. it does its passes and prints an [`Answer`] as one line of JSON;
//! 3. it waits for the end of its input, so that the harness can still read what it cost.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use crate::BenchError;
use crate::contender::{Contender, Usage};

/// No worker takes this long for one step.
const PATIENCE: Duration = Duration::from_mins(5);

/// What a worker says of its passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Passes that were timed.
    pub passes: u32,
    /// The shortest: the machine's own speed, without what else it did.
    pub best_seconds: f64,
    /// The one in the middle.
    pub median_seconds: f64,
    /// What one pass found; all contenders must find the same.
    pub items: u64,
    /// What the result keeps on the heap, where that is the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
}

/// The answer, and what the passes cost seen from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct Worked {
    /// What the worker said.
    pub answer: Answer,
    /// What the kernel says.
    pub usage: Usage,
}

/// Runs a worker from start to end.
pub async fn run(contender: &Contender) -> Result<Worked, BenchError> {
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
    let (said, usage) = running.during(passes).await?;
    let Ok(answer) = serde_json::from_str(&said) else {
        return Err(unexpected(contender, said, "an answer in JSON"));
    };
    drop(input);
    running.end().await?;
    Ok(Worked { answer, usage })
}

/// The worker's end of the protocol on this process: times passes after one that is not counted. A
/// pass returns what it found.
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
    finish(&Answer {
        passes: passes.max(1),
        best_seconds: at(0),
        median_seconds: at(times.len() / 2),
        items,
        kept_bytes: None,
    })
}

/// As [`serve`], but makes something once and without practice; it returns what it found and what
/// it keeps.
pub fn serve_once(make: impl FnOnce() -> (u64, u64)) -> std::io::Result<()> {
    start()?;
    let started = Instant::now();
    let (items, kept) = make();
    let seconds = started.elapsed().as_secs_f64();
    finish(&Answer {
        passes: 1,
        best_seconds: seconds,
        median_seconds: seconds,
        items,
        kept_bytes: Some(kept),
    })
}

fn start() -> std::io::Result<()> {
    say("ready")?;
    let mut go = String::new();
    std::io::stdin().lock().read_line(&mut go)?;
    if go.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn finish(answer: &Answer) -> std::io::Result<()> {
    say(&serde_json::to_string(answer)?)?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

async fn line(
    contender: &Contender,
    lines: &mut Lines<BufReader<ChildStdout>>,
) -> Result<String, BenchError> {
    match timeout(PATIENCE, lines.next_line()).await {
        Ok(Ok(Some(line))) => Ok(line),
        Ok(_) => Err(unexpected(
            contender,
            "nothing".to_owned(),
            "a line; see its log",
        )),
        Err(_) => Err(BenchError::Late {
            what: format!("a line from {}", contender.name),
            within: PATIENCE,
        }),
    }
}

fn unexpected(contender: &Contender, answer: String, expected: &'static str) -> BenchError {
    BenchError::Protocol {
        name: contender.name.clone(),
        answer,
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run_script(script: &str) -> Result<Worked, BenchError> {
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
        let answer = r#"{"passes":3,"best_seconds":0.1,"median_seconds":0.2,"items":7}"#;
        let script = format!("echo ready; read go; echo '{answer}'; read end; exit 0");
        let worked = run_script(&script).await.unwrap();
        assert_eq!((worked.answer.items, worked.answer.kept_bytes), (7, None));
        assert!(worked.usage.peak > 0);
    }

    #[tokio::test]
    async fn a_worker_that_says_something_else_is_quoted() {
        let error = run_script("echo hello; read go").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "shell answered \"hello\" instead of `ready`"
        );
        let error = run_script("echo ready; read go; echo 7; read end")
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("\"7\" instead of an answer in JSON"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_worker_that_fails_after_its_answer_has_failed() {
        let answer =
            r#"{"passes":1,"best_seconds":0.1,"median_seconds":0.1,"items":1,"kept_bytes":5}"#;
        let script = format!("echo ready; read go; echo '{answer}'; read end; exit 9");
        let error = run_script(&script).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 9"), "{error}");
    }
}

//! Commands.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_probes::{
    Allow, ExecSettings, Outcome, Phase, ProbeContext, Prober, Reason, Target, compile_regexp,
};

use crate::support::{GENEROUS, assert_failure, assert_success, context, probe};

fn sh(script: &str) -> ExecSettings {
    ExecSettings {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ..ExecSettings::default()
    }
}

async fn run(settings: ExecSettings, timeout: Duration) -> Outcome {
    let prober = Prober::Exec(Box::new(settings));
    let target = Target::parse("any text; $(rm)", &prober).unwrap();
    prober.run(&target, &allowing(timeout)).await
}

fn allowing(timeout: Duration) -> ProbeContext {
    ProbeContext {
        allow: Arc::new(Allow {
            exec: true,
            ..Allow::default()
        }),
        ..context(timeout)
    }
}

#[tokio::test]
async fn commands_are_off_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ran");
    let script = format!("touch {}", file.display());
    let outcome = probe(&Prober::Exec(Box::new(sh(&script))), "x").await;
    assert_eq!(outcome.failure.unwrap().reason, Reason::NotAllowed);
    assert!(!file.exists());
    assert_success(&run(sh(&script), GENEROUS).await);
    assert!(file.exists());
}

#[tokio::test]
async fn the_exit_code_decides() {
    let outcome = run(sh("echo fine"), GENEROUS).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.exit_code, Some(0));
    let outcome = run(sh("echo broken >&2; exit 3"), GENEROUS).await;
    assert_failure(&outcome, Reason::ExecExit, Phase::Request);
    assert_eq!(outcome.facts.exit_code, Some(3));
    assert!(outcome.failure.unwrap().message.contains("broken"));
    let settings = ExecSettings {
        valid_exit_codes: vec![3],
        ..sh("exit 3")
    };
    assert_success(&run(settings, GENEROUS).await);
    let outcome = run(sh("kill -9 $$"), GENEROUS).await;
    assert_failure(&outcome, Reason::ExecExit, Phase::Request);
    assert_eq!(outcome.facts.exit_code, Some(137));
    for command in [vec![], vec!["/missing/program".to_owned()]] {
        let settings = ExecSettings {
            command,
            ..ExecSettings::default()
        };
        let outcome = run(settings, GENEROUS).await;
        assert_failure(&outcome, Reason::ExecExit, Phase::Request);
        assert_eq!(outcome.facts.exit_code, None);
    }
}

#[tokio::test]
async fn the_environment_is_the_configured_one_and_the_target() {
    let settings = ExecSettings {
        environment: vec![("OWN".to_owned(), "1".to_owned())],
        fail_if_output_not_matches_regexp: vec![
            compile_regexp("(?m)^OWN=1$").unwrap(),
            compile_regexp(r"(?m)^PROBE_TARGET=any text; \$\(rm\)$").unwrap(),
        ],
        fail_if_output_matches_regexp: vec![compile_regexp("CARGO").unwrap()],
        ..sh("env")
    };
    assert_success(&run(settings, GENEROUS).await);
    let settings = ExecSettings {
        fail_if_output_not_matches_regexp: vec![compile_regexp("x").unwrap()],
        ..sh("echo y")
    };
    let outcome = run(settings, GENEROUS).await;
    assert_failure(&outcome, Reason::ExpectMismatch, Phase::Request);
}

#[tokio::test]
async fn output_is_bounded_and_does_not_block_the_command() {
    let script = "head -c 10000000 /dev/zero | tr '\\0' x; echo end; exit 4";
    let outcome = run(sh(script), GENEROUS).await;
    assert_failure(&outcome, Reason::ExecExit, Phase::Request);
    assert_eq!(outcome.facts.exit_code, Some(4));
    assert!(outcome.failure.unwrap().message.len() < 2000);
}

#[tokio::test]
async fn a_command_is_killed_with_its_group_at_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    // A child in the background, and the command itself waits for ever.
    let script = format!("sleep 1000 & echo $$ $! > {}; wait", file.display());
    let outcome = run(sh(&script), Duration::from_secs(2)).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Request);
    assert_gone(&file).await;
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = format!(
        "sleep 1000 > /dev/null 2>&1 & echo $$ $! > {}; exit 0",
        file.display()
    );
    assert_success(&run(sh(&script), GENEROUS).await);
    assert_gone(&file).await;
}

#[tokio::test]
async fn a_run_that_is_dropped_kills_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = format!("sleep 1000 & echo $$ $! > {}; wait", file.display());
    let prober = Prober::Exec(Box::new(sh(&script)));
    let target = Target::parse("x", &prober).unwrap();
    let context = allowing(Duration::from_mins(10));
    let mut running = Box::pin(prober.run(&target, &context));
    let is_written = || std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'));
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    while !is_written() {
        tokio::select! {
            _ = &mut running => panic!("it ended"),
            _ = ticks.tick() => {}
        }
    }
    drop(running);
    assert_gone(&file).await;
}

/// Waits until all processes whose numbers are in a file have ended.
async fn assert_gone(file: &Path) {
    let pids = std::fs::read_to_string(file).unwrap();
    let gone = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while pids.split_whitespace().any(is_running) {
            ticks.tick().await;
        }
    };
    let waited = tokio::time::timeout(GENEROUS, gone).await;
    assert!(waited.is_ok(), "{pids} are running");
}

/// A process that has ended and is not waited for yet does not run.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with('Z') && !state.starts_with('X'))
}

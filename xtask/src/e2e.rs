//! `cargo xtask e2e`: the tests that need a real control plane and a real node.

use std::cmp::Reverse;
use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cluster::{self, Options, Running};
use crate::fetch::{self, Program};
use crate::interrupt;
use crate::step::{Steps, cargo, shown};
use crate::suite::E2E_TARGET;
use crate::totals::Totals;

/// What to run, and where
#[derive(Debug, Args)]
pub(crate) struct E2eFlags {
    /// Only tests whose name holds this
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Leave the cluster standing; the next run takes it up
    #[arg(long)]
    keep: bool,
    /// Run against a cluster that stands (`cargo xtask cluster up --name NAME`) and leave it so
    #[arg(long, value_name = "NAME", conflicts_with = "keep")]
    cluster: Option<String>,
    /// Passed on to the test runner: `-- --nocapture`
    #[arg(last = true, value_name = "ARGUMENT")]
    runner: Vec<String>,
}

/// Our own program.
const PROGRAM: &str = "kubevitals";

/// The cluster of a run that is not told another.
const NAME: &str = "e2e";

/// Two cores, and tests that wait most of the time.
const THREADS: &str = "--test-threads=2";

/// Where the tests note how long each took.
const TIMES_VARIABLE: &str = "KUBEVITALS_E2E_TIMES";

pub(crate) fn run(flags: &E2eFlags) -> Result<()> {
    require_root()?;
    require_go()?;
    let mut steps = Steps::default();
    let result = all(flags, &mut steps);
    steps.print();
    // The last line says what the runner counted.
    let totals = result?;
    println!("{totals}");
    Ok(())
}

fn all(flags: &E2eFlags, steps: &mut Steps) -> Result<Totals> {
    interrupt::listen()?;
    let metrics_server = steps.step("programs", || {
        fetch::programs(&Program::for_e2e())?;
        fetch::program(Program::MetricsServer)
    })?;
    let tests = steps.step("build of the tests", build)?;
    let kubevitals = steps.step("build of kubevitals", build_program)?;
    interrupt::pause(Duration::ZERO)?;

    let running = steps.step("cluster up", || match &flags.cluster {
        Some(name) => cluster::attach(name),
        None => cluster::up(&Options {
            name: NAME.to_owned(),
            tied: !flags.keep,
        }),
    })?;
    let _alone = alone(&running.folder)?;
    let times = running.folder.join("test-times");
    let totals = steps.step("tests", || {
        let mut command = running.command("setpriv");
        // With this process, the tests end too.
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&tests)
            .arg(THREADS)
            .args(&flags.filter)
            .args(&flags.runner)
            .env(TIMES_VARIABLE, &times)
            .env("KUBEVITALS_E2E_METRICS_SERVER", &metrics_server)
            .env("KUBEVITALS_E2E_KUBEVITALS", &kubevitals)
            .env("KUBEVITALS_E2E_XTASK", std::env::current_exe()?);
        judge(counted(&mut command))
    });
    for (name, took) in noted(&times) {
        steps.note(&format!("test {name}"), took);
    }
    let ended = steps.step("cluster down", || end(flags, &running));
    let totals = totals?;
    ended?;
    Ok(totals)
}

/// Held until this process ends: a second run on the same cluster would take the first one's
/// namespaces for leftovers.
fn alone(folder: &Path) -> Result<File> {
    let path = folder.join("e2e.lock");
    let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another run tests on the cluster in {}", folder.display())
        }
        Err(TryLockError::Error(error)) => Err(error).context("locking"),
    }
}

/// Removes the cluster, unless it is to stay.
fn end(flags: &E2eFlags, running: &Running) -> Result<()> {
    if let Some(name) = &flags.cluster {
        println!("cluster {name} was there before and stays");
        return Ok(());
    }
    if flags.keep {
        println!("cluster {NAME} stays: `cargo xtask cluster down --name {NAME}` removes it");
        println!("export KUBECONFIG={}", running.kubeconfig.display());
        return Ok(());
    }
    cluster::down(NAME)
}

/// Builds the test binary and tells where it is.
fn build() -> Result<PathBuf> {
    let mut build = cargo();
    // With the features of the whole workspace, as `cargo xtask test` builds it: of one package
    // alone, cargo would compile much of what that package stands on once more.
    build.args([
        "test",
        "--locked",
        "--no-run",
        "--workspace",
        "--all-features",
    ]);
    build.arg(format!("--test={E2E_TARGET}"));
    executable(build, E2E_TARGET)
}

/// Builds our own program and tells where it is.
fn build_program() -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--locked", "--workspace", "--all-features"]);
    build.args(["--bin", PROGRAM]);
    executable(build, PROGRAM)
}

/// Runs cargo and tells where what it built is.
fn executable(mut build: Command, target: &str) -> Result<PathBuf> {
    build.arg("--message-format=json-render-diagnostics");
    let output = build
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", shown(&build)))?;
    if !output.status.success() {
        bail!("{} failed ({})", shown(&build), output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    path_of(target, &messages).with_context(|| format!("{} named no {target}", shown(&build)))
}

/// The path in cargo's message on what it built.
fn path_of(target: &str, messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message.pointer("/target/name")? == target;
        let path = message.get("executable")?.as_str()?;
        is_it.then(|| PathBuf::from(path))
    })
}

/// Runs the tests, passing their output on while counting. A signal ends them first, then us.
fn counted(command: &mut Command) -> Result<(bool, Totals)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    let lines = lines(&mut child)?;
    let mut totals = Totals::default();
    loop {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                println!("{line}");
                totals.add_line(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(interrupted) = interrupt::pause(Duration::ZERO) {
            // An error means that they have ended by themselves: the signal of a terminal reaches
            // them too.
            let _ = child.kill();
            child.wait().context("waiting for the tests to end")?;
            return Err(interrupted);
        }
    }
    let status = child.wait().context("waiting for the tests to end")?;
    if status.signal().is_some() {
        // The signal of a terminal may have reached them first; then it is ours too.
        interrupt::pause(Duration::from_millis(200))?;
        bail!("the tests were ended by a signal ({status})");
    }
    Ok((status.success(), totals))
}

/// The lines of a program's output, read in a thread of its own so that we can look up in between.
fn lines(child: &mut Child) -> Result<Receiver<String>> {
    let output = child.stdout.take().context("the output is piped")?;
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

fn judge(run: Result<(bool, Totals)>) -> Result<Totals> {
    let (succeeded, totals) = run?;
    if !succeeded {
        bail!("the tests failed: {totals}");
    }
    if totals.passed == 0 {
        bail!("no test matched: nothing was tested");
    }
    Ok(totals)
}

/// What the tests noted: lines of seconds and a name. Missing if none came so far.
fn noted(times: &Path) -> Vec<(String, Duration)> {
    let text = fs::read_to_string(times).unwrap_or_default();
    // A cluster that stays keeps its folder: the next run notes its own.
    let _ = fs::remove_file(times);
    let mut found: Vec<(String, Duration)> = text.lines().filter_map(note).collect();
    found.sort_by_key(|(_, took)| Reverse(*took));
    found
}

fn note(line: &str) -> Option<(String, Duration)> {
    let (seconds, name) = line.split_once(' ')?;
    let took = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
    Some((name.to_owned(), took))
}

fn require_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("`cargo xtask e2e` needs root: a real cluster makes namespaces, mounts and cgroups");
    }
    Ok(())
}

fn require_go() -> Result<()> {
    let version = Command::new("go")
        .arg("version")
        .stdin(Stdio::null())
        .output();
    if !version.is_ok_and(|output| output.status.success()) {
        bail!("`cargo xtask e2e` needs Go, which builds Kubernetes: no working `go` is in PATH");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_binary_is_found_among_cargos_messages() {
        let messages = [
            r#"{"reason":"compiler-artifact","target":{"name":"kubevitals_e2e"},"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"xtask"},"executable":"/t/xtask"}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"e2e"},"executable":"/t/e2e-1"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ];
        assert_eq!(
            path_of(E2E_TARGET, &messages.join("\n")),
            Some(PathBuf::from("/t/e2e-1"))
        );
        assert_eq!(path_of(E2E_TARGET, messages[0]), None);
        assert_eq!(path_of(E2E_TARGET, ""), None);
    }

    #[test]
    fn a_run_in_which_nothing_ran_is_a_failure() {
        let passed = Totals {
            passed: 1,
            ..Totals::default()
        };
        assert_eq!(judge(Ok((true, passed))).unwrap(), passed);
        assert!(judge(Ok((false, passed))).is_err());
        assert!(judge(Ok((true, Totals::default()))).is_err());
    }

    #[test]
    fn the_output_of_a_program_is_counted() {
        let result =
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo '{result}'; exit 101")]);
        let (succeeded, totals) = counted(&mut command).unwrap();
        assert!(!succeeded);
        assert_eq!((totals.passed, totals.failed), (4, 2));
    }

    #[test]
    fn a_program_that_is_killed_is_told_from_tests_that_fail() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -KILL $$"]);
        let error = counted(&mut command).unwrap_err().to_string();
        assert!(error.contains("signal: 9"), "{error}");
    }

    #[test]
    fn one_run_at_a_time_tests_on_a_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let first = alone(folder.path()).unwrap();
        let error = alone(folder.path()).unwrap_err().to_string();
        assert!(
            error.starts_with("another run tests on the cluster"),
            "{error}"
        );
        drop(first);
        alone(folder.path()).unwrap();
    }

    #[test]
    fn notes_of_tests_are_read_slowest_first_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let times = folder.path().join("test-times");
        fs::write(
            &times,
            "1.5 usage::quick\nnonsense\n20.25 usage::slow\n-1 bad\n",
        )
        .unwrap();
        let found = noted(&times);
        assert_eq!(
            found,
            [
                ("usage::slow".to_owned(), Duration::from_millis(20_250)),
                ("usage::quick".to_owned(), Duration::from_millis(1_500)),
            ]
        );
        assert!(noted(&times).is_empty());
    }
}

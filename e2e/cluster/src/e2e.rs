//! `cargo xtask e2e`: the tests that need a real control plane and a real node.

use std::cmp::Reverse;
use std::fs::{self, File, TryLockError};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kubevitals_dist::program;
use xtask::step::{self, Steps, command_line, linting_cargo};
use xtask::totals::Totals;

use crate::cluster::{self, Options, Running};
use crate::fetch::{self, Package, Program};
use crate::programs::{self, KubeletVersion};
use crate::{images, interrupt, network};

/// Tests to run, and the cluster to run them on
#[derive(Debug, Args)]
pub(crate) struct E2eFlags {
    /// Only tests whose name contains this
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Keep the cluster for the next run
    #[arg(long)]
    keep: bool,
    /// Run on a cluster that is up (`cargo xtask cluster up --name NAME`) and keep it
    #[arg(long, value_name = "NAME", conflicts_with = "keep")]
    cluster: Option<String>,
    /// Profile of Cargo.toml that the image is compiled with; `dist` is what is shipped
    #[arg(long, default_value = images::PROFILE)]
    profile: String,
    /// Keep the watch streams that tests record in this folder
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// Passed on to the test runner: `-- --nocapture`
    #[arg(last = true, value_name = "ARGUMENT")]
    runner: Vec<String>,
}

/// The test binary that needs a real cluster.
const E2E_TARGET: &str = "e2e";

/// Our own program.
const PROGRAM: &str = "kubevitals";

/// The cluster of all tests.
const NAME: &str = "e2e";

/// The cluster with an older kubelet.
const OLDER_NAME: &str = "e2e-kubelet-1-35";

/// The tests that also run on the older kubelet.
const EVERY_KUBELET: &str = "starts::";

/// Two cores, and tests that wait most of the time.
const THREADS: &str = "--test-threads=2";

/// The programs that tests start besides ours.
const PEERS: [Program; 8] = [
    Program::MetricsServer,
    Program::MetricsServerE2e,
    Program::Otelcol,
    Program::VpaRecommender,
    Program::Prometheus,
    Program::Promtool,
    Program::BlackboxExporter,
    Program::Helm,
];

/// Names the file that the tests append their times to.
const TIMES_VARIABLE: &str = "KUBEVITALS_E2E_TIMES";

/// Names the folder that tests keep their recordings in.
const RECORDINGS_VARIABLE: &str = "KUBEVITALS_E2E_RECORDINGS";

/// What one run has built.
struct Run<'f> {
    flags: &'f E2eFlags,
    tests: PathBuf,
    kubevitals: PathBuf,
    /// The image of our own program.
    image: Vec<u8>,
}

pub(crate) fn run(flags: &E2eFlags) -> Result<()> {
    require_root()?;
    require_go()?;
    Steps::report(|steps| all(flags, steps))
}

fn all(flags: &E2eFlags, steps: &mut Steps) -> Result<Totals> {
    interrupt::listen()?;
    steps.step("programs", || {
        fetch::debian(&[Package::Stress])?;
        fetch::programs(&Program::for_e2e())
    })?;
    steps.step("workflows", lint_workflows)?;
    let run = Run {
        flags,
        tests: steps.step("build of the tests", build_tests)?,
        kubevitals: steps.step("build of kubevitals", build_program)?,
        image: steps.step("image of kubevitals", || images::kubevitals(&flags.profile))?,
    };
    interrupt::pause(Duration::ZERO)?;

    let selected: Vec<String> = flags.filter.iter().cloned().collect();
    if let Some(name) = &flags.cluster {
        let totals = run.on(&cluster::attach(name)?, &selected, steps);
        println!("cluster {name} was up before and is kept");
        return totals;
    }
    let newest = run.on_new_cluster(NAME, KubeletVersion::Newest, &selected, steps)?;
    let mut selected = run.tests_of_every_kubelet()?;
    if selected.is_empty() {
        return Ok(newest);
    }
    selected.push("--exact".to_owned());
    let older = run.on_new_cluster(OLDER_NAME, KubeletVersion::V135, &selected, steps)?;
    Ok(newest + older)
}

impl Run<'_> {
    /// Brings up a cluster, runs tests on it, and removes it unless it is kept.
    fn on_new_cluster(
        &self,
        name: &str,
        kubelet: KubeletVersion,
        selected: &[String],
        steps: &mut Steps,
    ) -> Result<Totals> {
        let running = steps.step(&format!("cluster {name} up"), || {
            cluster::up(&Options {
                name: name.to_owned(),
                kubelet: Some(kubelet),
                tied: !self.flags.keep,
            })
        })?;
        let totals = self.on(&running, selected, steps);
        if self.flags.keep {
            println!("cluster {name} is kept: `cargo xtask cluster down --name {name}` removes it");
            println!("export KUBECONFIG={}", running.kubeconfig.display());
            return totals;
        }
        let down = steps.step(&format!("cluster {name} down"), || cluster::down(name));
        let totals = totals?;
        down?;
        Ok(totals)
    }

    /// Runs the selected tests; none stands for all.
    fn on(&self, running: &Running, selected: &[String], steps: &mut Steps) -> Result<Totals> {
        let _lock = lock(&running.folder)?;
        steps.step("images", || import_images(running, &self.image))?;
        let times = running.folder.join("test-times");
        let totals = steps.step("tests", || {
            let mut command = running.command("setpriv");
            // The tests end with this process.
            command
                .args(["--pdeathsig", "KILL", "--"])
                .arg(&self.tests)
                .arg(THREADS)
                .args(selected)
                .args(&self.flags.runner)
                .env(TIMES_VARIABLE, &times)
                .env("KUBEVITALS_E2E_KUBEVITALS", &self.kubevitals)
                .env("KUBEVITALS_E2E_CLUSTER_TOOL", std::env::current_exe()?);
            if let Some(folder) = &self.flags.record {
                command.env(RECORDINGS_VARIABLE, std::path::absolute(folder)?);
            }
            for peer in PEERS {
                let name = peer.name().replace('-', "_").to_uppercase();
                command.env(format!("KUBEVITALS_E2E_{name}"), fetch::program(peer)?);
            }
            let (totals, succeeded) = run_tests(&mut command)?;
            totals.check(succeeded)
        });
        for (name, duration) in take_times(&times) {
            steps.record(&format!("test {name}"), duration);
        }
        totals
    }

    /// Returns the selected tests that also run on the older kubelet.
    fn tests_of_every_kubelet(&self) -> Result<Vec<String>> {
        let mut list = Command::new(&self.tests);
        list.args(["--list", "--format=terse"])
            .args(&self.flags.filter);
        let listed = String::from_utf8(network::output(&mut list)?)?;
        Ok(tests_of_every_kubelet(&listed))
    }
}

fn tests_of_every_kubelet(listed: &str) -> Vec<String> {
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    names
        .filter(|name| name.starts_with(EVERY_KUBELET))
        .map(str::to_owned)
        .collect()
}

/// Locks the cluster until this process ends: a second run on it would delete the namespaces of the
/// first as leftovers.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("e2e.lock");
    let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another run uses the cluster in {}", folder.display())
        }
        Err(TryLockError::Error(error)) => Err(error).context("locking"),
    }
}

/// Checks the workflow files of GitHub, which nothing else here runs.
fn lint_workflows() -> Result<()> {
    let mut lint = Command::new(fetch::program(Program::Actionlint)?);
    // Found in PATH they would check more, and no two machines the same.
    lint.args(["-shellcheck=", "-pyflakes="]);
    step::run(lint.current_dir(step::root()))
}

/// Builds the test binary and returns its path.
fn build_tests() -> Result<PathBuf> {
    // With the features of the whole workspace and with lints, as `cargo xtask test` builds it:
    // otherwise cargo would compile many packages once more.
    let mut build = linting_cargo();
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

/// Imports the images of tests. A kubelet uses an image that was imported before a pod named it.
fn import_images(running: &Running, kubevitals: &[u8]) -> Result<()> {
    running.import(kubevitals)?;
    let consume_cpu = fetch::program(Program::ConsumeCpu)?;
    let stress = programs::installed("stress")?;
    running.import(&images::resource_consumer(&consume_cpu, &stress)?)
}

/// Builds our own program and returns its path.
fn build_program() -> Result<PathBuf> {
    let mut build = linting_cargo();
    build.args(["build", "--locked", "--workspace", "--all-features"]);
    build.args(["--bin", PROGRAM]);
    executable(build, PROGRAM)
}

/// Runs cargo and returns the path of the executable that it built.
fn executable(mut build: Command, target: &str) -> Result<PathBuf> {
    let messages = program::messages(&mut build)?;
    program::executable(target, &messages)
        .with_context(|| format!("{} built no {target}", command_line(&build)))
}

/// Runs the tests, and returns whether they succeeded. A signal ends them first, then us.
fn run_tests(command: &mut Command) -> Result<(Totals, bool)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command_line(command)))?;
    let output = child.stdout.take().context("the output is piped")?;
    let reader = std::thread::spawn(move || Totals::read(output));
    while !reader.is_finished() {
        if let Err(interrupted) = interrupt::pause(Duration::from_millis(100)) {
            // An error means that they have ended already: a terminal signals them too.
            let _ = child.kill();
            child.wait().context("waiting for the tests to end")?;
            return Err(interrupted);
        }
    }
    let totals = reader.join().map_err(|_| anyhow!("reader panicked"))??;
    let status = child.wait().context("waiting for the tests to end")?;
    if status.signal().is_some() {
        // A terminal may have signalled them first; then our own signal follows.
        interrupt::pause(Duration::from_millis(200))?;
        bail!("the tests were ended by a signal ({status})");
    }
    Ok((totals, status.success()))
}

/// Reads and removes the times that the tests wrote, slowest first: a cluster that is kept has the
/// same folder in the next run.
fn take_times(file: &Path) -> Vec<(String, Duration)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let _ = fs::remove_file(file);
    let mut times: Vec<(String, Duration)> = text.lines().filter_map(parse_time).collect();
    times.sort_by_key(|(_, duration)| Reverse(*duration));
    times
}

/// Parses a line of seconds and a name.
fn parse_time(line: &str) -> Option<(String, Duration)> {
    let (seconds, name) = line.split_once(' ')?;
    let duration = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
    Some((name.to_owned(), duration))
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
    fn tests_of_starts_run_on_every_kubelet() {
        let listed = "starts::pulls: test\nusage::cpu: test\nserver::starts::late: test\n";
        assert_eq!(tests_of_every_kubelet(listed), ["starts::pulls"]);
        assert!(tests_of_every_kubelet("").is_empty());
    }

    #[test]
    fn results_of_the_tests_add_up() {
        let result =
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo '{result}'; exit 101")]);
        let (totals, succeeded) = run_tests(&mut command).unwrap();
        assert!(!succeeded);
        assert_eq!((totals.passed, totals.failed), (4, 2));
    }

    #[test]
    fn a_killed_runner_is_not_a_failed_test() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -KILL $$"]);
        let error = run_tests(&mut command).unwrap_err().to_string();
        assert!(error.contains("signal: 9"), "{error}");
    }

    #[test]
    fn a_cluster_is_used_by_one_run_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let error = lock(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("another run uses the cluster"), "{error}");
        // Not by dropping it: a child that another test has just forked holds the file until its
        // exec.
        first.unlock().unwrap();
        lock(folder.path()).unwrap();
    }

    #[test]
    fn times_of_tests_are_read_slowest_first_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let times = folder.path().join("test-times");
        fs::write(
            &times,
            "1.5 usage::quick\nnonsense\n20.25 usage::slow\n-1 bad\n",
        )
        .unwrap();
        let found = take_times(&times);
        assert_eq!(
            found,
            [
                ("usage::slow".to_owned(), Duration::from_millis(20_250)),
                ("usage::quick".to_owned(), Duration::from_millis(1_500)),
            ]
        );
        assert!(take_times(&times).is_empty());
    }
}

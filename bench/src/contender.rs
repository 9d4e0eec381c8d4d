//! A measured program: started, observed from outside through `/proc`, and stopped by its process
//! id.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::BenchError;
use crate::measure::Spread;
use crate::proc::{CpuTicks, Memory};

/// Interval of memory samples: short enough for a median, too long to cost anything.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum time that a program may take to exit after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A program and how it is started.
#[derive(Debug, Clone)]
pub struct Contender {
    /// Name in tables and messages.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Variables in addition to our own.
    pub environment: Vec<(String, String)>,
    /// File for its output; only for standard error if it is a worker.
    pub log: PathBuf,
}

/// A running contender. Dropping it kills the program, also on an error and on a panic.
#[derive(Debug)]
pub struct Running {
    name: String,
    log: PathBuf,
    pid: u32,
    child: Child,
    started: Instant,
}

/// Resources that a program used during a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Processor time of the window.
    pub cpu: Duration,
    /// Median of its resident memory in the window, in bytes.
    pub steady: f64,
    /// Maximum resident memory since its start, in bytes: the kernel's value, or a larger sample of
    /// the window. The kernel counts pages in batches for each processor, so that the two can
    /// differ a little.
    pub peak: u64,
    /// Maximum of the samples of the window, in bytes.
    pub max: u64,
}

impl Contender {
    /// Starts the program with its output redirected to the log.
    pub fn start(&self) -> Result<Running, BenchError> {
        let mut command = self.command();
        let log = self.log_file()?;
        let again = log
            .try_clone()
            .map_err(BenchError::file("open", &self.log))?;
        command.stdin(Stdio::null()).stdout(again).stderr(log);
        self.spawn(command)
    }

    /// Starts the program with piped input and output.
    ///
    /// # Panics
    /// Never: both are piped.
    pub fn start_piped(&self) -> Result<(Running, ChildStdin, ChildStdout), BenchError> {
        let mut command = self.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(self.log_file()?);
        let mut running = self.spawn(command)?;
        let stdin = running.child.stdin.take().expect("stdin is piped");
        let stdout = running.child.stdout.take().expect("stdout is piped");
        Ok((running, stdin, stdout))
    }

    /// The program, or `setpriv` which executes it: the kernel then kills it when we exit, even if
    /// we are killed. The signal is tied to the thread that starts the program, so programs are
    /// started from the main thread only.
    fn command(&self) -> Command {
        let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let mut command = match setpriv {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command
                    .args(["--pdeathsig", "KILL", "--"])
                    .arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .kill_on_drop(true);
        command
    }

    fn spawn(&self, mut command: Command) -> Result<Running, BenchError> {
        let failed = |source| BenchError::Start {
            program: self.program.display().to_string(),
            source,
        };
        // `setpriv` would start and then fail; report a missing program at once.
        std::fs::metadata(&self.program).map_err(failed)?;
        let child = command.spawn().map_err(failed)?;
        Ok(Running {
            name: self.name.clone(),
            log: self.log.clone(),
            pid: child.id().expect("it has not been waited for yet"),
            child,
            started: Instant::now(),
        })
    }

    fn log_file(&self) -> Result<File, BenchError> {
        let mut options = File::options();
        let file = options.create(true).append(true).open(&self.log);
        file.map_err(BenchError::file("open", &self.log))
    }
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Time since its start.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Processor time since its start, including children that have exited.
    pub fn cpu(&self) -> Result<Duration, BenchError> {
        Ok(CpuTicks::read(self.pid)?.time())
    }

    pub fn memory(&self) -> Result<Memory, BenchError> {
        Memory::read(self.pid)
    }

    /// Returns an error if it has exited.
    pub fn check(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status.to_string())),
            Err(error) => Err(self.ended(error.to_string())),
        }
    }

    /// Measures it while `work` runs.
    pub async fn during<T>(
        &mut self,
        work: impl Future<Output = Result<T, BenchError>>,
    ) -> Result<(T, Usage), BenchError> {
        self.check()?;
        let before = self.cpu()?;
        let mut samples: Vec<u64> = Vec::new();
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut work = std::pin::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done?,
                _ = ticks.tick() => {
                    samples.push(self.look()?.resident);
                }
            }
        };
        let memory = self.look()?;
        samples.push(memory.resident);
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
        let steady = Spread::of(samples.iter().map(|bytes| *bytes as f64));
        let usage = Usage {
            cpu: self.cpu()?.saturating_sub(before),
            steady: steady.map(|spread| spread.median).unwrap_or_default(),
            peak: samples.iter().copied().fold(memory.peak, u64::max),
            max: samples.iter().copied().max().unwrap_or_default(),
        };
        Ok((done, usage))
    }

    /// Sends SIGTERM, and SIGKILL if it does not exit in time.
    pub async fn stop(mut self) {
        // Until it is waited for, its id is not reused, even if it has exited.
        if let Ok(None) = self.child.try_wait()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            // It may have exited in between.
            let _ = kill_process(pid, Signal::TERM);
        }
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    /// Waits until it exits by itself.
    pub(crate) async fn end(mut self) -> Result<(), BenchError> {
        match timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(self.ended(status.to_string())),
            Ok(Err(error)) => Err(self.ended(error.to_string())),
            Err(_) => Err(BenchError::Timeout {
                event: format!("{} to exit", self.name),
                timeout: STOP_TIMEOUT,
            }),
        }
    }

    /// Returns its memory, or how it exited: a process that has exited has none.
    fn look(&mut self) -> Result<Memory, BenchError> {
        let memory = self.memory();
        self.check()?;
        memory
    }

    fn ended(&self, status: String) -> BenchError {
        BenchError::Exited {
            name: self.name.clone(),
            status,
            log: self.log.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> Contender {
        Contender {
            name: "shell".to_owned(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: vec![("WORD".to_owned(), "hello".to_owned())],
            log: folder.join("log"),
        }
    }

    fn exists(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[tokio::test]
    async fn usage_is_that_of_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let script =
            "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; echo $WORD; read never < /dev/zero";
        let contender = shell(script, folder.path());
        let mut running = contender.start().unwrap();
        let log = contender.log.clone();
        let printed = async {
            while !std::fs::read_to_string(&log).unwrap().contains("hello") {
                tokio::task::yield_now().await;
            }
            Ok(())
        };
        let ((), usage) = running.during(printed).await.unwrap();
        assert!(usage.cpu > Duration::ZERO);
        assert!(
            usage.peak > 100_000 && usage.steady > 100_000.0,
            "{usage:?}"
        );
        let pid = running.pid();
        running.stop().await;
        assert!(!exists(pid));
    }

    #[tokio::test]
    async fn a_program_that_exits_early_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut running = shell("exit 3", folder.path()).start().unwrap();
        let error = running
            .during(std::future::pending::<Result<(), _>>())
            .await
            .unwrap_err();
        let text = error.to_string();
        // It may have exited before the first check, or between the check and the sample.
        assert!(
            text.contains("exit status: 3") || matches!(error, BenchError::Proc { .. }),
            "{text}"
        );
    }

    #[tokio::test]
    async fn dropping_kills_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let running = shell("read never < /dev/zero", folder.path())
            .start()
            .unwrap();
        let pid = running.pid();
        assert!(exists(pid));
        drop(running);
        // Killed at once; the runtime collects it soon after.
        let gone = async {
            while std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z"))
            {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), gone).await.unwrap();
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut contender = shell("", folder.path());
        contender.program = "/nowhere/metrics-server".into();
        let error = contender.start().unwrap_err();
        assert!(error.to_string().contains("/nowhere/metrics-server"));
    }
}

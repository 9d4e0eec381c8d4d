//! Commands in running containers: exec, exec probes and hooks.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::instance::Instance;
use crate::shim::STAGE;
use crate::shim::record::{Launch, write_record};

/// The output of a probe or a hook that is kept.
const MAX_OUTPUT_BYTES: u64 = 10 << 10;

/// A command that is killed, with what it started in its session, when it is dropped.
#[derive(Debug)]
pub(crate) struct ContainerCommand {
    pub child: Child,
    request: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub code: u8,
    /// Standard output and error, cut.
    pub text: String,
}

/// The streams of a command.
#[derive(Debug, Default)]
pub(crate) struct CommandStreams {
    pub stdin: bool,
    pub output: bool,
    pub terminal: Option<PathBuf>,
}

impl ContainerCommand {
    /// Starts a command in a container: with its cgroup, environment, folder, user and mounts.
    pub(crate) fn start(
        instance: &Instance,
        command: Vec<String>,
        streams: &CommandStreams,
    ) -> io::Result<Self> {
        let pid = instance
            .pid()
            .ok_or_else(|| io::Error::other("the container is not running"))?;
        let base = &instance.launch;
        let request = instance.folder.join(format!("exec-{}.json", random_id()?));
        let launch = Launch {
            command,
            join: (!base.mounts.is_empty()).then_some(pid),
            mounts: Vec::new(),
            terminal: streams.terminal.clone(),
            reports: false,
            ..base.clone()
        };
        write_record(&request, &launch, false)?;
        let (program, arguments) = instance
            .shim
            .split_first()
            .ok_or_else(|| io::Error::other("the program of the shim is not known"))?;
        let pipe = |is_wanted: bool| {
            if is_wanted {
                Stdio::piped()
            } else {
                Stdio::null()
            }
        };
        let result = Command::new(program)
            .args(arguments)
            .arg(STAGE)
            .arg(&request)
            .stdin(pipe(streams.stdin))
            .stdout(pipe(streams.output))
            .stderr(pipe(streams.output))
            .kill_on_drop(true)
            .spawn();
        match result {
            Ok(child) => Ok(Self { child, request }),
            Err(error) => {
                let _ = std::fs::remove_file(&request);
                Err(error)
            }
        }
    }

    /// Waits for the end and returns the exit code.
    pub(crate) async fn wait(&mut self) -> io::Result<u8> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.wait().await?;
        let code = status
            .code()
            .or_else(|| status.signal().map(|signal| 128 + signal));
        Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255))
    }
}

impl Drop for ContainerCommand {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.request);
        // Not reaped yet, so the number is still its own. It leads a session.
        if let Some(pid) = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
        {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Runs a command within a time limit, and returns its exit code and output.
pub(crate) async fn run(
    instance: &Instance,
    command: Vec<String>,
    limit: Duration,
) -> io::Result<CommandOutput> {
    let streams = CommandStreams {
        output: true,
        ..CommandStreams::default()
    };
    let mut command = ContainerCommand::start(instance, command, &streams)?;
    let stdout = command.child.stdout.take();
    let stderr = command.child.stderr.take();
    let work = async {
        let mut output = Vec::new();
        let mut errors = Vec::new();
        let read_out = read_capped(stdout, &mut output);
        let read_err = read_capped(stderr, &mut errors);
        let (code, (), ()) = tokio::join!(command.wait(), read_out, read_err);
        output.extend(errors);
        let text = String::from_utf8_lossy(&output).into_owned();
        Ok(CommandOutput { code: code?, text })
    };
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
    }
}

async fn read_capped(pipe: Option<impl tokio::io::AsyncRead + Unpin>, out: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else {
        return;
    };
    let mut buffer = [0; 4096];
    while let Ok(count) = pipe.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        let room = usize::try_from(MAX_OUTPUT_BYTES)
            .unwrap_or(0)
            .saturating_sub(out.len());
        out.extend(buffer.iter().take(count.min(room)));
    }
}

/// A name that no other instance has, of the kernel's random numbers.
pub(crate) fn random_id() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(text.trim().replace('-', ""))
}

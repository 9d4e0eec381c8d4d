//! `exec`: a command. Off unless [`Allow::exec`](crate::Allow) says otherwise.
//!
//! A command is killed with its process group. A process that leaves the group on purpose survives,
//! and in a container whose first process is the prober, what a command left behind stays as a
//! zombie: nobody else waits for it.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use regex::bytes::Regex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use crate::run::Run;
use crate::{Failure, Phase, Reason, Target};

/// The settings of `exec`.
#[derive(Clone, Default)]
pub struct ExecSettings {
    /// The program and its arguments. There is no shell. The target is in the environment as
    /// `PROBE_TARGET`.
    pub command: Vec<String>,
    /// Added to the environment, which is otherwise empty but for `PATH`.
    pub environment: Vec<(String, String)>,
    /// Exit codes of success; only 0 if empty.
    pub valid_exit_codes: Vec<i32>,
    /// The standard output must match all of these.
    pub fail_if_output_not_matches_regexp: Vec<Regex>,
    /// The standard output must match none of these.
    pub fail_if_output_matches_regexp: Vec<Regex>,
}

/// How much of the output is kept.
const MAX_OUTPUT: usize = 64 * 1024;

/// A command with all that it starts. Dropped, it is killed.
struct Group {
    child: Child,
    id: Option<Pid>,
}

impl ExecSettings {
    pub(crate) async fn run(&self, run: &mut Run<'_>, target: &Target) -> Result<(), Failure> {
        if !run.context.allow.exec {
            return Err(run.fail(Reason::NotAllowed, "commands are not allowed"));
        }
        run.enter(Phase::Request);
        let mut group = self.start(target).map_err(|error| {
            let message = format!("the command cannot be started: {error}");
            run.fail(Reason::ExecExit, message)
        })?;
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let stdout = read_capped(group.child.stdout.take(), &mut output);
        let stderr = read_capped(group.child.stderr.take(), &mut errors);
        // First the pipes, then the exit: as long as the command is not waited for, its number is
        // not given to another one, and what still holds a pipe can be killed by it.
        futures_util::future::join(stdout, stderr).await;
        let status = group.child.wait().await;
        let status = status.map_err(|error| run.fail(Reason::Internal, error.to_string()))?;
        drop(group);
        let code = status
            .code()
            .or_else(|| status.signal().map(|signal| signal.saturating_add(128)));
        run.facts.exit_code = code;
        self.judge(run, code, &output, &errors)
    }

    fn start(&self, target: &Target) -> io::Result<Group> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| io::Error::other("it is empty"))?;
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", path)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("PROBE_TARGET", target.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(Group {
            id: id.and_then(Pid::from_raw),
            child,
        })
    }

    fn judge(
        &self,
        run: &Run<'_>,
        code: Option<i32>,
        output: &[u8],
        errors: &[u8],
    ) -> Result<(), Failure> {
        let is_valid = match code {
            Some(code) if self.valid_exit_codes.is_empty() => code == 0,
            Some(code) => self.valid_exit_codes.contains(&code),
            None => false,
        };
        if !is_valid {
            let said = if errors.is_empty() { output } else { errors };
            let said = String::from_utf8_lossy(said);
            let code = code.unwrap_or(-1);
            let message = format!("the command exited with {code}: {}", said.trim());
            return Err(run.fail(Reason::ExecExit, message));
        }
        let missing = self.fail_if_output_not_matches_regexp.iter();
        if let Some(regexp) = missing.into_iter().find(|regexp| !regexp.is_match(output)) {
            let message = format!("the output does not match {:?}", regexp.as_str());
            return Err(run.fail(Reason::ExpectMismatch, message));
        }
        let matching = self.fail_if_output_matches_regexp.iter();
        if let Some(regexp) = matching.into_iter().find(|regexp| regexp.is_match(output)) {
            let message = format!("the output matches {:?}", regexp.as_str());
            return Err(run.fail(Reason::ExpectMismatch, message));
        }
        Ok(())
    }
}

impl fmt::Debug for ExecSettings {
    /// Values of the environment are left out: some are credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let environment: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("ExecSettings")
            .field("command", &self.command)
            .field("environment", &environment)
            .field("valid_exit_codes", &self.valid_exit_codes)
            .finish_non_exhaustive()
    }
}

impl Drop for Group {
    /// Kills the command, or what it left behind. While a process of the group lives, its number is
    /// not given to another one.
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let _may_have_ended = kill_process_group(id, Signal::KILL);
        }
    }
}

/// Reads all, and keeps the first part. A pipe that fails is at its end.
async fn read_capped(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else {
        return;
    };
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
        let room = MAX_OUTPUT.saturating_sub(kept.len()).min(length);
        kept.extend_from_slice(chunk.get(..room).unwrap_or_default());
    }
}

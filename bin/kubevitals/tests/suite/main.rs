//! The program from the outside, and its roles in process.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod ca_bundle;
mod client;
mod combined;
mod command_line;
mod demo;
mod explain;
mod flags;
mod kubelet_identity;
mod limits;
mod manifests;
mod node;
mod nodes;
mod outage;
mod overload;
mod plugin;
mod prober;
#[cfg(feature = "pprof")]
mod profiles;
mod proxy;
mod readme;
mod reference;
mod replay;
mod replicas;
mod roles;
mod schema;
mod server;
mod shutdown;
mod sim;
mod transitions;

use std::pin::Pin;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Far longer than anything here takes: reached only by a hang.
const DEADLINE: Duration = Duration::from_mins(1);

/// Kills a process at the deadline, unless it is dropped before. A test that blocks for the output
/// or the end of the process then fails instead of waiting for ever.
struct KillAtDeadline(#[expect(dead_code, reason = "closed on drop")] mpsc::Sender<()>);

impl KillAtDeadline {
    fn new(child: &Child) -> Self {
        let (done, is_done) = mpsc::channel();
        let id = child.id().to_string();
        thread::spawn(move || {
            if is_done.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        Self(done)
    }
}

/// Waits for what must happen.
fn within<T>(what: &str, future: impl Future<Output = T>) -> Pin<Box<impl Future<Output = T>>> {
    // Boxed: futures of tests are large.
    Box::pin(async move {
        let result = tokio::time::timeout(DEADLINE, future).await;
        result.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
    })
}

/// The program without configuration from the environment.
fn kubevitals(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubevitals"));
    command.args(args).env("NO_COLOR", "1");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KUBEVITALS_") {
            command.env_remove(name);
        }
    }
    command
}

/// The exit code, standard output and standard error of a program that ends by itself.
fn output(command: &mut Command) -> (i32, String, String) {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let _deadline = KillAtDeadline::new(&child);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(stdout), text(stderr));
    let code = status.code();
    let code = code.unwrap_or_else(|| panic!("ended by {status}, not by itself: {stdout}{stderr}"));
    (code, stdout, stderr)
}

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

use std::process::{Command, Output};

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

fn output(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

//! The shim: the parent of one container's main process.
//!
//! It is a hidden subcommand of the program that runs the pods, and a process of its own. It has
//! the output pipes, writes the log, copies output to who is attached, keeps standard input, waits
//! for the end and records it. It outlives the process that started it, so that a restart of the
//! node ends no container and loses no exit code.
//!
//! Single-threaded, without an asynchronous runtime: there is one for each container.

mod clients;
mod fds;
mod mounts;
pub(crate) mod protocol;
pub(crate) mod record;
mod stage;
mod supervise;

use std::path::Path;
use std::process::ExitCode;

pub(crate) use fds::open_terminal;

/// The first argument of the shim.
pub(crate) const SHIM: &str = "shim";
/// The first argument of the stage that becomes the program.
pub(crate) const STAGE: &str = "stage";

/// Runs the hidden subcommand. `program` is how this process was started, without `args`: the shim
/// starts the second stage the same way.
pub fn main(program: &[String], args: &[String]) -> ExitCode {
    match args {
        [role, folder] if role == SHIM => supervise::run(program, Path::new(folder)),
        [role, launch] if role == STAGE => stage::run(Path::new(launch)),
        _ => ExitCode::from(64),
    }
}

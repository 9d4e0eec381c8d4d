//! The roles of kubevitals, each wired in a file of its own.
//!
//! [`run()`] is the whole program: it reads all settings before it opens a socket, then calls the
//! role.

mod args;
mod cluster;
pub mod demo;
pub mod explain;
pub mod kubeconfig;
pub mod process;
pub mod replay;
pub mod run;
pub mod server;
pub mod sim;
pub mod transitions;

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use args::{Args, Task};
use clap::CommandFactory;
pub use kubevitals_cli::{Input, RunError, exit_code};
use process::ProcessConfig;

/// Does what `input` asks for, writing what the user is to see to `out`.
pub fn run(input: &Input, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
    let input = by_name_called(input);
    let args: Args = kubevitals_cli::parse(&input)?;
    match args.task {
        Task::Server(flags) => {
            let config = ProcessConfig::new(&flags.process, &args.logs)?;
            let server = server::Server::configure(&flags)?;
            process::run_role(&config, server::MAX_THREADS, |context| {
                server.run(context, out)
            })
        }
        Task::Demo(flags) => {
            let config = ProcessConfig::new(&flags.process, &args.logs)?;
            let demo = demo::Demo::configure(&flags)?;
            process::run_role(&config, usize::MAX, |context| demo.run(context, out))
        }
        Task::Sim(flags) => {
            let config = ProcessConfig::new(&flags.process, &args.logs)?;
            let sim = sim::Sim::configure(&flags)?;
            process::run_role(&config, usize::MAX, |context| sim.run(context, out))
        }
        Task::Transitions(flags) => {
            let config = ProcessConfig::new(&flags.process, &args.logs)?;
            let transitions = transitions::Transitions::configure(&flags)?;
            let lines = transitions::standard_output()?;
            // Standard output has nothing but lines.
            let mut told = std::io::stderr();
            process::run_role(&config, transitions::MAX_THREADS, |context| {
                transitions.run(context, Box::new(lines), &mut told)
            })
        }
        Task::Run(flags) => {
            let config = ProcessConfig::new(flags.process(), &args.logs)?;
            let roles = run::Roles::configure(&flags)?;
            let lines = transitions::standard_output()?;
            let mut told = std::io::stderr();
            process::run_role(&config, server::MAX_THREADS, |context| {
                roles.run(context, Box::new(lines), &mut told)
            })
        }
        Task::Explain(flags) => explain::run(&flags, out),
        Task::Replay(flags) => replay::run(&flags, out),
        Task::Completion { shell } => {
            kubevitals_cli::write_completion(shell, Args::command(), out).map_err(RunError::runtime)
        }
    }
}

/// A link by the name of a program that a role replaces stands for that role, so that a manifest
/// needs another image only.
fn by_name_called(input: &Input) -> Cow<'_, Input> {
    let called = input.args.first().map(Path::new).and_then(Path::file_name);
    if called.is_none_or(|name| name != "metrics-server") {
        return Cow::Borrowed(input);
    }
    let mut input = input.clone();
    input.args.insert(1, OsString::from("server"));
    Cow::Owned(input)
}

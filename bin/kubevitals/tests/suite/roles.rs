//! Roles in the process of a test.

use std::io::Write;

use clap::Parser;
use kubevitals::output::Output;
use kubevitals::process::{Context, ProcessConfig};
use kubevitals::run::{Roles, RunFlags};
use kubevitals_cli::flags::LogFlags;
use kubevitals_cli::{ShutdownTrigger, shutdown_channel};
use tokio::task::JoinHandle;

// As in the program, so that a test can override the flags of the harness.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct Flags {
    #[command(flatten)]
    run: RunFlags,
    #[command(flatten)]
    logs: LogFlags,
}

/// Starts roles with the flags of `kubevitals run`, and an admin server on a free port.
pub(crate) fn start(
    flags: impl IntoIterator<Item = String>,
    notices: impl Write + Send + 'static,
    data: Option<Box<dyn Write + Send>>,
) -> (ShutdownTrigger, JoinHandle<Result<(), String>>) {
    let process = ["run", "--admin-bind-address=127.0.0.1:0"].map(str::to_owned);
    let flags = Flags::parse_from(process.into_iter().chain(flags));
    let roles = Roles::configure(&flags.run).unwrap();
    let config = ProcessConfig::new(roles.process(), &flags.logs).unwrap();
    let (trigger, shutdown) = shutdown_channel();
    let context = Context::new(&config, shutdown, None);
    let output = Output::new(notices, data);
    let task = tokio::spawn(async move {
        let ended = Box::pin(roles.run(context, output)).await;
        ended.map_err(|error| error.to_string())
    });
    (trigger, task)
}

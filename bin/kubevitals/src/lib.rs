//! The roles of kubevitals, each wired in a folder of its own.
//!
//! [`run()`] is the whole program: it reads all settings before it opens a socket, then runs the
//! roles.

mod args;
mod cluster;
#[cfg(feature = "sim")]
pub mod demo;
#[cfg(feature = "dist-files")]
mod dist_files;
mod election;
pub mod explain;
#[cfg(test)]
mod generated;
#[cfg(all(feature = "jemalloc", feature = "pprof"))]
mod heap;
pub mod kubeconfig;
pub mod node;
pub mod output;
mod plugin;
pub mod prober;
pub mod process;
mod proxy;
pub mod replay;
pub mod role;
pub mod run;
pub mod server;
#[cfg(feature = "sim")]
pub mod sim;
pub mod transitions;
pub mod watches;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;

use args::{Args, Task, Tool};
use clap::CommandFactory;
use kubevitals_cli::ResultExt as _;
pub use kubevitals_cli::{Input, RunError, exit_code};
#[cfg(all(feature = "jemalloc", feature = "pprof"))]
use kubevitals_telemetry::Profiling;
use output::Output;
use process::ProcessConfig;
use role::RoleEntry;
use run::Roles;

/// All roles. A role that is added here has a subcommand, and a place in `run --roles` if it is
/// combinable.
pub const ROLES: &[RoleEntry] = &[
    RoleEntry::of::<server::Server>(),
    RoleEntry::of::<transitions::Transitions>(),
    RoleEntry::of::<node::Node>(),
    RoleEntry::of::<prober::Prober>(),
];

/// Does what `input` asks for, and writes the output of commands to `out`.
pub fn run(input: &Input, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
    let with_role = with_role_of_link(input);
    let args = if plugin::is_called(&with_role) {
        kubevitals_cli::parse::<plugin::PluginArgs>(&with_role)?.0
    } else {
        kubevitals_cli::parse(&with_role)?
    };
    match args.task {
        Task::Run(flags) => {
            if let Some(file) = flags.path(prober::CONVERT_BLACKBOX) {
                return prober::convert_blackbox(file, out);
            }
            let roles = Roles::configure(&flags)?;
            let config = ProcessConfig::new(roles.process(), &args.logs)?;
            start_profiles(input, &config);
            let output = if roles.owns_stdout() {
                let data = output::unbuffered_stdout().context("cannot open standard output")?;
                Output::new(std::io::stderr(), Some(Box::new(data)))
            } else {
                Output::new(std::io::stdout(), None)
            };
            process::run(&config, flags.max_threads(), |context| {
                Box::pin(roles.run(context, output))
            })
        }
        #[cfg(feature = "sim")]
        Task::Tool(Tool::Demo(flags)) => {
            let config = ProcessConfig::new(&flags.process, &args.logs)?;
            start_profiles(input, &config);
            let demo = demo::Demo::configure(&flags)?;
            process::run(&config, usize::MAX, |context| demo.run(context, out))
        }
        #[cfg(feature = "sim")]
        Task::Tool(Tool::Sim(flags)) => {
            let config = ProcessConfig::new(&flags.process, &args.logs)?;
            start_profiles(input, &config);
            let sim = sim::Sim::configure(&flags)?;
            process::run(&config, usize::MAX, |context| sim.run(context, out))
        }
        Task::Tool(Tool::Explain(flags)) => explain::run(&flags, out),
        Task::Tool(Tool::Replay(flags)) => replay::run(&flags, out),
        #[cfg(feature = "dist-files")]
        Task::Tool(Tool::DistFiles { folder }) => {
            dist_files::write(&folder).context("cannot write man pages and completions")
        }
        Task::Tool(Tool::Completion { shell }) => {
            kubevitals_cli::write_completion(shell, Args::command(), out)
                .context("cannot write completions")
        }
    }
}

/// Samples allocations if profiles are enabled.
#[cfg(all(feature = "jemalloc", feature = "pprof"))]
fn start_profiles(input: &Input, config: &ProcessConfig) {
    // A test that runs a role inside of its own process has other arguments than that.
    let is_process = input.args.iter().cloned().eq(std::env::args_os());
    if config.profiling == Profiling::Loopback && is_process {
        heap::start_sampling();
    }
}

#[cfg(not(all(feature = "jemalloc", feature = "pprof")))]
fn start_profiles(_input: &Input, _config: &ProcessConfig) {}

/// A link by the name of a program that a role replaces stands for that role, so that a manifest
/// needs another image only.
fn with_role_of_link(input: &Input) -> Cow<'_, Input> {
    let called = input.args.first().map(Path::new).and_then(Path::file_name);
    let role = match called.and_then(OsStr::to_str) {
        Some("metrics-server") => "server",
        Some("gke-prober") => "prober",
        _ => return Cow::Borrowed(input),
    };
    let mut input = input.clone();
    input.args.insert(1, OsString::from(role));
    Cow::Owned(input)
}

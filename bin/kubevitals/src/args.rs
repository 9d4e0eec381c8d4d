//! The command line of the program. A role's own flags stand in the role's file.

use clap::{Parser, Subcommand};
use kubevitals_cli::Shell;
use kubevitals_cli::flags::{ConfigFlags, LogFlags};

use crate::demo::DemoFlags;

/// Reads the vital signs of a Kubernetes cluster
#[derive(Debug, Parser)]
#[command(name = "kubevitals", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) config: ConfigFlags,
    #[command(flatten)]
    pub(crate) logs: LogFlags,
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Show the parts at work on a simulated node: no cluster, root or network needed
    Demo(DemoFlags),
    /// Write shell completions to standard output
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion {
        /// The shell to write them for
        shell: Shell,
    },
}

const EXAMPLES: &str = "\
Every flag can also be set as a variable (KUBEVITALS_LOG_LEVEL=debug) or in the file that --config
names (log-level: debug). Bad configuration exits with 64, a failure at run time with 1.

Examples:
  kubevitals demo                        simulated pods, scraped and shown; Ctrl-C stops it
  kubevitals demo --once --pods 5        show the table and stop
  kubevitals demo --config vitals.yaml   the same, with settings from a file";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  kubevitals completion bash > /etc/bash_completion.d/kubevitals
  source <(kubevitals completion zsh)";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }
}

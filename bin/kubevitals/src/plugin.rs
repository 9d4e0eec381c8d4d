//! The program as a plugin of kubectl: called `kubectl-vitals`, it is `kubectl vitals`.

use std::path::Path;

use clap::{ArgMatches, Command, CommandFactory, Error, FromArgMatches, Parser};
use kubevitals_cli::Input;

use crate::args::Args;

/// The command line of a plugin: the commands that a person runs beside a cluster. Roles still
/// work, but help does not list them.
#[derive(Debug)]
pub(crate) struct PluginArgs(pub(crate) Args);

/// The name of the file that kubectl looks for.
const FILE: &str = "kubectl-vitals";

/// What a user types.
const NAME: &str = "kubectl vitals";

/// The commands that help lists.
const COMMANDS: [&str; 2] = ["explain", "replay"];

/// Returns whether the program was called as a plugin.
pub(crate) fn is_called(input: &Input) -> bool {
    let called = input.args.first().map(Path::new).and_then(Path::file_name);
    called.is_some_and(|name| name == FILE)
}

impl Parser for PluginArgs {}

impl CommandFactory for PluginArgs {
    fn command() -> Command {
        let command = Args::command().bin_name(NAME).after_help(EXAMPLES);
        command.mut_subcommands(|command| {
            let is_listed = COMMANDS.contains(&command.get_name());
            let examples = command.get_after_help().map(ToString::to_string);
            let command = command.hide(!is_listed);
            match examples {
                Some(text) => {
                    command.after_help(text.replace("  kubevitals ", "  kubectl vitals "))
                }
                None => command,
            }
        })
    }

    fn command_for_update() -> Command {
        Self::command()
    }
}

impl FromArgMatches for PluginArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Args::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

const EXAMPLES: &str = "\
Examples:
  kubectl vitals explain pod shop/web-0      why a pod took so long to start
  kubectl vitals explain --slowest 20        the pods that took longest
  kubectl vitals replay pods.json events.json  how long pods took, from recorded watches";

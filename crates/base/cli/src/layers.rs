//! Flags over environment over file over default, with one name in all of them.
//!
//! What the environment and the file set is added to the command line for every flag that is not on
//! it already. clap then judges all layers by the same rules, and we remember where each added
//! value came from to say so when it is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Parser};

use crate::error::CliError;
use crate::file::{self, Placed, Setting, Settings};
use crate::suggest::nearest;

/// What the name of every environment variable that we read begins with.
pub const ENV_PREFIX: &str = "KUBEVITALS_";

/// The flag that names the configuration file; it cannot be set by that file.
const CONFIG_FLAG: &str = "config";

/// All that a configuration is made from, passed in so that a test needs no process of its own.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// The command line, the program's name first.
    pub args: Vec<OsString>,
    /// The environment variables that begin with [`ENV_PREFIX`].
    pub env: BTreeMap<String, OsString>,
}

/// A value that was not on the command line.
struct Added {
    origin: String,
    args: Vec<OsString>,
}

/// Reads `P` from all layers.
///
/// Help and version are answered from the command line alone. An empty variable counts as not set,
/// since manifests cannot leave one out.
pub fn parse<P: Parser>(input: &Input) -> Result<P, CliError> {
    let mut command = P::command();
    command.build();
    debug_assert_eq!(service_link_clashes(&command), Vec::<String>::new());

    let given = relaxed(P::command())
        .try_get_matches_from(&input.args)
        .map_err(from_clap)?;
    let (path, role, given) = deepest(&command, &given);

    let file = match config_path(given, input) {
        Some(path) => Some((file::read(&path)?, path)),
        None => None,
    };
    if let Some((settings, path)) = &file {
        check_keys(&command, settings, path)?;
    }

    let mut added = BTreeMap::new();
    for arg in role.get_arguments().filter(|arg| is_layered(arg)) {
        let Some(name) = arg.get_long() else { continue };
        if given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine) {
            continue;
        }
        let found = from_env(arg, name, input).transpose().or_else(|| {
            let (settings, file) = file.as_ref()?;
            from_file(arg, name, &path, settings, file).transpose()
        });
        if let Some(found) = found {
            added.insert(name.to_owned(), found?);
        }
    }

    let matches = P::command()
        .try_get_matches_from(with_added(&input.args, &added))
        .map_err(|error| explain(error, &added))?;
    P::from_arg_matches(&matches).map_err(|error| explain(error, &added))
}

/// The environment variable that sets `--flag`.
pub fn env_name(flag: &str) -> String {
    format!(
        "{ENV_PREFIX}{}",
        flag.to_uppercase().replace(['-', '.'], "_")
    )
}

// === impl Input ===

impl Input {
    /// The command line and the environment of this process.
    pub fn from_process() -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(ENV_PREFIX))
            .collect();
        Self {
            args: std::env::args_os().collect(),
            env,
        }
    }

    /// A command line with no environment.
    pub fn from_args<I: Into<OsString>>(args: impl IntoIterator<Item = I>) -> Self {
        Self {
            args: args.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
        }
    }

    fn variable(&self, flag: &str) -> Option<&OsStr> {
        let value = self.env.get(&env_name(flag))?;
        (!value.is_empty()).then_some(value)
    }
}

/// The same command with nothing required: another layer may hold what is missing here.
fn relaxed(command: Command) -> Command {
    command
        .mut_args(|arg| arg.required(false))
        .mut_subcommands(relaxed)
}

/// The subcommand that was asked for, with its path, its definition and what it was given.
fn deepest<'a>(
    command: &'a Command,
    matches: &'a ArgMatches,
) -> (Vec<&'a str>, &'a Command, &'a ArgMatches) {
    let mut found = (Vec::new(), command, matches);
    while let Some((name, matches)) = found.2.subcommand() {
        let Some(command) = found.1.find_subcommand(name) else {
            break;
        };
        found.0.push(name);
        found.1 = command;
        found.2 = matches;
    }
    found
}

fn config_path(given: &ArgMatches, input: &Input) -> Option<PathBuf> {
    let flag = given
        .try_get_one::<PathBuf>(CONFIG_FLAG)
        .ok()
        .flatten()
        .cloned();
    flag.or_else(|| input.variable(CONFIG_FLAG).map(PathBuf::from))
}

fn is_layered(arg: &Arg) -> bool {
    let meta = matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    !meta && arg.get_long().is_some_and(|name| name != CONFIG_FLAG)
}

fn layered_names(command: &Command) -> impl Iterator<Item = &str> {
    command
        .get_arguments()
        .filter(|arg| is_layered(arg))
        .filter_map(Arg::get_long)
}

/// A key must be a flag of some command, or a command with its flags: a typing error is not an
/// empty wish.
fn check_keys(command: &Command, settings: &Settings, file: &Path) -> Result<(), CliError> {
    let mut known: BTreeSet<&str> = layered_names(command).collect();
    for sub in command.get_subcommands() {
        known.extend(layered_names(sub));
        known.insert(sub.get_name());
    }
    for (key, placed) in settings {
        match (&placed.value, command.find_subcommand(key)) {
            (Setting::Section(section), Some(sub)) => {
                let known: BTreeSet<&str> = layered_names(sub).collect();
                for (key, placed) in section {
                    check_key(key, placed, &known, file)?;
                }
            }
            (Setting::Section(_), None) if known.contains(key.as_str()) => {
                return Err(not_a_value(key, placed, file));
            }
            _ => check_key(key, placed, &known, file)?,
        }
    }
    Ok(())
}

fn check_key(
    key: &str,
    placed: &Placed,
    known: &BTreeSet<&str>,
    file: &Path,
) -> Result<(), CliError> {
    if known.contains(key) {
        return Ok(());
    }
    Err(CliError::UnknownKey {
        path: file.to_owned(),
        line: placed.line,
        key: key.to_owned(),
        suggestion: nearest(key, known.iter().copied()).map(str::to_owned),
    })
}

fn from_env(arg: &Arg, name: &str, input: &Input) -> Result<Option<Added>, CliError> {
    let Some(value) = input.variable(name) else {
        return Ok(None);
    };
    let origin = format!("the environment variable {}", env_name(name));
    as_args(arg, name, &[value.to_owned()], origin).map(Some)
}

fn from_file(
    arg: &Arg,
    name: &str,
    path: &[&str],
    settings: &Settings,
    file: &Path,
) -> Result<Option<Added>, CliError> {
    let section = path.first().and_then(|role| settings.get(*role));
    let in_section = section.and_then(|placed| match &placed.value {
        Setting::Section(section) => section.get(name),
        _ => None,
    });
    let Some(placed) = in_section.or_else(|| settings.get(name)) else {
        return Ok(None);
    };
    let values: Vec<OsString> = match &placed.value {
        Setting::Empty => return Ok(None),
        Setting::Scalar(text) => vec![text.into()],
        Setting::List(items) => items.iter().map(OsString::from).collect(),
        Setting::Section(_) => return Err(not_a_value(name, placed, file)),
    };
    let origin = format!("{}:{}", file.display(), placed.line);
    as_args(arg, name, &values, origin).map(Some)
}

fn not_a_value(name: &str, placed: &Placed, file: &Path) -> CliError {
    CliError::Layer {
        origin: format!("{}:{}", file.display(), placed.line),
        problem: format!("`{name}` takes a value, not a section of settings"),
    }
}

/// The command-line form of a value from another layer.
fn as_args(arg: &Arg, name: &str, values: &[OsString], origin: String) -> Result<Added, CliError> {
    let args = match arg.get_action() {
        ArgAction::SetTrue => match values {
            [value] if value == "true" => vec![format!("--{name}").into()],
            [value] if value == "false" => Vec::new(),
            _ => {
                let problem = format!("invalid value for '--{name}': write true or false");
                return Err(CliError::Layer { origin, problem });
            }
        },
        ArgAction::Append => values.iter().map(|value| long_arg(name, value)).collect(),
        _ => {
            let delimiter = arg.get_value_delimiter().map(String::from);
            match (values, delimiter) {
                ([value], _) => vec![long_arg(name, value)],
                (many, Some(delimiter)) => vec![long_arg(name, &many.join(OsStr::new(&delimiter)))],
                _ => {
                    let problem = format!("'--{name}' takes one value, not a list");
                    return Err(CliError::Layer { origin, problem });
                }
            }
        }
    };
    Ok(Added { origin, args })
}

fn long_arg(name: &str, value: &OsStr) -> OsString {
    let mut arg = OsString::from(format!("--{name}="));
    arg.push(value);
    arg
}

/// The command line with the other layers behind it, but before a `--` that ends the flags.
fn with_added(args: &[OsString], added: &BTreeMap<String, Added>) -> Vec<OsString> {
    let end = args
        .iter()
        .position(|arg| arg == "--")
        .unwrap_or(args.len());
    let (flags, rest) = args.split_at(end);
    let added = added.values().flat_map(|added| &added.args);
    flags.iter().chain(added).chain(rest).cloned().collect()
}

fn from_clap(error: clap::Error) -> CliError {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => CliError::Display(Box::new(error)),
        _ => CliError::Usage(Box::new(error)),
    }
}

/// Names the layer of a refused value: the user did not type it and would search for it in vain.
fn explain(error: clap::Error, added: &BTreeMap<String, Added>) -> CliError {
    let refused = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => arg
            .trim_start_matches('-')
            .split(['=', ' ', '['])
            .next()
            .and_then(|n| added.get(n)),
        _ => None,
    };
    let Some(refused) = refused else {
        return from_clap(error);
    };
    let text = error.render().to_string();
    let problem = text.split("\n\nUsage:").next().unwrap_or_default();
    let problem = problem
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    CliError::Layer {
        origin: refused.origin.clone(),
        problem: problem.trim_start_matches("error: ").trim_end().to_owned(),
    }
}

/// Flags whose variables Kubernetes itself would set: a Service named `kubevitals` puts
/// `KUBEVITALS_PORT`, `KUBEVITALS_SERVICE_HOST` and their like into every pod of its namespace.
fn service_link_clashes(command: &Command) -> Vec<String> {
    let clashes =
        |name: &&str| *name == "port" || name.starts_with("port-") || name.starts_with("service-");
    let mut found: Vec<String> = layered_names(command)
        .filter(clashes)
        .map(str::to_owned)
        .collect();
    found.extend(command.get_subcommands().flat_map(service_link_clashes));
    found
}

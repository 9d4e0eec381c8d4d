//! Flags over environment over file over default, with one name in all of them.
//!
//! Values of the environment and the file are added to the command line for every flag that it does
//! not have. clap then validates all layers by the same rules; the origin of each added value is
//! kept for error messages.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Parser};

use crate::error::CliError;
use crate::file::{self, Located, Setting, Settings};
use crate::suggest::nearest;

/// The prefix of all environment variables of this program.
pub const ENV_PREFIX: &str = "KUBEVITALS_";

/// The flag that names the configuration file; it cannot be set by that file.
const CONFIG_FLAG: &str = "config";

/// The input of the configuration, passed in so that a test needs no process of its own.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// The command line, starting with the program's name.
    pub args: Vec<OsString>,
    /// The environment variables that begin with [`ENV_PREFIX`].
    pub env: BTreeMap<String, OsString>,
}

/// A value that was not on the command line.
struct Added {
    origin: String,
    args: Vec<OsString>,
}

/// Parses `P` from all layers.
///
/// Help and version depend on the command line alone. An empty variable counts as not set, since
/// manifests cannot leave one out.
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
        .map_err(|error| with_origin(error, &added))?;
    P::from_arg_matches(&matches).map_err(|error| with_origin(error, &added))
}

/// Returns the environment variable that sets `--flag`.
pub fn env_name(flag: &str) -> String {
    format!(
        "{ENV_PREFIX}{}",
        flag.to_uppercase().replace(['-', '.'], "_")
    )
}

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

/// Returns the command with nothing required: another layer may have the value.
fn relaxed(command: Command) -> Command {
    command
        .mut_args(|arg| arg.required(false))
        .mut_subcommands(relaxed)
}

/// Returns the selected subcommand: its path, its definition and its matches.
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

/// Checks that each key is a flag of some command, or a command with its flags, so that a typo is
/// not silently ignored.
fn check_keys(command: &Command, settings: &Settings, file: &Path) -> Result<(), CliError> {
    let mut known: BTreeSet<&str> = layered_names(command).collect();
    for sub in command.get_subcommands() {
        known.extend(layered_names(sub));
        known.insert(sub.get_name());
    }
    for (key, located) in settings {
        match (&located.value, command.find_subcommand(key)) {
            (Setting::Section(section), Some(sub)) => {
                let known: BTreeSet<&str> = layered_names(sub).collect();
                for (key, located) in section {
                    check_key(key, located, &known, file)?;
                }
            }
            (Setting::Section(_), None) if known.contains(key.as_str()) => {
                return Err(not_a_value(key, located, file));
            }
            _ => check_key(key, located, &known, file)?,
        }
    }
    Ok(())
}

fn check_key(
    key: &str,
    located: &Located,
    known: &BTreeSet<&str>,
    file: &Path,
) -> Result<(), CliError> {
    if known.contains(key) {
        return Ok(());
    }
    Err(CliError::UnknownKey {
        path: file.to_owned(),
        line: located.line,
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
    let in_section = section.and_then(|located| match &located.value {
        Setting::Section(section) => section.get(name),
        _ => None,
    });
    let Some(located) = in_section.or_else(|| settings.get(name)) else {
        return Ok(None);
    };
    let values: Vec<OsString> = match &located.value {
        Setting::Empty => return Ok(None),
        Setting::Scalar(text) => vec![text.into()],
        Setting::List(items) => items.iter().map(OsString::from).collect(),
        Setting::Section(_) => return Err(not_a_value(name, located, file)),
    };
    let origin = format!("{}:{}", file.display(), located.line);
    as_args(arg, name, &values, origin).map(Some)
}

fn not_a_value(name: &str, located: &Located, file: &Path) -> CliError {
    CliError::Layer {
        origin: format!("{}:{}", file.display(), located.line),
        problem: format!("`{name}` takes a value, not a section of settings"),
    }
}

/// Returns the command-line form of a value of another layer.
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

/// Appends the other layers to the command line, before a `--` that ends the flags.
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

/// Adds the origin of a rejected value, which is not on the command line.
fn with_origin(error: clap::Error, added: &BTreeMap<String, Added>) -> CliError {
    let rejected = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => arg
            .trim_start_matches('-')
            .split(['=', ' ', '['])
            .next()
            .and_then(|n| added.get(n)),
        _ => None,
    };
    let Some(rejected) = rejected else {
        return from_clap(error);
    };
    let text = error.render().to_string();
    let problem = text.split("\n\nUsage:").next().unwrap_or_default();
    let problem = problem
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    CliError::Layer {
        origin: rejected.origin.clone(),
        problem: problem.trim_start_matches("error: ").trim_end().to_owned(),
    }
}

/// Returns flags whose variables Kubernetes itself sets: a Service named `kubevitals` adds
/// `KUBEVITALS_PORT`, `KUBEVITALS_SERVICE_HOST` and so on to every pod of its namespace.
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

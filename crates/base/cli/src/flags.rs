//! Flag groups that several roles share, with the names that Kubernetes components use.

use std::path::PathBuf;

use clap::{Arg, Args, ValueEnum};

/// The configuration file.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigFlags {
    /// Read further settings from this YAML file
    ///
    /// Its keys are the flags without their dashes. Settings of one command go in a section with
    /// the command's name. Flags and `KUBEVITALS_*` variables override the file.
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        help_heading = "Configuration"
    )]
    pub config: Option<PathBuf>,
}

/// Logging.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogFlags {
    /// Format of the log lines
    #[arg(long, value_enum, default_value_t = LoggingFormat::Text, global = true)]
    pub logging_format: LoggingFormat,

    /// Log filter: a level, or levels by module as in `info,kubevitals_tls=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", global = true)]
    pub log_level: String,

    /// Verbosity as in Kubernetes components (0 to 10), instead of --log-level
    #[arg(short = 'v', long = "v", value_name = "LEVEL", global = true,
          value_parser = clap::value_parser!(u8).range(0..=10))]
    pub verbosity: Option<u8>,
}

/// The formats of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoggingFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// A boolean flag as Go's flag packages parse it: `--flag`, `--flag=true` and `--flag=false`.
///
/// Manifests use all three, so a flag without a value would reject existing deployments.
/// Use it on a `bool` field: `#[arg(long, …)]` and `mut_arg("flag", go_bool)`.
pub fn go_bool(arg: Arg) -> Arg {
    arg.action(clap::ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_value("false")
        .default_missing_value("true")
        .hide_possible_values(true)
        .value_name("BOOL")
        .value_parser(parse_go_bool)
}

/// Go's `strconv.ParseBool`.
fn parse_go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

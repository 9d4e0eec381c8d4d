//! Commands that are packages of their own, built when one of them is called: they need more
//! dependencies than this program, which every command waits for.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use xtask::step::{self, cargo, command_line};

/// Arguments that the tool parses itself
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ToolFlags {
    /// See --help
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<OsString>,
}

/// A package with commands of `cargo xtask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandPackage {
    /// Real programs, real clusters, and the tests that run on them. It compiles C.
    Cluster,
    /// What is shipped: images and releases.
    Dist,
}

impl CommandPackage {
    fn manifest(self) -> &'static str {
        match self {
            Self::Cluster => "e2e/cluster/Cargo.toml",
            Self::Dist => "xtask/dist/Cargo.toml",
        }
    }
}

/// Becomes the tool. Returns only if it cannot be started.
pub(crate) fn exec(package: CommandPackage, command: &str, flags: &ToolFlags) -> Result<()> {
    let mut tool = run(package, command);
    // `cluster exec` runs a program in the caller's folder.
    tool.current_dir(".").args(&flags.arguments);
    // Cargo becomes the tool in turn: signals that are sent to us reach it.
    Err(tool.exec()).with_context(|| format!("cannot start {}", command_line(&tool)))
}

/// Returns the path of a real program, built first if it is missing.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    step::run(run(CommandPackage::Cluster, "fetch").arg(name))?;
    let mut list = run(CommandPackage::Cluster, "fetch");
    let output = list
        .args(["--list", name])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", command_line(&list)))?;
    let line = String::from_utf8_lossy(&output.stdout);
    // Name, version, path.
    match line.trim_end().split_once('/') {
        Some((_, path)) if output.status.success() => Ok(PathBuf::from(format!("/{path}"))),
        _ => bail!("{} printed no path: {line}", command_line(&list)),
    }
}

fn run(package: CommandPackage, command: &str) -> Command {
    let mut run = cargo();
    run.args(["run", "--quiet", "--locked"])
        .arg("--manifest-path")
        .arg(step::root().join(package.manifest()))
        .args(["--", command]);
    run
}

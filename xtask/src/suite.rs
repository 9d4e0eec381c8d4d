//! `cargo xtask test`: the checks that a change must pass before it lands. They need a Rust
//! toolchain, a C compiler and make.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use xtask::step::{self, Steps, cargo, command_line};
use xtask::totals::Totals;

/// Packages and tests to run
#[derive(Debug, Args)]
pub(crate) struct TestFlags {
    /// Only this package (may be repeated); default: all
    #[arg(short, long, value_name = "NAME")]
    package: Vec<String>,
    /// Only tests whose name contains this; skips formatting, lints and docs
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
}

/// The package of the end-to-end tests.
const E2E_PACKAGE: &str = "kubevitals-e2e";

/// The test binary that needs a real cluster: its manifest keeps it out of `cargo test`.
const E2E_TARGET: &str = "e2e";

pub(crate) fn run(flags: &TestFlags) -> Result<()> {
    Steps::report(|steps| all(flags, steps))
}

fn all(flags: &TestFlags, steps: &mut Steps) -> Result<Totals> {
    if flags.filter.is_some() {
        return steps.step("tests", || tests(flags));
    }
    steps.step("formatting", || {
        step::run(cargo().args(["fmt", "--all", "--check"]))
    })?;
    steps.step("lints", || lints(flags).iter_mut().try_for_each(step::run))?;
    let totals = steps.step("tests", || tests(flags))?;
    steps.step("docs", || {
        let mut doc = cargo();
        doc.args([
            "doc",
            "--locked",
            "--no-deps",
            "--all-features",
            "--document-private-items",
        ]);
        step::run(packages(&mut doc, flags).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    Ok(totals)
}

fn tests(flags: &TestFlags) -> Result<Totals> {
    let mut test = cargo();
    test.args(["test", "--locked", "--all-features", "--no-fail-fast"])
        // Clones that share a target folder run each other's test binaries, which have the other
        // clone's snapshot folder compiled in: this overrides it.
        .env("INSTA_WORKSPACE_ROOT", step::root());
    packages(&mut test, flags);
    if let Some(filter) = &flags.filter {
        test.args(["--", filter]);
    }
    let mut child = test
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command_line(&test)))?;
    let output = child.stdout.take().context("the output is piped")?;
    let totals = Totals::read(output)?;
    totals.check(child.wait()?.success())
}

/// Returns the clippy commands for everything that is tested. `cargo test` leaves the end-to-end
/// tests alone and so does `--all-targets`: they are linted by name.
fn lints(flags: &TestFlags) -> Vec<Command> {
    let with_e2e = flags.package.is_empty() || flags.package.iter().any(|name| name == E2E_PACKAGE);
    let targets = ["--all-targets".to_owned(), format!("--test={E2E_TARGET}")];
    let kinds = targets.iter().take(if with_e2e { 2 } else { 1 });
    kinds
        .map(|target| {
            let mut clippy = cargo();
            clippy.args(["clippy", "--locked", "--all-features", target]);
            packages(&mut clippy, flags).args(["--", "-D", "warnings"]);
            clippy
        })
        .collect()
}

fn packages<'a>(command: &'a mut Command, flags: &TestFlags) -> &'a mut Command {
    if flags.package.is_empty() {
        return command.arg("--workspace");
    }
    command.args(flags.package.iter().map(|name| format!("--package={name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linted(package: &[&str]) -> Vec<String> {
        let flags = TestFlags {
            package: package.iter().map(|name| (*name).to_owned()).collect(),
            filter: None,
        };
        let rest = |command: &Command| {
            let line = command_line(command);
            let (_, rest) = line.split_once("--all-features ").unwrap();
            rest.trim_end_matches(" -- -D warnings").to_owned()
        };
        lints(&flags).iter().map(rest).collect()
    }

    #[test]
    fn end_to_end_tests_are_linted_though_not_run() {
        assert_eq!(
            linted(&[]),
            ["--all-targets --workspace", "--test=e2e --workspace"]
        );
        assert_eq!(
            linted(&["kubevitals-tls"]),
            ["--all-targets --package=kubevitals-tls"]
        );
        assert_eq!(linted(&["kubevitals-e2e"]).len(), 2);
    }
}

//! `cargo xtask test`: the checks that a change must pass before it lands. They need a Rust
//! toolchain, a C compiler and make.
//!
//! Lints and tests are one build: each package is compiled once.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use xtask::step::{self, Steps, cargo, command_line, linting_cargo};
use xtask::totals::Totals;

/// Packages and tests to run
#[derive(Debug, Args)]
pub(crate) struct TestFlags {
    /// Only this package (may be repeated); default: all
    #[arg(short, long, value_name = "NAME")]
    package: Vec<String>,
    /// Only tests whose name contains this; skips formatting and lints
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

/// `cargo xtask doc`: the documentation of the API, private items included.
pub(crate) fn doc() -> Result<()> {
    let mut doc = cargo();
    doc.args(["doc", "--locked", "--no-deps", "--workspace"]);
    doc.args(["--all-features", "--document-private-items"]);
    step::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn all(flags: &TestFlags, steps: &mut Steps) -> Result<Totals> {
    if flags.filter.is_some() {
        return steps.step("tests", || tests(flags));
    }
    steps.step("formatting", || {
        step::run(cargo().args(["fmt", "--all", "--check"]))
    })?;
    steps.step("build and lints", || {
        builds(flags).iter_mut().try_for_each(step::run)
    })?;
    steps.step("tests", || tests(flags))
}

/// Returns the commands that compile and lint everything that is tested. `cargo test` leaves the
/// end-to-end tests alone: they are built by name.
fn builds(flags: &TestFlags) -> Vec<Command> {
    let with_e2e = flags.package.is_empty() || flags.package.iter().any(|name| name == E2E_PACKAGE);
    let mut commands = vec![test(flags)];
    if with_e2e {
        let mut e2e = test(flags);
        e2e.arg(format!("--test={E2E_TARGET}"));
        commands.push(e2e);
    }
    for command in &mut commands {
        step::deny_warnings(command.arg("--no-run"));
    }
    commands
}

fn tests(flags: &TestFlags) -> Result<Totals> {
    let mut test = test(flags);
    test.arg("--no-fail-fast")
        // Clones that share a target folder run each other's test binaries, which have the other
        // clone's snapshot folder compiled in: this overrides it.
        .env("INSTA_WORKSPACE_ROOT", step::root());
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

fn test(flags: &TestFlags) -> Command {
    let mut test = linting_cargo();
    test.args(["test", "--locked", "--all-features"]);
    packages(&mut test, flags);
    test
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

    fn built(package: &[&str]) -> Vec<String> {
        let flags = TestFlags {
            package: package.iter().map(|name| (*name).to_owned()).collect(),
            filter: None,
        };
        let rest = |command: &Command| {
            let line = command_line(command);
            line.split_once("--all-features ").unwrap().1.to_owned()
        };
        builds(&flags).iter().map(rest).collect()
    }

    #[test]
    fn end_to_end_tests_are_linted_though_not_run() {
        assert_eq!(
            built(&[]),
            ["--workspace --no-run", "--workspace --test=e2e --no-run"]
        );
        assert_eq!(
            built(&["kubevitals-tls"]),
            ["--package=kubevitals-tls --no-run"]
        );
        assert_eq!(built(&["kubevitals-e2e"]).len(), 2);
    }

    #[test]
    fn builds_fail_on_lints() {
        let flags = TestFlags {
            package: Vec::new(),
            filter: None,
        };
        for command in builds(&flags) {
            let variables: Vec<_> = command.get_envs().collect();
            let has = |name: &str, value: &str| {
                variables.contains(&(name.as_ref(), Some(value.as_ref())))
            };
            assert!(has("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"));
            assert!(has("CARGO_BUILD_WARNINGS", "deny"));
        }
    }
}

//! `cargo xtask test`: what must hold before a change lands, with nothing but a Rust toolchain, a C
//! compiler and make.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::step::{self, Steps, cargo, shown};
use crate::totals::Totals;

/// What to test
#[derive(Debug, Args)]
pub(crate) struct TestFlags {
    /// Only this package (may be repeated); default: all
    #[arg(short, long, value_name = "NAME")]
    package: Vec<String>,
    /// Only tests whose name holds this; skips formatting, lints and docs
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
}

/// The package of the end-to-end tests.
pub(crate) const E2E_PACKAGE: &str = "kubevitals-e2e";

/// The test binary that needs a real cluster: `cargo xtask e2e` runs it, and its manifest says that
/// `cargo test` does not.
pub(crate) const E2E_TARGET: &str = "e2e";

pub(crate) fn run(flags: &TestFlags) -> Result<()> {
    let mut steps = Steps::default();
    let result = all(flags, &mut steps);
    steps.print();
    // The last line says what the runner counted, also when something failed.
    let totals = result?;
    println!("{totals}");
    Ok(())
}

fn all(flags: &TestFlags, steps: &mut Steps) -> Result<Totals> {
    if flags.filter.is_some() {
        return steps.step("tests", || tests(flags));
    }
    steps.step("formatting", || {
        step::run(cargo().args(["fmt", "--all", "--check"]))
    })?;
    steps.step("lints", || lints(flags).iter_mut().try_for_each(step::run))?;
    if flags.package.is_empty() {
        // Everything above and below is built with all features: the program without any must build
        // too.
        steps.step("no features", || {
            step::run(
                cargo()
                    .args(["check", "--locked", "--package=kubevitals"])
                    .args(["--no-default-features", "--config=build.warnings='deny'"]),
            )
        })?;
    }
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
        // Clones that share a target folder take each other's tests for built, with the folder of
        // their snapshots in them: it is said at run time instead.
        .env("INSTA_WORKSPACE_ROOT", step::root());
    packages(&mut test, flags);
    if let Some(filter) = &flags.filter {
        test.args(["--", filter]);
    }
    let (succeeded, totals) = counted(&mut test)?;
    if !succeeded {
        println!("{totals}");
        bail!("{} failed", shown(&test));
    }
    if totals.passed == 0 {
        bail!("no test matched: nothing was tested");
    }
    Ok(totals)
}

/// The lints of everything that is to be tested. The end-to-end tests run elsewhere, and are held
/// to the same here: as a target that `cargo test` leaves alone, `--all-targets` does not hold
/// them.
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

/// Runs the test command, passing its output on while counting.
fn counted(command: &mut Command) -> Result<(bool, Totals)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    let mut totals = Totals::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.context("reading the output of the tests")?;
            println!("{line}");
            totals.add_line(&line);
        }
    }
    Ok((child.wait()?.success(), totals))
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
            let shown = shown(command);
            let (_, rest) = shown.split_once("--all-features ").unwrap();
            rest.trim_end_matches(" -- -D warnings").to_owned()
        };
        lints(&flags).iter().map(rest).collect()
    }

    #[test]
    fn the_tests_that_need_a_real_cluster_are_linted_though_not_run() {
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

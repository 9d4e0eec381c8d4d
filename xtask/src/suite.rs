//! `cargo xtask test`: what must hold before a change lands, with nothing but a Rust toolchain and a C compiler.

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

/// The package whose tests need a real cluster: `cargo xtask e2e` runs them.
pub(crate) const E2E_PACKAGE: &str = "kubevitals-e2e";

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
    steps.step("lints", || {
        let mut clippy = cargo();
        clippy.args(["clippy", "--locked", "--all-targets", "--all-features"]);
        step::run(packages(&mut clippy, flags).args(["--", "-D", "warnings"]))
    })?;
    if flags.package.is_empty() {
        // Everything above and below is built with all features: the program without any must build too.
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
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    for mut command in hermetic(flags) {
        if !counted(&mut command, &mut totals)? {
            failed.push(shown(&command));
        }
    }
    if !failed.is_empty() {
        println!("{totals}");
        bail!("{} failed", failed.join(", "));
    }
    if totals.passed == 0 {
        bail!("no test matched: nothing was tested");
    }
    Ok(totals)
}

/// The commands that run all hermetic tests. The suite of [`E2E_PACKAGE`] is not among them: it needs a real cluster. Its
/// helpers have tests that need none, so its library is tested like any other.
fn hermetic(flags: &TestFlags) -> Vec<Command> {
    let command = || {
        let mut test = cargo();
        test.args(["test", "--locked", "--all-features", "--no-fail-fast"]);
        test
    };
    let mut commands = Vec::new();
    let others: Vec<&String> = flags.package.iter().filter(|name| *name != E2E_PACKAGE).collect();
    if flags.package.is_empty() {
        let mut test = command();
        test.arg("--workspace").arg(format!("--exclude={E2E_PACKAGE}"));
        commands.push(test);
    } else if !others.is_empty() {
        let mut test = command();
        test.args(others.iter().map(|name| format!("--package={name}")));
        commands.push(test);
    }
    if flags.package.is_empty() || flags.package.iter().any(|name| name == E2E_PACKAGE) {
        let mut test = command();
        test.arg(format!("--package={E2E_PACKAGE}")).arg("--lib");
        commands.push(test);
    }
    if let Some(filter) = &flags.filter {
        for test in &mut commands {
            test.args(["--", filter]);
        }
    }
    commands
}

/// Runs a test command, passing its output on while counting; tells whether it succeeded.
fn counted(command: &mut Command, totals: &mut Totals) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.context("reading the output of the tests")?;
            println!("{line}");
            totals.add_line(&line);
        }
    }
    Ok(child.wait()?.success())
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

    fn commands(package: &[&str], filter: Option<&str>) -> Vec<String> {
        let flags = TestFlags {
            package: package.iter().map(|name| (*name).to_owned()).collect(),
            filter: filter.map(str::to_owned),
        };
        let start = "test --locked --all-features --no-fail-fast ";
        let rest = |command: &Command| {
            let shown = shown(command);
            let (_, rest) = shown.split_once(start).unwrap();
            rest.to_owned()
        };
        hermetic(&flags).iter().map(rest).collect()
    }

    #[test]
    fn the_suite_that_needs_a_real_cluster_is_left_out_and_its_helpers_are_not() {
        let everything = ["--workspace --exclude=kubevitals-e2e", "--package=kubevitals-e2e --lib"];
        assert_eq!(commands(&[], None), everything);
        assert_eq!(commands(&["kubevitals-e2e"], None), everything[1..]);
        assert_eq!(
            commands(&["kubevitals-e2e", "kubevitals-tls"], Some("name")),
            ["--package=kubevitals-tls -- name", "--package=kubevitals-e2e --lib -- name"]
        );
        assert_eq!(commands(&["kubevitals-tls"], None), ["--package=kubevitals-tls"]);
    }
}

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
    let mut test = cargo();
    test.args(["test", "--locked", "--all-features", "--no-fail-fast"]);
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

//! `cargo xtask deny`: the dependency policy of `deny.toml`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use xtask::cache;
use xtask::step::{self, Steps, cargo};

/// Read the release notes before raising it: new lints may fail a clean build.
const CARGO_DENY: &str = "0.20.2";

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    let tool = steps.step("cargo-deny", installed)?;
    let result = steps.step("deny", || {
        // The advisory database needs a network; `cargo deny check` with no names adds it.
        let mut deny = Command::new(&tool);
        deny.current_dir(step::root())
            .args(["--all-features", "--locked"]);
        step::run(deny.args(["check", "bans", "licenses", "sources"]))
    });
    steps.print();
    result
}

/// Returns the pinned cargo-deny in the cache, built on first use.
fn installed() -> Result<PathBuf> {
    let root = cache::folder()?.join(format!("cargo-deny-{CARGO_DENY}"));
    let program = root.join("bin/cargo-deny");
    if works(&program) {
        return Ok(program);
    }
    println!("building cargo-deny {CARGO_DENY} into the cache; this takes some minutes, once");
    let install = || {
        let mut install = cargo();
        install.args(["install", "--locked", "--quiet", "--force"]);
        install.arg(format!("--version={CARGO_DENY}"));
        step::run(install.arg("--root").arg(&root).arg("cargo-deny"))
    };
    // Retried once: a registry may be slow for a moment.
    install().or_else(|_| install())?;
    if !works(&program) {
        bail!("{} was installed but does not run", program.display());
    }
    Ok(program)
}

fn works(program: &PathBuf) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

//! `cargo xtask deny`: the dependency policy of `deny.toml`.

use std::process::Command;

use anyhow::Result;
use xtask::step::{self, Steps};

use crate::tool::Tool;

/// Read the release notes before raising it: new lints may fail a clean build.
const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    flags: &[],
};

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    let tool = steps.step("cargo-deny", || CARGO_DENY.installed())?;
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

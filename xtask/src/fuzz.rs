//! `cargo xtask fuzz`: libFuzzer over a parser, with the pinned stable toolchain and nothing to
//! install.
//!
//! The compiler's coverage instrumentation is stable; only the address sanitizer would need
//! nightly, and code without `unsafe` has little use for it.

use anyhow::{Context, Result, bail};
use clap::Args;
use xtask::cache;
use xtask::step::{self, cargo, root};

/// A fuzz target and its limits
#[derive(Debug, Args)]
pub(crate) struct FuzzFlags {
    /// The target: a file name in `fuzz/fuzz_targets` without its ending
    target: String,
    /// Stop after this many seconds
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u32,
    /// Length limit of inputs in bytes
    #[arg(long, default_value_t = 4096, value_name = "BYTES")]
    max_len: u32,
}

/// Coverage instrumentation for libFuzzer: branches and comparisons.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

pub(crate) fn run(flags: &FuzzFlags) -> Result<()> {
    let fuzz = root().join("fuzz");
    let known = targets(&fuzz.join("fuzz_targets"))?;
    if !known.contains(&flags.target) {
        bail!(
            "no fuzz target `{}`; there are: {}",
            flags.target,
            known.join(", ")
        );
    }
    // New inputs are written to the cache; the seeds in the repository are only read.
    let found = cache::folder()?.join("fuzz-corpus").join(&flags.target);
    std::fs::create_dir_all(&found).with_context(|| format!("making {}", found.display()))?;
    let artifacts = fuzz.join("artifacts").join(&flags.target);
    std::fs::create_dir_all(&artifacts)?;
    step::run(
        cargo()
            .current_dir(&fuzz)
            .env("RUSTFLAGS", INSTRUMENTATION)
            .args(["run", "--release", "--locked", "--quiet"])
            // With `--target`, build scripts and macros are not instrumented.
            .arg(format!("--target={}", host()?))
            .args(["--bin", &flags.target, "--features", &flags.target, "--"])
            .arg(format!("-max_total_time={}", flags.seconds))
            .arg(format!("-max_len={}", flags.max_len))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-print_final_stats=1")
            .arg(&found)
            .arg(fuzz.join("corpus").join(&flags.target)),
    )
}

fn targets(folder: &std::path::Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).context("reading the fuzz targets")? {
        let path = entry?.path();
        if let Some(name) = path.file_stem() {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the target triple of this machine.
fn host() -> Result<String> {
    let output = std::process::Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}

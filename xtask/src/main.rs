//! `cargo xtask`: everything that is done to this repository, as commands that need only a Rust toolchain.
#![expect(
    clippy::print_stdout,
    reason = "the output of a command-line tool is its product"
)]

mod bench;
mod cache;
mod deny;
mod fuzz;
mod step;
mod suite;
mod totals;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Xtask {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Formatting, lints, all hermetic tests, docs
    Test(suite::TestFlags),
    /// Licences, banned and doubled crates, sources (installs cargo-deny into the cache if it is missing)
    Deny,
    /// Fuzz one parser for a while
    Fuzz(fuzz::FuzzFlags),
    /// Measure side by side with a peer; lists the benchmarks without a name
    Bench(bench::BenchFlags),
}

const EXAMPLES: &str = "Examples:
  cargo xtask test                        what CI runs
  cargo xtask test -p kubevitals-tls      the same for one crate
  cargo xtask fuzz promtext --seconds 600
  cargo xtask bench server --quick
  cargo xtask deny";

fn main() -> ExitCode {
    let done = match Xtask::parse().command {
        Task::Test(flags) => suite::run(&flags),
        Task::Deny => deny::run(),
        Task::Fuzz(flags) => fuzz::run(&flags),
        Task::Bench(flags) => bench::run(&flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

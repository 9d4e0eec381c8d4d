//! `cargo xtask`: the commands of this repository, which need only a Rust
//! toolchain.
#![expect(
    clippy::print_stdout,
    reason = "the output of a command-line tool is its product"
)]

mod bench;
mod cluster_tool;
mod deny;
mod fuzz;
mod suite;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cluster_tool::ToolFlags;

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
    /// A real control plane and one real node (needs root and Go)
    Cluster(ToolFlags),
    /// The tests that need a real control plane and a real node (needs root and Go)
    E2e(ToolFlags),
    /// Licences, banned and doubled crates, sources (installs cargo-deny into the cache if it is
    /// missing)
    Deny,
    /// Build the real programs that the end-to-end tests and the benchmarks use, once, into the
    /// cache
    Fetch(ToolFlags),
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
  cargo xtask deny
  cargo xtask fetch kubectl               kubectl as pinned, in the cache
  cargo xtask fetch --list                the programs and their paths
  cargo xtask cluster up                  a real cluster of one node, see docs/real-cluster.md
  cargo xtask e2e usage                   tests on a real cluster whose name contains \"usage\"";

fn main() -> ExitCode {
    let result = match Xtask::parse().command {
        Task::Test(flags) => suite::run(&flags),
        Task::Cluster(flags) => cluster_tool::exec("cluster", &flags),
        Task::E2e(flags) => cluster_tool::exec("e2e", &flags),
        Task::Deny => deny::run(),
        Task::Fetch(flags) => cluster_tool::exec("fetch", &flags),
        Task::Fuzz(flags) => fuzz::run(&flags),
        Task::Bench(flags) => bench::run(&flags),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! `cargo xtask`: the commands of this repository, which need only a Rust
//! toolchain.
#![expect(
    clippy::print_stdout,
    reason = "the output of a command-line tool is its product"
)]

mod bench;
mod book;
mod command_package;
mod deny;
mod fuzz;
mod suite;
mod tool;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command_package::{CommandPackage, ToolFlags};

/// The project's own commands
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Xtask {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Formatting, lints, all hermetic tests
    Test(suite::TestFlags),
    /// The documentation of the API, with all its links checked
    Doc,
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
    /// The documents as web pages, with checked links (installs mdbook into the cache if it is
    /// missing)
    Book,
    /// Render the manifests in `deploy` from the Helm chart (needs Go)
    Manifests(ToolFlags),
    /// Build the container image, without a container engine
    Image(ToolFlags),
    /// Build the files of a release: archives, image, chart, checksums
    Dist(ToolFlags),
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
  cargo xtask book                        docs as web pages; the last line is the path of the first
  cargo xtask image                       the container image, as an OCI archive
  cargo xtask fetch kubectl               kubectl as pinned, in the cache
  cargo xtask fetch --list                the programs and their paths
  cargo xtask manifests                   after a change of the Helm chart
  cargo xtask cluster up                  a real cluster of one node, see docs/real-cluster.md
  cargo xtask e2e usage                   tests on a real cluster whose name contains \"usage\"";

fn main() -> ExitCode {
    let result = match Xtask::parse().command {
        Task::Test(flags) => suite::run(&flags),
        Task::Doc => suite::doc(),
        Task::Cluster(flags) => command_package::exec(CommandPackage::Cluster, "cluster", &flags),
        Task::E2e(flags) => command_package::exec(CommandPackage::Cluster, "e2e", &flags),
        Task::Deny => deny::run(),
        Task::Book => book::run(),
        Task::Fetch(flags) => command_package::exec(CommandPackage::Cluster, "fetch", &flags),
        Task::Manifests(flags) => {
            command_package::exec(CommandPackage::Cluster, "manifests", &flags)
        }
        Task::Image(flags) => command_package::exec(CommandPackage::Dist, "image", &flags),
        Task::Dist(flags) => command_package::exec(CommandPackage::Dist, "dist", &flags),
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

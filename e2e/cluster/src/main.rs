//! `cargo xtask cluster`, `cargo xtask e2e`, `cargo xtask fetch` and `cargo xtask manifests`: real
//! control planes with one real node, the tests that run on them, the programs that they are made
//! of, and what is rendered from the Helm chart.
#![expect(
    clippy::print_stdout,
    reason = "the output of a command-line tool is its product"
)]

mod bring_up;
mod cgroups;
mod cluster;
mod components;
mod config;
mod control;
mod e2e;
mod fetch;
mod holder;
mod images;
mod interrupt;
mod layout;
mod manifests;
mod network;
mod pki;
mod process;
mod programs;
mod ready;
mod state;
mod status;
mod take_down;

use std::process::ExitCode;

use clap::Parser;

/// Real clusters, and the tests that need one
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Tool {
    /// A real control plane and one real node (needs root and Go)
    Cluster(cluster::ClusterFlags),
    /// The tests that need a real control plane and a real node (needs root and Go)
    E2e(e2e::E2eFlags),
    /// Build the real programs that the end-to-end tests and the benchmarks use, once, into the
    /// cache
    Fetch(fetch::FetchFlags),
    /// Render the manifests in `deploy` from the Helm chart (needs Go)
    Manifests(manifests::ManifestsFlags),
}

fn main() -> ExitCode {
    let result = match Tool::parse() {
        Tool::Cluster(flags) => cluster::run(&flags),
        Tool::E2e(flags) => e2e::run(&flags),
        Tool::Fetch(flags) => fetch::run(&flags),
        Tool::Manifests(flags) => manifests::run(&flags),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! `cargo xtask bench`: builds a benchmark as images are built, and runs it.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result, bail};
use clap::Args;
use xtask::step::{self, cargo, command_line};

use crate::command_package;

/// A benchmark and its flags
#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    /// The benchmark; lists all of them if it is missing
    name: Option<String>,
    /// The benchmark's own flags, such as --quick; --help shows them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "FLAGS"
    )]
    flags: Vec<String>,
}

/// A program that is measured beside ours, and the variable that names its path.
type Peer = (&'static str, &'static str);

const METRICS_SERVER: Peer = ("KUBEVITALS_METRICS_SERVER", "metrics-server");

const BLACKBOX_EXPORTER: Peer = ("KUBEVITALS_BLACKBOX_EXPORTER", "blackbox-exporter");

/// Names the paths of the programs of a real control plane.
const REAL_PROGRAMS: [Peer; 2] = [
    ("KUBEVITALS_ETCD", "etcd"),
    ("KUBEVITALS_KUBE_APISERVER", "kube-apiserver"),
];

/// A benchmark: the program `bench-NAME` of the package `kubevitals-bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bench {
    name: &'static str,
    about: &'static str,
    /// Whether it starts our own program, to measure it or for the simulated cluster.
    needs_program: bool,
    peer: Option<Peer>,
    profile: &'static str,
}

/// The profile of images.
const DIST: &str = "dist";

/// The same with line numbers.
const PROFILING: &str = "profiling";

const BENCHES: [Bench; 15] = [
    Bench {
        name: "promtext",
        about: "the text format: kubelet bodies parsed and encoded, next to prometheus-parse and Go",
        needs_program: false,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "watch",
        about: "watched pods decoded, next to kube with k8s-openapi and Go's client-go",
        needs_program: false,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "watch-heap",
        about: "heap memory of watched pods, next to the same",
        needs_program: false,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "usage",
        about: "the store of samples: time and heap of a container",
        needs_program: false,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "metrics-api",
        about: "lists and publications without a network, and their heap memory",
        needs_program: false,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "instructions",
        about: "instructions of the hot paths, beside their record (needs valgrind)",
        needs_program: false,
        peer: None,
        profile: PROFILING,
    },
    Bench {
        name: "client-metrics",
        about: "the cost of measuring a request: the same requests with and without the layer",
        needs_program: false,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "host",
        about: "one sample of a host with 110 pods: files kept open, opened each time, and read_to_string",
        needs_program: false,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "server",
        about: "metrics.k8s.io on a simulated cluster under load: ours and metrics-server",
        needs_program: true,
        peer: Some(METRICS_SERVER),
        profile: DIST,
    },
    Bench {
        name: "growth",
        about: "growth with the cluster, from 10 to 15,000 nodes: a plot, and the cost of a node and a pod",
        needs_program: true,
        peer: Some(METRICS_SERVER),
        profile: DIST,
    },
    Bench {
        name: "load",
        about: "the server while 200 clients list everything at once and half of them read slowly",
        needs_program: true,
        peer: Some(METRICS_SERVER),
        profile: DIST,
    },
    Bench {
        name: "soak",
        about: "memory of the server while pods are replaced and every node is replaced",
        needs_program: true,
        peer: Some(METRICS_SERVER),
        profile: DIST,
    },
    Bench {
        name: "transitions",
        about: "changes of pods tracked on one core, next to a client-go informer; --sim: in a busy cluster",
        needs_program: true,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "node",
        about: "a node beside the real kubelet: CPU while both are scraped, idle memory, throughput of exec",
        needs_program: true,
        peer: None,
        profile: DIST,
    },
    Bench {
        name: "prober",
        about: "CPU of a probe, next to blackbox_exporter on the same targets; --sim: 5,000 nodes watched",
        needs_program: true,
        peer: Some(BLACKBOX_EXPORTER),
        profile: DIST,
    },
];

pub(crate) fn run(flags: &BenchFlags) -> Result<()> {
    let Some(name) = &flags.name else {
        print_all();
        return Ok(());
    };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        let known: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        bail!("no benchmark `{name}`; there are: {}", known.join(", "));
    };
    if bench.needs_program {
        step::run(
            cargo()
                .args(["build", "--locked", "--package=kubevitals"])
                .arg(format!(
                    "--features={},sim",
                    step::SHIPPED_FEATURES.join(",")
                ))
                .arg(format!("--profile={DIST}")),
        )?;
    }
    let mut command = cargo();
    // Not built if the caller names another one.
    if let Some((variable, peer)) = bench.peer
        && std::env::var_os(variable).is_none()
    {
        command.env(variable, command_package::program(peer)?);
    }
    if needs_control_plane(&flags.flags) {
        for (variable, program) in REAL_PROGRAMS {
            if std::env::var_os(variable).is_none() {
                command.env(variable, command_package::program(program)?);
            }
        }
    }
    command
        .args(["run", "--locked", "--quiet", "--package=kubevitals-bench"])
        .arg(format!("--profile={}", bench.profile))
        .arg(format!("--bin=bench-{}", bench.name))
        .arg("--")
        .args(&flags.flags);
    // Cargo becomes the program in turn: signals that are sent to us reach it.
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start {}", command_line(&command)))
}

/// Returns whether the flags select a real API server in front of the servers.
fn needs_control_plane(flags: &[String]) -> bool {
    let pairs = flags.windows(2);
    flags.iter().any(|flag| flag == "--control-plane=real")
        || pairs
            .into_iter()
            .any(|pair| pair == ["--control-plane", "real"])
}

fn print_all() {
    println!("cargo xtask bench NAME [--quick]\n");
    for Bench { name, about, .. } in BENCHES {
        println!("  {name:<14} {about}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_and_its_value_may_be_one_word_or_two() {
        let wants = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            needs_control_plane(&words)
        };
        assert!(wants(&["--control-plane=real"]) && wants(&["--quick", "--control-plane", "real"]));
        assert!(
            !wants(&["--control-plane=sim"]) && !wants(&["--control-plane"]) && !wants(&["real"])
        );
    }

    #[test]
    fn every_benchmark_of_the_package_is_listed() {
        let manifest = std::fs::read_to_string(step::root().join("bench/Cargo.toml")).unwrap();
        let mut programs: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("name = \"bench-")?.strip_suffix('"'))
            .collect();
        let mut listed: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        programs.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, programs);
    }
}

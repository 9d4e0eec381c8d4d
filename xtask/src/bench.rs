//! `cargo xtask bench`: builds a benchmark as released, and becomes it.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result, bail};
use clap::Args;
use xtask::step::{self, cargo, command_line};

use crate::cluster_tool;

/// Which benchmark to run, and how
#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    /// The benchmark; without one, all are listed
    name: Option<String>,
    /// The benchmark's own flags, such as --quick; --help shows them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "FLAGS"
    )]
    flags: Vec<String>,
}

/// Where the benchmark finds metrics-server.
const METRICS_SERVER_VARIABLE: &str = "KUBEVITALS_METRICS_SERVER";

/// Where it finds the programs of a real control plane, and which they are.
const REAL_PROGRAMS: [(&str, &str); 2] = [
    ("KUBEVITALS_ETCD", "etcd"),
    ("KUBEVITALS_KUBE_APISERVER", "kube-apiserver"),
];

/// A benchmark: the program `bench-NAME` of the package `kubevitals-bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bench {
    name: &'static str,
    about: &'static str,
    /// Whether it starts our own program, as what is measured or for the simulated cluster.
    needs_program: bool,
    /// Whether it measures metrics-server.
    needs_peer: bool,
    /// How it is built: as released, or so with line numbers for who reads profiles.
    profile: &'static str,
}

/// As users get it.
const RELEASE: &str = "release";

/// The same code with line numbers.
const PROFILING: &str = "profiling";

const BENCHES: [Bench; 12] = [
    Bench {
        name: "promtext",
        about: "the text format: kubelet bodies parsed and encoded, next to prometheus-parse and Go",
        needs_program: false,
        needs_peer: false,
        profile: RELEASE,
    },
    Bench {
        name: "watch",
        about: "watched pods decoded, next to kube with k8s-openapi and Go's client-go",
        needs_program: false,
        needs_peer: false,
        profile: RELEASE,
    },
    Bench {
        name: "watch-heap",
        about: "what watched pods keep on the heap, next to the same",
        needs_program: false,
        needs_peer: false,
        profile: RELEASE,
    },
    Bench {
        name: "usage",
        about: "the store of samples: time and heap of a container",
        needs_program: false,
        needs_peer: false,
        profile: RELEASE,
    },
    Bench {
        name: "metrics-api",
        about: "lists and publications without a network, and what they keep on the heap",
        needs_program: false,
        needs_peer: false,
        profile: RELEASE,
    },
    Bench {
        name: "instructions",
        about: "instructions of the hot paths, beside their record (needs valgrind)",
        needs_program: false,
        needs_peer: false,
        profile: PROFILING,
    },
    Bench {
        name: "client-metrics",
        about: "what measuring a request costs: the same requests with and without the layer",
        needs_program: false,
        needs_peer: false,
        profile: RELEASE,
    },
    Bench {
        name: "server",
        about: "metrics.k8s.io on a simulated cluster under load: ours and metrics-server",
        needs_program: true,
        needs_peer: true,
        profile: RELEASE,
    },
    Bench {
        name: "growth",
        about: "what grows with the cluster, from 10 to 5,000 nodes: a picture, and what a node and a pod cost",
        needs_program: true,
        needs_peer: true,
        profile: RELEASE,
    },
    Bench {
        name: "load",
        about: "the server while 200 ask for everything at once and half of them read slowly",
        needs_program: true,
        needs_peer: true,
        profile: RELEASE,
    },
    Bench {
        name: "soak",
        about: "the server while pods come and go and every node is replaced: does its memory stay flat?",
        needs_program: true,
        needs_peer: true,
        profile: RELEASE,
    },
    Bench {
        name: "transitions",
        about: "changes of pods followed on one core, next to a client-go informer; --sim: in a busy cluster",
        needs_program: true,
        needs_peer: false,
        profile: RELEASE,
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
        step::run(cargo().args(["build", "--release", "--locked", "--package=kubevitals"]))?;
    }
    let mut command = cargo();
    // Whoever names another one is not made to wait for this one.
    if bench.needs_peer && std::env::var_os(METRICS_SERVER_VARIABLE).is_none() {
        let peer = cluster_tool::program("metrics-server")?;
        command.env(METRICS_SERVER_VARIABLE, peer);
    }
    if wants_real_bed(&flags.flags) {
        for (variable, program) in REAL_PROGRAMS {
            if std::env::var_os(variable).is_none() {
                command.env(variable, cluster_tool::program(program)?);
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

/// Whether a benchmark is asked to put servers before a real API server.
fn wants_real_bed(flags: &[String]) -> bool {
    let pairs = flags.windows(2);
    flags.iter().any(|flag| flag == "--bed=real")
        || pairs.into_iter().any(|pair| pair == ["--bed", "real"])
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
    fn a_real_bed_is_asked_for_in_one_word_or_two() {
        let wants = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            wants_real_bed(&words)
        };
        assert!(wants(&["--bed=real"]) && wants(&["--quick", "--bed", "real"]));
        assert!(!wants(&["--bed=sim"]) && !wants(&["--bed"]) && !wants(&["real"]));
    }

    #[test]
    fn the_list_is_that_of_the_package() {
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

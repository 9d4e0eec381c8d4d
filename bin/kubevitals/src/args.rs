//! The command line of the program. A role's own flags stand in the role's file.

use clap::{ArgMatches, Args as _, Command, Error, FromArgMatches, Parser, Subcommand};
use kubevitals_cli::Shell;
use kubevitals_cli::flags::{ConfigFlags, LogFlags};

use crate::ROLES;
#[cfg(feature = "sim")]
use crate::demo::DemoFlags;
use crate::explain::ExplainFlags;
use crate::replay::ReplayFlags;
use crate::run::RunFlags;
#[cfg(feature = "sim")]
use crate::sim::SimFlags;

/// Reads the vital signs of a Kubernetes cluster
// The last of several equal flags wins, as in Kubernetes: charts append a user's flags to theirs.
#[derive(Debug, Parser)]
#[command(name = "kubevitals", version, propagate_version = true, after_help = examples(cfg!(feature = "sim")), args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) config: ConfigFlags,
    #[command(flatten)]
    pub(crate) logs: LogFlags,
    #[command(subcommand)]
    pub(crate) task: Task,
}

/// The selected command.
#[derive(Debug)]
pub(crate) enum Task {
    /// A role by itself, or several with `run`.
    Run(Box<RunFlags>),
    /// Anything that is not a role.
    Tool(Tool),
}

/// The commands that are not roles.
#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Run the roles on a simulated cluster: no real one, no root and no network needed
    #[cfg(feature = "sim")]
    Demo(DemoFlags),
    /// Run a simulated cluster to point programs at: API server, kubelets, pods that come and go
    #[cfg(feature = "sim")]
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimFlags),
    /// Show why a pod took so long to start, or which pods took longest: needs nothing in the
    /// cluster
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainFlags>),
    /// Show how long every pod took to start, and why, from recorded watch streams
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayFlags),
    /// Write the man pages and completions of the shipped program into a folder
    #[cfg(feature = "dist-files")]
    #[command(hide = true)]
    DistFiles {
        /// Created if it is missing
        folder: std::path::PathBuf,
    },
    /// Write shell completions to standard output
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion {
        /// The shell to write them for
        shell: Shell,
    },
}

impl Subcommand for Task {
    fn augment_subcommands(command: Command) -> Command {
        let run = RunFlags::augment_args(Command::new(RUN))
            .about("Run several roles in one process, on one set of watches")
            .after_help(RUN_EXAMPLES);
        let roles = ROLES.iter().map(crate::role::RoleEntry::command);
        Tool::augment_subcommands(command.subcommands(roles).subcommand(run))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        name == RUN || ROLES.iter().any(|role| role.name == name) || Tool::has_subcommand(name)
    }
}

impl FromArgMatches for Task {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        if let Some((name, flags)) = matches.subcommand() {
            if name == RUN {
                return RunFlags::from_arg_matches(flags).map(|flags| Self::Run(Box::new(flags)));
            }
            if let Some(role) = ROLES.iter().find(|role| role.name == name) {
                return RunFlags::of_role(role, flags).map(|flags| Self::Run(Box::new(flags)));
            }
        }
        Tool::from_arg_matches(matches).map(Self::Tool)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

const RUN: &str = "run";

/// Examples of commands that exist: `demo` and `sim` need the simulated cluster.
pub(crate) fn examples(with_sim: bool) -> String {
    let sim = if with_sim { SIMULATED } else { "" };
    format!("{SETTINGS}{sim}{EXAMPLES}")
}

const SETTINGS: &str = "\
Every flag can also be set as a variable (KUBEVITALS_LOG_LEVEL=debug) or in the file that --config
names (log-level: debug). Bad configuration exits with 64, a failure at run time with 1.

Examples:
";

const SIMULATED: &str = "  \
  kubevitals demo                        a small simulated cluster, with lines to try
  kubevitals demo --nodes 50             a larger one
  kubevitals sim --nodes 5000 --pods-per-node 30 --churn 10/s --fault hang=1%
";

const EXAMPLES: &str = "  \
  kubevitals server --kubeconfig ~/.kube/config --secure-port 10250 --cert-dir /tmp/kubevitals
  kubevitals transitions --kubeconfig ~/.kube/config | jq .kube_transition_metrics
  kubevitals explain pod shop/web-0      why a pod took so long to start
  kubevitals explain deployment shop/web  how the pods of its newest revision started
  kubevitals explain --slowest 20        the pods that took longest
  kubevitals replay pods.json events.json  how long pods took, from recorded watches";

const RUN_EXAMPLES: &str = "\
Flags are those of the roles; what two roles have by the same name is one flag for both. Pods are
watched once: filters of pods are for `kubevitals transitions` by itself.

Examples:
  kubevitals run --roles server,transitions --secure-port=10250 --cert-dir=/tmp --lifecycle";

#[cfg(feature = "sim")]
const SIM_EXAMPLES: &str = "\
Examples:
  kubevitals sim --write-kubeconfig sim.kubeconfig
  kubevitals sim --nodes 5000 --pods-per-node 30 --churn 10/s --fault hang=1%
  kubectl --kubeconfig sim.kubeconfig -n kube-system create configmap kubevitals-sim \\
      --from-literal=faults=slow:5s=3,401=node-00000";

const EXPLAIN_EXAMPLES: &str = "\
It gets pods, and lists them for --slowest, --by, workloads and nodes; it gets workloads for their
selectors and lists ReplicaSets and ControllerRevisions for their revisions; it lists events for
image pulls, volumes, new nodes and what probes said, and gets or lists nodes for pool and age. What
is not allowed is left out, and said. The API server keeps events for an hour: of older pods the
cause may be missing. For pods that are gone see `kubevitals replay`.

Exit status: 0 success, 1 failure, 64 wrong usage; of diff with --threshold 0 if all are within, 2 if
one is beyond, 3 if there are too few pods for a verdict.

Examples:
  kubevitals explain pod shop/web-6b7f9c4d5-x2x9k
  kubevitals explain pod web-0 -n shop --watch
  kubevitals explain deployment web -n shop
  kubevitals explain node node-b-1 --since 1h -o json
  kubevitals explain --slowest 20 --since 1h
  kubevitals explain --slowest 100 -n shop -l app=web -o wide
  kubevitals explain --by image --since 1h
  kubevitals explain diff deployment/web 3 4 -n shop --threshold p95=+20% --threshold p95=1m
  kubevitals explain diff before.jsonl after.jsonl --threshold p95=30s
  kubevitals explain pod shop/web-0 -o json | jq .kube_transition_metrics";

const REPLAY_EXAMPLES: &str = "\
Objects stand one on a line or are printed over many; pods and events may be mixed. What cannot be
read is named with its place and costs only itself. Colours are left out if NO_COLOR is set.

Examples:
  kubectl get pods --all-namespaces --watch --output-watch-events -o json > pods.json
  kubectl get events --all-namespaces --watch --output-watch-events -o json > events.json
  kubevitals replay pods.json events.json
  kubevitals replay -o json --lifecycle pods.json events.json | jq .kube_transition_metrics";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  kubevitals completion bash > /etc/bash_completion.d/kubevitals
  source <(kubevitals completion zsh)";

#[cfg(test)]
mod tests;

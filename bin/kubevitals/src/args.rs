//! The command line of the program. A role's own flags stand in the role's file.

use clap::{Parser, Subcommand};
use kubevitals_cli::Shell;
use kubevitals_cli::flags::{ConfigFlags, LogFlags};

use crate::demo::DemoFlags;
use crate::explain::ExplainFlags;
use crate::replay::ReplayFlags;
use crate::run::RunFlags;
use crate::server::ServerFlags;
use crate::sim::SimFlags;
use crate::transitions::TransitionsFlags;

/// Reads the vital signs of a Kubernetes cluster
#[derive(Debug, Parser)]
#[command(name = "kubevitals", version, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) config: ConfigFlags,
    #[command(flatten)]
    pub(crate) logs: LogFlags,
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Serve the resource metrics API behind kubectl top, HPA and VPA, in place of metrics-server
    #[command(after_help = SERVER_EXAMPLES)]
    Server(Box<ServerFlags>),
    /// Write how long every pod took to start, and why, as JSON lines, in place of
    /// kube-transition-metrics
    #[command(after_help = TRANSITIONS_EXAMPLES)]
    Transitions(Box<TransitionsFlags>),
    /// Run several roles in one process, on one set of watches
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunFlags>),
    /// Show the parts at work on a simulated cluster: no real one, no root and no network needed
    Demo(DemoFlags),
    /// Run a simulated cluster to point programs at: API server, kubelets, pods that live
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimFlags),
    /// Show why a pod took so long to start, or which pods took longest: needs nothing in the
    /// cluster
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainFlags>),
    /// Show how long every pod took to start, and why, from recorded watch streams
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayFlags),
    /// Write shell completions to standard output
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion {
        /// The shell to write them for
        shell: Shell,
    },
}

const EXAMPLES: &str = "\
Every flag can also be set as a variable (KUBEVITALS_LOG_LEVEL=debug) or in the file that --config
names (log-level: debug). Bad configuration exits with 64, a failure at run time with 1.

Examples:
  kubevitals server --kubeconfig ~/.kube/config --secure-port 10250 --cert-dir /tmp/kubevitals
  kubevitals transitions --kubeconfig ~/.kube/config | jq .kube_transition_metrics
  kubevitals demo                        a small simulated cluster, with lines to try
  kubevitals demo --nodes 50             a larger one
  kubevitals sim --nodes 5000 --pods-per-node 30 --churn 10/s --fault hang=1%
  kubevitals explain pod shop/web-0      why a pod took so long to start
  kubevitals explain --slowest 20        the pods that took longest
  kubevitals replay pods.json events.json  how long pods took, from recorded watches";

const SERVER_EXAMPLES: &str = "\
Flags of metrics-server have their names, defaults and meaning. Called by the name metrics-server (a
link to this program), it is this command.

Examples:
  kubevitals server --secure-port=10250 --cert-dir=/tmp --metric-resolution=15s \\
      --kubelet-use-node-status-port --kubelet-preferred-address-types=InternalIP,Hostname
  kubevitals server --kubeconfig ~/.kube/config --secure-port 10250 --cert-dir /tmp/kubevitals";

const TRANSITIONS_EXAMPLES: &str = "\
Standard output has JSON lines alone; logs go to standard error. Flags of kube-transition-metrics
have their names and meaning.

Examples:
  kubevitals transitions --kubeconfig ~/.kube/config | jq .kube_transition_metrics
  kubevitals transitions --lifecycle -n shop -l app=web
  kubevitals transitions --listen-address=0.0.0.0:8080 --leader-elect
  kubevitals transitions --shard 0/4";

const RUN_EXAMPLES: &str = "\
Flags are those of the roles; what two roles have by the same name is one flag for both. Pods are
watched once: filters of pods are for `kubevitals transitions` by itself.

Examples:
  kubevitals run --roles server,transitions --secure-port=10250 --cert-dir=/tmp --lifecycle";

const SIM_EXAMPLES: &str = "\
Examples:
  kubevitals sim --write-kubeconfig sim.kubeconfig
  kubevitals sim --nodes 5000 --pods-per-node 30 --churn 10/s --fault hang=1%
  kubectl --kubeconfig sim.kubeconfig -n kube-system create configmap kubevitals-sim \\
      --from-literal=faults=slow:5s=3,401=node-00000";

const EXPLAIN_EXAMPLES: &str = "\
It gets pods, with --slowest it lists them; it lists events for image pulls and what probes said,
and gets nodes for the pool. What is not allowed is left out, and said. The API server keeps events
for an hour: of older pods the cause may be missing. For pods that are gone see `kubevitals replay`.

Examples:
  kubevitals explain pod shop/web-6b7f9c4d5-x2x9k
  kubevitals explain pod web-0 -n shop --watch
  kubevitals explain --slowest 20 --since 1h
  kubevitals explain --slowest 100 -n shop -l app=web -o wide
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
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }
}

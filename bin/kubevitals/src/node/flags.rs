//! The flags of the node role. Those of kubelets and of Virtual Kubelet keep their names.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Arg, Args, ValueEnum};
use kubevitals_cli::flags::go_bool;
use kubevitals_model::GoDuration;

use crate::process::ProcessFlags;

/// Flags of a node.
#[derive(Debug, Clone, Args)]
pub struct NodeFlags {
    #[command(flatten)]
    pub(super) node: NodeObjectFlags,
    #[command(flatten)]
    pub(super) pods: PodFlags,
    #[command(flatten)]
    pub(super) serving: ServingFlags,
    #[command(flatten)]
    pub(crate) process: ProcessFlags,
}

/// What runs the pods, or what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProviderName {
    /// Runs pods as plain processes of this host
    Process,
    /// Serves the statistics and logs of a real node; registers no Node
    Host,
    /// Simulates pods
    Sim,
}

/// Flags of the Node object.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Node", mut_args(go_bools))]
pub(super) struct NodeObjectFlags {
    /// What runs the pods, or what is read
    #[arg(long, value_name = "NAME", value_enum)]
    pub(super) provider: ProviderName,

    /// Path to a kubeconfig file [default: the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Name of the Node [default: the host name]
    #[arg(long, visible_aliases = ["nodename", "hostname-override"], value_name = "NAME")]
    pub(super) node_name: Option<String>,

    /// Addresses of the Node, at which the API server reaches it [default: that of
    /// --listen-address]
    #[arg(
        long,
        visible_alias = "node-ip",
        value_name = "IP",
        value_delimiter = ','
    )]
    pub(super) node_address: Vec<IpAddr>,

    /// Further labels of the Node, as KEY=VALUE
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(super) node_labels: Vec<String>,

    /// Taints of a new Node, as KEY=VALUE:EFFECT [default:
    /// kubevitals.io/provider=PROVIDER:NoSchedule]
    #[arg(long, value_name = "TAINT", value_delimiter = ',')]
    pub(super) register_with_taints: Vec<String>,

    /// Register a new Node without taints
    #[arg(long)]
    pub(super) disable_taint: bool,

    /// Capacity of the Node, as RESOURCE=QUANTITY [default: that of the host]
    #[arg(long, value_name = "RESOURCE", value_delimiter = ',')]
    pub(super) capacity: Vec<String>,

    /// Maximum number of pods
    #[arg(long, value_name = "N", default_value_t = 110,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) max_pods: u32,
}

/// Flags of pods.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Pods")]
pub(super) struct PodFlags {
    /// Folder of pods, logs and the generated certificate
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubevitals")]
    pub(super) root_dir: PathBuf,

    /// Parent of the cgroups of pods, for --provider process. Each node of a host needs its own:
    /// what is in it and belongs to no pod is killed
    #[arg(long, value_name = "CGROUP", default_value = "/kubevitals")]
    pub(super) cgroup_root: String,

    /// Maximum number of pods that are synced at the same time
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) pod_sync_workers: u32,

    /// Folder at which the root of the host is mounted, for --provider host
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub(super) host_root: PathBuf,

    /// Time that a pod of --provider sim takes to start
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(super) sim_start_delay: GoDuration,
}

/// Flags of the kubelet server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Serving", mut_args(go_bools))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct ServingFlags {
    /// Address of the kubelet's endpoints; port 0 takes a free one [default: 0.0.0.0:10250]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen_address: Option<SocketAddr>,

    /// Serving certificate, reloaded when the file changes [default: a self-signed one]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(super) tls_cert_file: Option<PathBuf>,

    /// Private key of --tls-cert-file
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(super) tls_private_key_file: Option<PathBuf>,

    /// Request the serving certificate from the cluster's signer kubernetes.io/kubelet-serving, and
    /// renew it; needs the identity of a node, system:node:NAME
    #[arg(long, conflicts_with = "tls_cert_file")]
    pub(super) rotate_server_certificates: bool,

    /// CA of client certificates, such as that of the API server [default: read from the cluster]
    #[arg(long, value_name = "FILE")]
    pub(super) client_ca_file: Option<PathBuf>,

    /// Let requests without credentials in as system:anonymous, with the permissions of that user
    #[arg(long)]
    pub(super) anonymous_auth: bool,

    /// Accept bearer tokens that the API server confirms
    #[arg(long)]
    pub(super) authentication_token_webhook: bool,

    /// How long a confirmed token is remembered
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub(super) authentication_token_webhook_cache_ttl: GoDuration,

    /// How long a permission is remembered
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(super) authorization_webhook_cache_authorized_ttl: GoDuration,

    /// How long a denial is remembered
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(super) authorization_webhook_cache_unauthorized_ttl: GoDuration,

    /// Time without a byte after which exec, attach and port-forward end
    #[arg(
        long,
        visible_alias = "streaming-connection-idle-timeout",
        value_name = "DURATION",
        default_value = "4h"
    )]
    pub(super) stream_idle_timeout: GoDuration,

    /// Time in which the client of exec, attach and port-forward must open its streams
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(super) stream_creation_timeout: GoDuration,

    /// Serve the old `scrape_error` too
    #[arg(long)]
    pub(super) show_hidden_metrics: bool,
}

fn go_bools(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "disable_taint" | "anonymous_auth" | "show_hidden_metrics" => go_bool(arg),
        "authentication_token_webhook" => go_bool(arg).default_value("true"),
        _ => arg,
    }
}

//! The flags of the prober. Those of gke-prober keep their names; its variables count where a flag
//! is not given.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, Args, ValueEnum};
use kubevitals_cli::flags::go_bool;
use kubevitals_model::GoDuration;
use kubevitals_otlp::{Compression, Protocol};

use crate::process::ProcessFlags;

#[derive(Debug, Clone, Args)]
#[command(mut_arg("admin_bind_address", like_the_peer))]
pub struct ProberFlags {
    #[command(flatten)]
    pub(super) reports: ReportFlags,
    #[command(flatten)]
    pub(super) addons: AddonFlags,
    #[command(flatten)]
    pub(super) probes: ProbeFlags,
    #[command(flatten)]
    pub(super) mesh: MeshFlags,
    #[command(flatten)]
    pub(super) gcm: GcmFlags,
    #[command(flatten)]
    pub(super) otlp: OtlpFlags,
    #[command(flatten)]
    pub(super) standby: StandbyFlags,
    #[command(flatten)]
    pub(crate) process: ProcessFlags,
}

/// What is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeName {
    /// All nodes, and what addons should have.
    Cluster,
    /// The node that the process runs on, and the addons on it.
    Node,
}

/// Where it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProviderName {
    /// Google Cloud Monitoring.
    Gcm,
    /// An OpenTelemetry receiver.
    Otlp,
    /// `/metrics` of the admin server.
    Prometheus,
    /// JSON lines on standard output.
    Jsonl,
}

/// Which pods are addons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AddonRule {
    /// Those with the annotations of GKE.
    Annotated,
    /// Also those that the program knows.
    Known,
    /// Also those with a common label, and static pods.
    Named,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Reports")]
pub(super) struct ReportFlags {
    /// What to observe: all nodes, or the one that this process runs on [default: `PROBER_MODE`, or
    /// cluster]
    #[arg(long, value_name = "MODE")]
    pub(super) mode: Option<ModeName>,

    /// Where to report; may be repeated. /metrics is always served [default: prometheus, and gcm on
    /// GKE]
    #[arg(long, value_name = "PROVIDER", value_delimiter = ',')]
    pub(super) provider: Vec<ProviderName>,

    /// Time between two reports [default: `REPORT_INTERVAL`, or 1m]
    #[arg(long, value_name = "DURATION")]
    pub(super) report_interval: Option<GoDuration>,

    /// Prefix of metrics in Cloud Monitoring, below workload.googleapis.com [default:
    /// `METRIC_PREFIX`, or gke-prober]
    #[arg(long, value_name = "PREFIX")]
    pub(super) metric_prefix: Option<String>,

    /// Name of the node, in node mode [default: `NODE_NAME`, or the name of the host]
    #[arg(long, value_name = "NAME")]
    pub(super) node_name: Option<String>,

    /// Namespace of this program and of its Lease [default: `POD_NAMESPACE`, or that of the
    /// kubeconfig]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,

    /// Age below which a node is not available, because it still starts its addons
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(super) node_warm_up: GoDuration,

    /// Labels of the pods of node mode, whose readiness says which nodes are silent; empty not to
    /// look for silent nodes
    #[arg(
        long,
        value_name = "SELECTOR",
        default_value = "app.kubernetes.io/component=prober-node"
    )]
    pub(super) node_prober_selector: String,

    /// Path to a kubeconfig file [default: the service account of the pod, or the files of kubectl]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Addons")]
pub(super) struct AddonFlags {
    /// Namespaces of addons, separated by commas; * for all
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    pub(super) addon_namespace: Vec<String>,

    /// Which pods are addons: those with the annotations of GKE, also those that the program knows,
    /// or also those with a common label
    #[arg(long, value_name = "RULE", default_value = "named")]
    pub(super) addon_rules: AddonRule,

    /// An addon by a label selector, as NAME=SELECTOR, or NAME@NAMESPACE=SELECTOR; may be repeated
    #[arg(long, value_name = "ADDON")]
    pub(super) addon: Vec<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Probes", mut_arg("allow_exec", go_bool))]
pub(super) struct ProbeFlags {
    /// Files or folders with probes in YAML; may be repeated. They are read again when they change
    #[arg(long, value_name = "FILE")]
    pub(super) probes: Vec<PathBuf>,

    /// Time between two looks at the files of probes
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(super) probes_reload_interval: GoDuration,

    /// Allow probes to run commands
    #[arg(long)]
    pub(super) allow_exec: bool,

    /// Convert a configuration of `blackbox_exporter`, write it to standard output, and end
    #[arg(long, value_name = "FILE")]
    pub(super) convert_blackbox: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mesh")]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the names of the flags"
)]
pub(super) struct MeshFlags {
    /// In node mode, connect to the probers of some other nodes, which the cluster mode at this URL
    /// names, such as `http://kubevitals-prober:8080`
    #[arg(long, value_name = "URL")]
    pub(super) mesh_coordinator: Option<String>,

    /// Number of other nodes to connect to
    #[arg(long, value_name = "NODES", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(super) mesh_peers: u8,

    /// Time between two connections to each of them
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) mesh_interval: GoDuration,
}

/// All are also read from variables of the environment and from the metadata server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Google Cloud Monitoring")]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the names of the flags"
)]
pub(super) struct GcmFlags {
    /// Project [default: `GOOGLE_CLOUD_PROJECT`, that of the credentials, or of the metadata server]
    #[arg(long, value_name = "PROJECT")]
    pub(super) gcm_project: Option<String>,

    /// Location of the cluster [default: `CLUSTER_LOCATION`, or that of the metadata server]
    #[arg(long, value_name = "LOCATION")]
    pub(super) gcm_location: Option<String>,

    /// Name of the cluster [default: `CLUSTER_NAME`, or that of the metadata server]
    #[arg(long, value_name = "NAME")]
    pub(super) gcm_cluster: Option<String>,

    /// URL of Cloud Monitoring
    #[arg(
        long,
        value_name = "URL",
        default_value = "https://monitoring.googleapis.com"
    )]
    pub(super) gcm_endpoint: String,

    /// File with the authorities of the endpoint's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(super) gcm_certificate_authority: Option<PathBuf>,
}

/// All are also read from `OTEL_EXPORTER_OTLP_*`, as OpenTelemetry specifies.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "OpenTelemetry")]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the names of the flags"
)]
pub(super) struct OtlpFlags {
    /// Receiver of metrics, such as `http://collector:4318` [default:
    /// `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, or `OTEL_EXPORTER_OTLP_ENDPOINT`]
    #[arg(long, value_name = "URL")]
    pub(super) otlp_endpoint: Option<String>,

    /// Protocol of the receiver: http/protobuf or grpc [default: `OTEL_EXPORTER_OTLP_PROTOCOL`, or
    /// http/protobuf]
    #[arg(long, value_name = "PROTOCOL")]
    pub(super) otlp_protocol: Option<Protocol>,

    /// Compression of requests: gzip or none [default: `OTEL_EXPORTER_OTLP_COMPRESSION`, or gzip]
    #[arg(long, value_name = "COMPRESSION")]
    pub(super) otlp_compression: Option<Compression>,

    /// File with headers of requests, one `Name: value` a line, read again for each request; others
    /// come from `OTEL_EXPORTER_OTLP_HEADERS`
    #[arg(long, value_name = "FILE")]
    pub(super) otlp_headers_file: Option<PathBuf>,

    /// File with the authorities of the receiver's certificate [default:
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`, or those of the system]
    #[arg(long, value_name = "FILE")]
    pub(super) otlp_certificate_authority: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Standby", mut_arg("leader_elect", go_bool))]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the names of the flags"
)]
pub(super) struct StandbyFlags {
    /// Elect a leader: of several replicas in cluster mode one reports, the others are standbys
    #[arg(long)]
    pub(super) leader_elect: bool,

    /// Time after which a lease that is not renewed may be acquired
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub(super) leader_elect_lease_duration: GoDuration,

    /// Time after which a leader that cannot renew its lease stops reporting
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) leader_elect_renew_deadline: GoDuration,

    /// Time between attempts to acquire or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(super) leader_elect_retry_period: GoDuration,

    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "kubevitals-prober")]
    pub(super) leader_elect_resource_name: String,

    /// Namespace of the Lease [default: --namespace]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) leader_elect_resource_namespace: Option<String>,
}

/// The address flag of the issue, and the port of gke-prober.
fn like_the_peer(arg: Arg) -> Arg {
    arg.visible_alias("listen-address")
        .default_value("127.0.0.1:8080")
        .value_parser(parse_address)
}

/// Parses an address as Go does: without a host, all interfaces.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let parsed = match text.strip_prefix(':') {
        Some(port) => format!("[::]:{port}").parse(),
        None => text.replacen("localhost:", "127.0.0.1:", 1).parse(),
    };
    parsed.map_err(|_| "use an address and a port, such as 0.0.0.0:8080".to_owned())
}

//! The flags of the transitions role. Those of kube-transition-metrics keep their names and
//! meaning.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, Args};
use kubevitals_cli::flags::go_bool;
use kubevitals_model::{GoDuration, Quantity};
use kubevitals_otlp::{Compression, Protocol};
use kubevitals_transition_metrics::LabelChoice;
use kubevitals_transitions::{LabelKeys, Shard};

use crate::process::ProcessFlags;
use crate::watches::PodFilter;

#[derive(Debug, Clone, Args)]
#[command(mut_arg("admin_bind_address", like_the_peer))]
pub struct TransitionsFlags {
    #[command(flatten)]
    pub(super) pods: PodFlags,
    #[command(flatten)]
    pub(super) lines: LineFlags,
    #[command(flatten)]
    pub(super) watches: WatchFlags,
    #[command(flatten)]
    pub(super) families: FamilyFlags,
    #[command(flatten)]
    pub(super) traces: TraceFlags,
    #[command(flatten)]
    pub(super) standby: StandbyFlags,
    #[command(flatten)]
    pub(crate) process: ProcessFlags,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Pods", mut_args(go_bools))]
pub(super) struct PodFlags {
    /// Only pods of this namespace [default: all]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,

    /// Only pods with these labels, as in `kubectl get -l`
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    pub(super) selector: String,

    /// Only pods with these fields, as in `kubectl get --field-selector`
    #[arg(long, value_name = "SELECTOR", default_value = "")]
    pub(super) field_selector: String,

    /// Only this shard of the pods, by UID: 0/4 is the first of four
    #[arg(long, value_name = "PART", default_value_t = Shard::ALL)]
    pub(super) shard: Shard,

    /// Also watch events: without them there are no image pulls and no probe failures
    #[arg(long)]
    pub(super) image_pull_events: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Lines", mut_args(go_bools))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct LineFlags {
    /// Write the wrong durations and names of kube-transition-metrics as it does
    #[arg(long)]
    pub(super) compat: bool,

    /// Also write records for every change of a pod that is not ready yet
    #[arg(long)]
    pub(super) emit_partial: bool,

    /// Also write records of type `lifecycle`, when a pod has started and when it is deleted
    #[arg(long)]
    pub(super) lifecycle: bool,

    /// Write lines; if false, only metrics are served
    #[arg(long)]
    pub(super) output_lines: bool,

    /// Size of the queue for standard output; lines beyond it are dropped and counted
    #[arg(long, value_name = "BYTES", default_value = "32Mi")]
    pub(super) stdout_buffer: Quantity,

    /// Time to wait for late events once a pod has started or is deleted, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub(super) image_pull_cancel_delay: f64,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Watches")]
pub(super) struct WatchFlags {
    /// Path to a kubeconfig [default: the service account of the pod, or else as kubectl]
    #[arg(long, visible_alias = "kubeconfig-path", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Minimum timeout of a watch, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 240,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) kube_watch_timeout: u32,

    /// Page size of lists
    #[arg(long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) kube_watch_max_events: u32,

    /// Maximum number of queued pod changes, and of queued events
    #[arg(long, value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) statistic_event_queue_length: u32,

    /// Maximum number of events read from a list, at the start or after a gap
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub(super) event_list_limit: u32,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Metrics of pods", mut_args(go_bools))]
pub(super) struct FamilyFlags {
    /// Labels of the pod metrics: namespace, workload, `node_pool`, zone; the last two also watch
    /// nodes
    #[arg(long, value_name = "LABELS", default_value_t = LabelChoice::default())]
    pub(super) metric_labels: LabelChoice,

    /// Labels of pods to add to the lines and the pod metrics, by key: `team,tier`
    #[arg(long, value_name = "KEYS", default_value_t = LabelKeys::default(), hide_default_value = true)]
    pub(super) label_keys: LabelKeys,

    /// Maximum number of label sets with series of their own; all others share one
    #[arg(long, value_name = "N", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) metric_series_limit: u32,

    /// Time after which the series of a label set that no pod used are removed; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub(super) metric_idle_timeout: GoDuration,

    /// Also expose native histograms, to a Prometheus that requests them
    #[arg(long)]
    pub(super) native_histograms: bool,
}

/// All are also read from `OTEL_EXPORTER_OTLP_*`, as OpenTelemetry specifies.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Traces")]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the names of the flags"
)]
pub(super) struct TraceFlags {
    /// Send the start of every pod as a trace to this OpenTelemetry receiver, such as
    /// `http://collector:4318` [default: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, or none]
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
#[command(next_help_heading = "Standby", mut_args(go_bools))]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the names of the flags"
)]
pub(super) struct StandbyFlags {
    /// Elect a leader: of several replicas one writes, the others are standbys
    #[arg(long)]
    pub(super) leader_elect: bool,

    /// Time after which a lease that is not renewed may be acquired
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub(super) leader_elect_lease_duration: GoDuration,

    /// Time after which a leader that cannot renew its lease stops writing
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) leader_elect_renew_deadline: GoDuration,

    /// Time between attempts to acquire or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(super) leader_elect_retry_period: GoDuration,

    /// Name of the Lease; a shard appends its number
    #[arg(long, value_name = "NAME", default_value = "kubevitals-transitions")]
    pub(super) leader_elect_resource_name: String,

    /// Namespace of the Lease [default: that of the pod]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) leader_elect_resource_namespace: Option<String>,
}

impl TransitionsFlags {
    /// The flag that leaves some pods out of the watch.
    pub(super) fn pod_filter(&self) -> Option<PodFilter> {
        let pods = &self.pods;
        let given = [
            ("namespace", pods.namespace.as_deref().unwrap_or_default()),
            ("selector", &pods.selector),
            ("field-selector", &pods.field_selector),
        ];
        let (flag, value) = given.into_iter().find(|(_, value)| !value.is_empty())?;
        Some(PodFilter {
            flag,
            value: value.to_owned(),
        })
    }
}

/// Booleans as Go programs accept them, since kube-transition-metrics is one.
fn go_bools(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "image_pull_events" | "output_lines" => go_bool(arg).default_value("true"),
        "compat" | "emit_partial" | "lifecycle" | "leader_elect" | "native_histograms" => {
            go_bool(arg)
        }
        _ => arg,
    }
}

/// The address flag and default of kube-transition-metrics, for the admin server.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_in_go() {
        for (text, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            (":8080", "[::]:8080"),
            ("localhost:1", "127.0.0.1:1"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(parse_address(text), Ok(address.parse().unwrap()));
        }
        for text in ["", ":", "8080", "0.0.0.0", "0.0.0.0:99999", ":a"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}

//! The flags of the server role. Those of metrics-server keep their names, defaults and meaning, so
//! that a manifest written for it starts this program unchanged.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Arg, Args};
use kubevitals_cli::flags::go_bool;
use kubevitals_model::GoDuration;

use super::compat::CompatFlags;
use crate::process::ProcessFlags;

/// Flags of the resource metrics API server.
#[derive(Debug, Clone, Args)]
pub struct ServerFlags {
    #[command(flatten)]
    pub(super) metrics: MetricsFlags,
    #[command(flatten)]
    pub(super) kubelet: KubeletFlags,
    #[command(flatten)]
    pub(super) serving: ServingFlags,
    #[command(flatten)]
    pub(super) authentication: AuthenticationFlags,
    #[command(flatten)]
    pub(super) authorization: AuthorizationFlags,
    #[command(flatten)]
    pub(super) compat: CompatFlags,
    #[command(flatten)]
    pub(crate) process: ProcessFlags,
}

/// What is measured, and how long it is believed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Metrics")]
pub(super) struct MetricsFlags {
    /// How often each kubelet is asked
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(super) metric_resolution: GoDuration,

    /// How long a measurement is served when no newer one comes [default: 3 × --metric-resolution,
    /// 30s at least]
    #[arg(long, value_name = "DURATION")]
    pub(super) staleness: Option<GoDuration>,

    /// What is served besides cpu, memory and swap: ephemeral-storage (needs `nodes/stats`)
    #[arg(long, value_name = "RESOURCE", value_delimiter = ',')]
    pub(super) extra_resources: Vec<String>,

    /// Kubeconfig of the cluster; without one, the service account of the pod is taken
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Only nodes with these labels, as in `kubectl get -l`
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    pub(super) node_selector: String,
}

/// How kubelets are reached, and which are believed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kubelets", mut_args(go_bools))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct KubeletFlags {
    /// Types of node addresses, the most preferred first; the next is tried where one does not work
    #[arg(
        long,
        value_name = "TYPE",
        value_delimiter = ',',
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    pub(super) kubelet_preferred_address_types: Vec<String>,

    /// Port of kubelets, where the Node does not say it or is not asked
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    pub(super) kubelet_port: u16,

    /// Take the port that the Node states
    #[arg(long)]
    pub(super) kubelet_use_node_status_port: bool,

    /// How long one request to a kubelet may take
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) kubelet_request_timeout: GoDuration,

    /// CA bundles that sign kubelets' certificates; without one, that of the cluster is taken (may
    /// be repeated)
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub(super) kubelet_certificate_authority: Vec<PathBuf>,

    /// Client certificate to show to kubelets
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    pub(super) kubelet_client_certificate: Option<PathBuf>,

    /// Its private key
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    pub(super) kubelet_client_key: Option<PathBuf>,

    /// Trust the first certificate that each Node shows, and no other afterwards, where no CA
    /// vouches for it
    #[arg(long)]
    pub(super) kubelet_pin_certificates: bool,

    /// Do not verify kubelets' certificates: whoever is in between reads the token and forges
    /// metrics
    #[arg(long)]
    pub(super) kubelet_insecure_tls: bool,

    /// Plain HTTP and no credentials, for the old read-only port
    #[arg(long, hide = true)]
    pub(super) deprecated_kubelet_completely_insecure: bool,
}

/// Where and how the API is served.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Serving", mut_args(go_bools))]
pub(super) struct ServingFlags {
    /// Address to serve on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(super) bind_address: IpAddr,

    /// Port to serve HTTPS on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 443)]
    pub(super) secure_port: u16,

    /// Folder of the certificate that is made where no file is given
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "apiserver.local.config/certificates"
    )]
    pub(super) cert_dir: PathBuf,

    /// Certificate to serve with, read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(super) tls_cert_file: Option<PathBuf>,

    /// Its private key
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(super) tls_private_key_file: Option<PathBuf>,

    /// Cipher suites, in Go's names [default: those of the TLS library]
    #[arg(long, value_name = "SUITE", value_delimiter = ',')]
    pub(super) tls_cipher_suites: Vec<String>,

    /// Lowest TLS version: `VersionTLS12` or `VersionTLS13`
    #[arg(long, value_name = "VERSION")]
    pub(super) tls_min_version: Option<String>,

    /// Serve HTTP/1.1 only
    #[arg(long)]
    pub(super) disable_http2_serving: bool,

    /// Requests at once on one HTTP/2 connection; 0 leaves it to the server
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) http2_max_streams_per_connection: u32,

    /// Requests that are answered at the same time; others are told to come back
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub(super) max_requests_inflight: usize,

    /// How long one request may take, watches excepted
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub(super) request_timeout: GoDuration,

    /// Service in front of this server, as NAMESPACE/NAME: its names go into the certificate that
    /// is made
    #[arg(
        long,
        value_name = "SERVICE",
        default_value = "kube-system/metrics-server"
    )]
    pub(super) apiservice_backend: String,

    /// Write the CA of the certificate that is made into the APIServices of metrics.k8s.io (needs
    /// RBAC for it)
    #[arg(long)]
    pub(super) manage_apiservices: bool,
}

/// How callers are known.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authentication", mut_args(go_bools))]
pub(super) struct AuthenticationFlags {
    /// Kubeconfig to review tokens with; without one, that of --kubeconfig or of the pod
    #[arg(long, value_name = "FILE")]
    pub(super) authentication_kubeconfig: Option<PathBuf>,

    /// Do not look up the missing settings in the cluster
    #[arg(long)]
    pub(super) authentication_skip_lookup: bool,

    /// Serve, with whom the flags alone let in, although the lookup failed
    #[arg(long)]
    pub(super) authentication_tolerate_lookup_failure: bool,

    /// How long a token's review is believed
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) authentication_token_webhook_cache_ttl: GoDuration,

    /// CA of client certificates
    #[arg(long, value_name = "FILE")]
    pub(super) client_ca_file: Option<PathBuf>,

    /// CA of the front proxy's client certificate
    #[arg(long, value_name = "FILE")]
    pub(super) requestheader_client_ca_file: Option<PathBuf>,

    /// Common names of the front proxy; none means any that its CA vouches for
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) requestheader_allowed_names: Vec<String>,

    /// Headers that hold the user's name
    #[arg(
        long,
        value_name = "HEADER",
        value_delimiter = ',',
        default_value = "x-remote-user"
    )]
    pub(super) requestheader_username_headers: Vec<String>,

    /// Headers that hold the user's UID
    #[arg(long, value_name = "HEADER", value_delimiter = ',')]
    pub(super) requestheader_uid_headers: Vec<String>,

    /// Headers that hold the user's groups
    #[arg(
        long,
        value_name = "HEADER",
        value_delimiter = ',',
        default_value = "x-remote-group"
    )]
    pub(super) requestheader_group_headers: Vec<String>,

    /// What headers with more about the user begin with
    #[arg(
        long,
        value_name = "PREFIX",
        value_delimiter = ',',
        default_value = "x-remote-extra-"
    )]
    pub(super) requestheader_extra_headers_prefix: Vec<String>,
}

/// What callers may do.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authorization")]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the names of the flags"
)]
pub(super) struct AuthorizationFlags {
    /// Kubeconfig to ask for permission with; without one, that of --kubeconfig or of the pod
    #[arg(long, value_name = "FILE")]
    pub(super) authorization_kubeconfig: Option<PathBuf>,

    /// Paths that anyone may read
    #[arg(
        long,
        value_name = "PATH",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    pub(super) authorization_always_allow_paths: Vec<String>,

    /// How long a permission is believed
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) authorization_webhook_cache_authorized_ttl: GoDuration,

    /// How long a refusal is believed
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) authorization_webhook_cache_unauthorized_ttl: GoDuration,
}

/// The booleans among the flags, which manifests also write as `--flag=false`.
fn go_bools(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "kubelet_insecure_tls"
        | "kubelet_use_node_status_port"
        | "kubelet_pin_certificates"
        | "deprecated_kubelet_completely_insecure"
        | "disable_http2_serving"
        | "manage_apiservices"
        | "authentication_skip_lookup"
        | "authentication_tolerate_lookup_failure" => go_bool(arg),
        _ => arg,
    }
}

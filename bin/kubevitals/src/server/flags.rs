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

/// Flags of scraping and staleness.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Metrics")]
pub(super) struct MetricsFlags {
    /// Interval at which each kubelet is scraped
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(super) metric_resolution: GoDuration,

    /// Age at which usage is no longer served [default: 3 × --metric-resolution, at least 30s]
    #[arg(long, value_name = "DURATION")]
    pub(super) staleness: Option<GoDuration>,

    /// Resources to serve besides cpu, memory and swap: ephemeral-storage (needs `nodes/stats`)
    #[arg(long, value_name = "RESOURCE", value_delimiter = ',')]
    pub(super) extra_resources: Vec<String>,

    /// Path to a kubeconfig file [default: the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Label selector of the nodes to scrape, as in `kubectl get -l`
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    pub(super) node_selector: String,

    /// Keys of taints of nodes not to scrape, such as virtual-kubelet.io/provider
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub(super) exclude_node_taints: Vec<String>,

    /// Label selector of nodes not to scrape; unlike those that --node-selector leaves out, their
    /// absence is explained
    #[arg(long, value_name = "SELECTOR", default_value = "")]
    pub(super) exclude_node_selector: String,
}

/// Flags of connections to kubelets.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kubelets", mut_args(go_bools))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct KubeletFlags {
    /// Node address types in order of preference; if one fails, the next is tried
    #[arg(
        long,
        value_name = "TYPE",
        value_delimiter = ',',
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    pub(super) kubelet_preferred_address_types: Vec<String>,

    /// Port of kubelets, unless the port of the Node status is used
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    pub(super) kubelet_port: u16,

    /// Use the port in the Node status, which takes precedence over --kubelet-port
    #[arg(long)]
    pub(super) kubelet_use_node_status_port: bool,

    /// Timeout of a request to a kubelet [default: 0.9 × --metric-resolution, at most 10s]
    #[arg(long, value_name = "DURATION")]
    pub(super) kubelet_request_timeout: Option<GoDuration>,

    /// CA bundles that verify the certificates of kubelets; may be repeated [default: the CA of the
    /// cluster]
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub(super) kubelet_certificate_authority: Vec<PathBuf>,

    /// Client certificate for kubelets
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    pub(super) kubelet_client_certificate: Option<PathBuf>,

    /// Private key of --kubelet-client-certificate
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    pub(super) kubelet_client_key: Option<PathBuf>,

    /// Service account whose token is sent to kubelets, as NAMESPACE/NAME: requested from the API
    /// server and renewed (needs RBAC to create `serviceaccounts/token`) [default: the own token]
    #[arg(long, value_name = "SERVICEACCOUNT")]
    pub(super) kubelet_service_account: Option<String>,

    /// File with the token that is sent to kubelets, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(super) kubelet_token_file: Option<PathBuf>,

    /// Where no CA verifies the certificate of a Node, trust its first one and no other afterwards
    #[arg(long)]
    pub(super) kubelet_pin_certificates: bool,

    /// Reach kubelets through the proxy in `HTTPS_PROXY`, except those that `NO_PROXY` names
    #[arg(long)]
    pub(super) kubelet_use_proxy: bool,

    /// Do not verify the certificates of kubelets: a man in the middle can read the token and forge
    /// metrics
    #[arg(long)]
    pub(super) kubelet_insecure_tls: bool,

    /// Scrape Nodes with the annotation kubevitals.io/scheme=http by plain HTTP, without
    /// credentials
    #[arg(long)]
    pub(super) kubelet_allow_http: bool,

    /// Compression of the responses of kubelets: gzip or none
    #[arg(long, value_name = "ENCODING", default_value = "gzip")]
    pub(super) kubelet_compression: String,

    /// Memory that all responses of kubelets may take together while they are read
    #[arg(long, value_name = "QUANTITY", default_value = "128Mi")]
    pub(super) scrape_memory_limit: String,

    /// Use plain HTTP without credentials, for the old read-only port
    #[arg(long, hide = true)]
    pub(super) deprecated_kubelet_completely_insecure: bool,
}

/// Flags of the HTTPS server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Serving", mut_args(go_bools))]
pub(super) struct ServingFlags {
    /// IP address to listen on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(super) bind_address: IpAddr,

    /// Port to serve HTTPS on; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 443)]
    pub(super) secure_port: u16,

    /// Directory of the generated certificate, if --tls-cert-file is not set
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "apiserver.local.config/certificates"
    )]
    pub(super) cert_dir: PathBuf,

    /// Serving certificate, reloaded when the file changes
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(super) tls_cert_file: Option<PathBuf>,

    /// Private key of --tls-cert-file
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(super) tls_private_key_file: Option<PathBuf>,

    /// Cipher suites, by the names of Go [default: those of the TLS library]
    #[arg(long, value_name = "SUITE", value_delimiter = ',')]
    pub(super) tls_cipher_suites: Vec<String>,

    /// Key exchange groups by their numbers in TLS, such as 29 for X25519 [default: those of the
    /// TLS library]
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    pub(super) tls_curve_preferences: Vec<String>,

    /// Minimum TLS version: `VersionTLS12` or `VersionTLS13`
    #[arg(long, value_name = "VERSION")]
    pub(super) tls_min_version: Option<String>,

    /// Serve HTTP/1.1 only
    #[arg(long)]
    pub(super) disable_http2_serving: bool,

    /// Limit of concurrent requests on one HTTP/2 connection; 0 for the default
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) http2_max_streams_per_connection: u32,

    /// Limit of requests in flight; above it, requests get status 429 and a Retry-After
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub(super) max_requests_inflight: usize,

    /// Timeout of a request; watches have none
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub(super) request_timeout: GoDuration,

    /// Time after SIGTERM in which readiness fails and requests are still served; part of
    /// --shutdown-grace-period [default: 5s, or half of --shutdown-grace-period]
    #[arg(long, value_name = "DURATION")]
    pub(super) shutdown_delay_duration: Option<GoDuration>,

    /// Probability that a request over HTTP/2 closes its connection once idle, so that clients
    /// spread over replicas: 0 to 0.02
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.0)]
    pub(super) goaway_chance: f64,

    /// Service in front of this server, as NAMESPACE/NAME: the generated certificate has its DNS
    /// names
    #[arg(
        long,
        value_name = "SERVICE",
        default_value = "kube-system/metrics-server"
    )]
    pub(super) apiservice_backend: String,

    /// Write the CA of the generated certificate into the APIServices of metrics.k8s.io (needs RBAC
    /// to patch them)
    #[arg(long)]
    pub(super) manage_apiservices: bool,
}

/// Flags of authentication.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authentication", mut_args(go_bools))]
pub(super) struct AuthenticationFlags {
    /// Kubeconfig for token reviews [default: --kubeconfig, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub(super) authentication_kubeconfig: Option<PathBuf>,

    /// Do not look up missing authentication settings in the cluster
    #[arg(long)]
    pub(super) authentication_skip_lookup: bool,

    /// If the lookup fails, serve with the settings of the flags alone
    #[arg(long)]
    pub(super) authentication_tolerate_lookup_failure: bool,

    /// Time to cache token reviews
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) authentication_token_webhook_cache_ttl: GoDuration,

    /// CA bundle that verifies client certificates
    #[arg(long, value_name = "FILE")]
    pub(super) client_ca_file: Option<PathBuf>,

    /// CA bundle that verifies the client certificate of the front proxy
    #[arg(long, value_name = "FILE")]
    pub(super) requestheader_client_ca_file: Option<PathBuf>,

    /// Allowed common names of the front proxy; empty allows any certificate of its CA
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) requestheader_allowed_names: Vec<String>,

    /// Request headers with the user name
    #[arg(
        long,
        value_name = "HEADER",
        value_delimiter = ',',
        default_value = "x-remote-user"
    )]
    pub(super) requestheader_username_headers: Vec<String>,

    /// Request headers with the user UID
    #[arg(long, value_name = "HEADER", value_delimiter = ',')]
    pub(super) requestheader_uid_headers: Vec<String>,

    /// Request headers with the user's groups
    #[arg(
        long,
        value_name = "HEADER",
        value_delimiter = ',',
        default_value = "x-remote-group"
    )]
    pub(super) requestheader_group_headers: Vec<String>,

    /// Prefixes of request headers with extra attributes of the user
    #[arg(
        long,
        value_name = "PREFIX",
        value_delimiter = ',',
        default_value = "x-remote-extra-"
    )]
    pub(super) requestheader_extra_headers_prefix: Vec<String>,
}

/// Flags of authorization.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authorization")]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are the names of the flags"
)]
pub(super) struct AuthorizationFlags {
    /// Kubeconfig for access reviews [default: --kubeconfig, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub(super) authorization_kubeconfig: Option<PathBuf>,

    /// Paths that are served without authorization
    #[arg(
        long,
        value_name = "PATH",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    pub(super) authorization_always_allow_paths: Vec<String>,

    /// Time to cache access reviews that allow a request
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) authorization_webhook_cache_authorized_ttl: GoDuration,

    /// Time to cache access reviews that deny a request
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(super) authorization_webhook_cache_unauthorized_ttl: GoDuration,
}

/// Boolean flags, which manifests also set as `--flag=false`.
fn go_bools(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "kubelet_allow_http"
        | "kubelet_insecure_tls"
        | "kubelet_use_node_status_port"
        | "kubelet_pin_certificates"
        | "kubelet_use_proxy"
        | "deprecated_kubelet_completely_insecure"
        | "disable_http2_serving"
        | "manage_apiservices"
        | "authentication_skip_lookup"
        | "authentication_tolerate_lookup_failure" => go_bool(arg),
        _ => arg,
    }
}

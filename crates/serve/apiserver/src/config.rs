//! The configuration of a server, which is complete before a socket is opened.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_telemetry::{Health, LogHandle, OutageLog, SharedRegistry};
use kubevitals_tls::{TlsPolicy, TrustRoots};

use crate::certificate::ServingCertificate;
use crate::handler::MIN_WRITE_TIME;
use crate::metrics::ApiServerMetrics;
use crate::resource::ApiGroup;
use crate::reviewer::{AuthenticationSource, Reviewer};

/// The configuration of an API server. The plain struct is the builder: start from
/// [`ServerConfig::new`] and set what differs.
pub struct ServerConfig {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    pub certificate: ServingCertificate,
    /// Versions and cipher suites.
    pub tls: TlsPolicy,
    /// Whether HTTP/2 is offered; clients that do not negotiate it use HTTP/1.1.
    pub http2: bool,
    /// The title of `/openapi` documents, such as `Kubernetes metrics-server`.
    pub title: String,
    /// The response of `/version`.
    pub version: VersionInfo,
    pub groups: Vec<ApiGroup>,
    pub authentication: AuthenticationConfig,
    pub authorization: AuthorizationConfig,
    pub telemetry: ServerTelemetry,
    pub limits: Limits,
    /// Time from the shutdown request to the end of accepting connections, in which readiness fails
    /// and requests are served (`--shutdown-delay-duration`).
    pub shutdown_delay: Duration,
    /// Probability that a request over HTTP/2 closes its connection after the requests in flight,
    /// so that clients spread over replicas (`--goaway-chance`).
    pub goaway_chance: f64,
}

/// The response of `/version`. Empty fields are written, as in Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// Such as `1`.
    pub major: String,
    /// Such as `36`.
    pub minor: String,
    /// Such as `v0.1.0`; also the version of `/openapi` documents.
    pub git_version: String,
    pub git_commit: String,
    /// `clean` or `dirty`.
    pub git_tree_state: String,
    /// RFC 3339.
    pub build_date: String,
    /// The version of the compiler, here of Rust.
    pub go_version: String,
    /// Such as `rustc`.
    pub compiler: String,
    /// Such as `linux/amd64`.
    pub platform: String,
}

/// The configuration of authentication. The order is that of Kubernetes: headers of the front
/// proxy, a client certificate, a bearer token, and else `system:anonymous`.
pub struct AuthenticationConfig {
    /// Reviews bearer tokens; without it every token is rejected.
    pub tokens: Option<Arc<dyn Reviewer>>,
    /// Lifetime of a cached token review.
    pub token_ttl: Duration,
    /// The authority of client certificates (`--client-ca-file`). If `None`,
    /// [`AuthenticationConfig::lookup`] provides it.
    pub client_ca: Option<Arc<TrustRoots>>,
    /// The front proxy (`--requestheader-*`). If `None`, [`AuthenticationConfig::lookup`] finds
    /// out.
    pub front_proxy: Option<FrontProxyConfig>,
    /// Reads what is not set above from the cluster (`--authentication-skip-lookup` is `None`).
    pub lookup: Option<Lookup>,
    /// Whether requests without credentials are `system:anonymous`; otherwise they are rejected.
    pub anonymous: bool,
}

/// The authority and the headers of a front proxy.
#[derive(Debug, Clone)]
pub struct FrontProxyConfig {
    /// The authority of its certificate.
    pub ca: Arc<TrustRoots>,
    /// The headers that identify the user.
    pub headers: RequestHeaders,
}

/// The headers in which a front proxy identifies the user. Names are case-insensitive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaders {
    /// `--requestheader-username-headers`.
    pub username: Vec<String>,
    /// `--requestheader-uid-headers`; none by default, as in Kubernetes.
    pub uid: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_prefix: Vec<String>,
    /// Common names that the certificate may have (`--requestheader-allowed-names`); empty allows
    /// any.
    pub allowed_names: Vec<String>,
}

/// Reads client CA and front proxy from the ConfigMap
/// `kube-system/extension-apiserver-authentication`, periodically.
///
/// It needs `get` on that one ConfigMap, which the Role `extension-apiserver-authentication-reader`
/// grants.
pub struct Lookup {
    pub source: Arc<dyn AuthenticationSource>,
    /// Interval of reads. Failures are retried sooner, and keep the previous configuration.
    pub interval: Duration,
    /// Whether to serve without it (`--authentication-tolerate-lookup-failure`): all requests
    /// without a token are anonymous then. Otherwise requests that are not authenticated otherwise
    /// fail with 503 until the first success.
    pub tolerate_failure: bool,
}

/// The configuration of authorization.
pub struct AuthorizationConfig {
    /// Reviews access.
    pub access: Arc<dyn Reviewer>,
    /// Lifetime of a cached decision that allows.
    pub allowed_ttl: Duration,
    /// Lifetime of a cached decision that denies.
    pub denied_ttl: Duration,
    /// Paths that need no authorization; a trailing `*` matches any suffix.
    pub always_allow_paths: Vec<String>,
    /// Groups that need no authorization.
    pub always_allow_groups: Vec<String>,
}

/// Health, metrics and logs of a server.
pub struct ServerTelemetry {
    /// The checks behind `/livez`, `/readyz` and `/healthz`.
    pub health: Health,
    /// The metrics behind `/metrics`.
    pub registry: SharedRegistry,
    /// Metrics of the server itself, registered in `registry`.
    pub metrics: ApiServerMetrics,
    /// The filter behind `/debug/flags/v`; without it the route is not found.
    pub logs: Option<LogHandle>,
    /// Whether `/debug/pprof/` is served; needs the feature `pprof`.
    pub profiling: bool,
    /// The log of outages of the API server that reviews and lookups are sent to.
    pub outage: OutageLog,
}

/// Limits of an API server. Zero connections, streams or requests mean one.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Limits of connections. `response_timeout` is derived from `request_timeout`.
    pub http: kubevitals_http::Limits,
    /// Timeout of a request other than a watch, its response included (`--request-timeout`).
    pub request_timeout: Duration,
    /// Minimum duration of a watch without `timeoutSeconds` (`--min-request-timeout`); the maximum
    /// is twice that.
    pub min_watch_timeout: Duration,
    /// Maximum number of requests in flight, watches aside (`--max-requests-inflight`).
    pub in_flight: usize,
    /// Maximum number of watches.
    pub watches: usize,
    /// Maximum size of JSON that is converted to YAML.
    pub yaml_bytes: usize,
}

impl ServerConfig {
    /// A server without groups, with default limits, HTTP/2 and default TLS.
    pub fn new(
        address: SocketAddr,
        certificate: ServingCertificate,
        authentication: AuthenticationConfig,
        authorization: AuthorizationConfig,
        telemetry: ServerTelemetry,
    ) -> Self {
        Self {
            address,
            certificate,
            tls: TlsPolicy::default(),
            http2: true,
            title: String::from("Kubernetes API"),
            version: VersionInfo::default(),
            groups: Vec::new(),
            authentication,
            authorization,
            telemetry,
            limits: Limits::default(),
            shutdown_delay: Duration::ZERO,
            goaway_chance: 0.0,
        }
    }
}

impl AuthenticationConfig {
    /// Delegates everything to one reviewer.
    pub fn delegated<R: Reviewer + AuthenticationSource>(reviewer: &Arc<R>) -> Self {
        let tokens: Arc<dyn Reviewer> = Arc::<R>::clone(reviewer);
        let source: Arc<dyn AuthenticationSource> = Arc::<R>::clone(reviewer);
        Self {
            tokens: Some(tokens),
            token_ttl: Duration::from_secs(10),
            client_ca: None,
            front_proxy: None,
            lookup: Some(Lookup::new(source)),
            anonymous: true,
        }
    }
}

impl Lookup {
    /// Reads every ten seconds, and does not serve without.
    pub fn new(source: Arc<dyn AuthenticationSource>) -> Self {
        Self {
            source,
            interval: Duration::from_secs(10),
            tolerate_failure: false,
        }
    }
}

impl AuthorizationConfig {
    /// The defaults of Kubernetes: ten seconds, health without authorization, everything for
    /// `system:masters`.
    pub fn delegated(access: Arc<dyn Reviewer>) -> Self {
        Self {
            access,
            allowed_ttl: Duration::from_secs(10),
            denied_ttl: Duration::from_secs(10),
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).into(),
            always_allow_groups: vec![String::from("system:masters")],
        }
    }
}

impl Default for RequestHeaders {
    fn default() -> Self {
        Self {
            username: vec![String::from("x-remote-user")],
            uid: Vec::new(),
            group: vec![String::from("x-remote-group")],
            extra_prefix: vec![String::from("x-remote-extra-")],
            allowed_names: Vec::new(),
        }
    }
}

impl Limits {
    pub(crate) fn http(&self) -> kubevitals_http::Limits {
        kubevitals_http::Limits {
            response_timeout: self.request_timeout + MIN_WRITE_TIME,
            ..self.http
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            http: kubevitals_http::Limits::default(),
            request_timeout: Duration::from_mins(1),
            min_watch_timeout: Duration::from_mins(30),
            in_flight: 400,
            watches: 1000,
            yaml_bytes: 4 * 1024 * 1024,
        }
    }
}

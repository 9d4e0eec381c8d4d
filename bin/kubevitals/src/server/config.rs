//! The validated settings of the role.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use kubevitals_apiserver::RequestHeaders;
use kubevitals_cli::InvalidSetting;
use kubevitals_model::{GoDuration, LabelSelector, ModelError, Quantity};
use kubevitals_scrape::{AddressType, ConfigError, NodeFilter, ScrapeConfig};
use kubevitals_tls::{CipherSuites, KeyExchangeGroups, MinTlsVersion, TlsError, TlsPolicy};
use kubevitals_usage::{ExtraResources, UsageConfig};

use super::flags::{
    AuthenticationFlags, AuthorizationFlags, KubeletFlags, MetricsFlags, ServerFlags, ServingFlags,
};
use super::kubelet_token::TokenSource;

/// Endpoints and kube-proxy follow a pod that terminates within two seconds.
const DEFAULT_SHUTDOWN_DELAY: Duration = Duration::from_secs(5);

/// The maximum of kube-apiserver.
const MAX_GOAWAY_CHANCE: f64 = 0.02;

/// All settings of the role.
pub(super) struct Settings {
    pub(super) usage: UsageConfig,
    pub(super) kubeconfig: Option<PathBuf>,
    /// Label selector of the watch of nodes; `None` for all nodes.
    pub(super) node_selector: Option<String>,
    /// The nodes that are watched and not scraped.
    pub(super) node_filter: NodeFilter,
    pub(super) kubelet: KubeletFlags,
    pub(super) kubelet_token: TokenSource,
    pub(super) address_types: Vec<AddressType>,
    pub(super) kubelet_timeout: Duration,
    /// Whether kubelets may compress responses.
    pub(super) compression: bool,
    /// The memory of all responses of kubelets, in bytes.
    pub(super) scrape_memory: usize,
    pub(super) serving: Serving,
    pub(super) authentication: Authentication,
    pub(super) authorization: Authorization,
}

/// Settings of the HTTPS server.
pub(super) struct Serving {
    pub(super) address: SocketAddr,
    pub(super) certificate: Certificate,
    pub(super) tls: TlsPolicy,
    pub(super) http2: bool,
    /// Limit of concurrent requests on one HTTP/2 connection, if the flag sets one.
    pub(super) streams: Option<NonZeroU32>,
    pub(super) in_flight: usize,
    pub(super) request_timeout: Duration,
    pub(super) shutdown_delay: Duration,
    pub(super) goaway_chance: f64,
    pub(super) manage_apiservices: bool,
}

/// The source of the serving certificate.
pub(super) enum Certificate {
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    /// Generated for a Service, and kept in a folder.
    SelfSigned {
        namespace: String,
        service: String,
        folder: PathBuf,
    },
}

/// Settings of authentication.
pub(super) struct Authentication {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) skip_lookup: bool,
    pub(super) tolerate_lookup_failure: bool,
    pub(super) token_ttl: Duration,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) front_proxy_ca: Option<PathBuf>,
    pub(super) headers: RequestHeaders,
}

/// Settings of authorization.
pub(super) struct Authorization {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) always_allow_paths: Vec<String>,
    pub(super) allowed_ttl: Duration,
    pub(super) denied_ttl: Duration,
}

impl Settings {
    pub(super) fn new(flags: &ServerFlags) -> Result<Self, InvalidSetting> {
        flags.compat.validate()?;
        let (resolution, kubelet_timeout) = timing(flags)?;
        let usage = usage(&flags.metrics, resolution)?;
        reject_contradictions(&flags.kubelet)?;
        Ok(Self {
            usage,
            kubeconfig: flags.metrics.kubeconfig.clone(),
            node_selector: node_selector(&flags.metrics)?,
            node_filter: node_filter(&flags.metrics)?,
            address_types: address_types(&flags.kubelet)?,
            kubelet: flags.kubelet.clone(),
            kubelet_token: TokenSource::new(&flags.kubelet)?,
            kubelet_timeout,
            compression: compression(&flags.kubelet)?,
            scrape_memory: scrape_memory(&flags.kubelet)?,
            serving: Serving::new(&flags.serving, flags.process.shutdown_grace_period)?,
            authentication: Authentication::new(&flags.authentication)?,
            authorization: Authorization::new(&flags.authorization)?,
        })
    }
}

fn usage(flags: &MetricsFlags, resolution: Duration) -> Result<UsageConfig, InvalidSetting> {
    let mut usage = UsageConfig::new(resolution);
    if let Some(staleness) = flags.staleness {
        usage.staleness = positive("staleness", staleness)?;
        if usage.staleness < resolution {
            return Err(InvalidSetting {
                flag: "staleness",
                value: staleness.to_string(),
                problem: "usage would expire before the next scrape".to_owned(),
                advice: format!("write {} or more", GoDuration::saturating_from(resolution)),
            });
        }
    }
    let mut extra = ExtraResources::default();
    for resource in &flags.extra_resources {
        match resource.as_str() {
            "ephemeral-storage" => extra.ephemeral_storage = true,
            _ => {
                return Err(InvalidSetting {
                    flag: "extra-resources",
                    value: resource.clone(),
                    problem: "kubelets do not measure it".to_owned(),
                    advice: "write ephemeral-storage; cpu, memory and swap are always served"
                        .to_owned(),
                });
            }
        }
    }
    usage.extra = extra;
    Ok(usage)
}

/// The resolution and the timeout of a scrape, by the rules of the scraper.
fn timing(flags: &ServerFlags) -> Result<(Duration, Duration), InvalidSetting> {
    // What is negative is too short as well.
    let duration = |given: GoDuration| Duration::try_from(given).unwrap_or_default();
    let given = flags.kubelet.kubelet_request_timeout;
    let resolution = duration(flags.metrics.metric_resolution);
    let timeout = given.map_or_else(|| ScrapeConfig::default_timeout(resolution), duration);
    match ScrapeConfig::validate_timing(resolution, timeout) {
        Ok(()) => Ok((resolution, timeout)),
        Err(error) => Err(invalid_timing(&error, flags, timeout)),
    }
}

fn compression(flags: &KubeletFlags) -> Result<bool, InvalidSetting> {
    match flags.kubelet_compression.as_str() {
        "gzip" => Ok(true),
        "none" => Ok(false),
        other => Err(InvalidSetting {
            flag: "kubelet-compression",
            value: other.to_owned(),
            problem: "unknown encoding".to_owned(),
            advice: "write gzip or none".to_owned(),
        }),
    }
}

fn scrape_memory(flags: &KubeletFlags) -> Result<usize, InvalidSetting> {
    let invalid = |problem: String| InvalidSetting {
        flag: "scrape-memory-limit",
        value: flags.scrape_memory_limit.clone(),
        problem,
        advice: "write 64Mi or more".to_owned(),
    };
    let limit: Quantity = flags
        .scrape_memory_limit
        .parse()
        .map_err(|error: ModelError| invalid(error.to_string()))?;
    let limit = limit.value().and_then(|limit| usize::try_from(limit).ok());
    limit
        .filter(|limit| *limit >= ScrapeConfig::MIN_MEMORY_LIMIT)
        .ok_or_else(|| invalid("too little for the responses that are read at once".to_owned()))
}

fn invalid_timing(error: &ConfigError, flags: &ServerFlags, timeout: Duration) -> InvalidSetting {
    let resolution = flags.metrics.metric_resolution;
    let timeout = flags
        .kubelet
        .kubelet_request_timeout
        .unwrap_or_else(|| GoDuration::saturating_from(timeout));
    match error {
        ConfigError::ResolutionTooShort { min, .. } => InvalidSetting {
            flag: "metric-resolution",
            value: resolution.to_string(),
            problem: "too short for kubelets".to_owned(),
            advice: format!(
                "write {} or more; below 10s little is gained, since kubelets sample every 10s to 15s",
                GoDuration::saturating_from(*min)
            ),
        },
        ConfigError::TimeoutTooLong { max, .. } => InvalidSetting {
            flag: "kubelet-request-timeout",
            value: timeout.to_string(),
            problem: "a request could take longer than the resolution".to_owned(),
            advice: format!(
                "write {} or less, or raise --metric-resolution",
                GoDuration::saturating_from(*max)
            ),
        },
        _ => InvalidSetting {
            flag: "kubelet-request-timeout",
            value: timeout.to_string(),
            problem: error.to_string(),
            advice: "write a duration such as 10s".to_owned(),
        },
    }
}

fn reject_contradictions(flags: &KubeletFlags) -> Result<(), InvalidSetting> {
    let contradicts = |flag, other: &str| InvalidSetting {
        flag,
        value: "true".to_owned(),
        problem: format!("it contradicts --{other}"),
        advice: "leave one of them out".to_owned(),
    };
    let insecure = flags.kubelet_insecure_tls;
    let plain = flags.deprecated_kubelet_completely_insecure;
    if insecure && !flags.kubelet_certificate_authority.is_empty() {
        return Err(contradicts(
            "kubelet-insecure-tls",
            "kubelet-certificate-authority",
        ));
    }
    if insecure && flags.kubelet_pin_certificates {
        return Err(contradicts(
            "kubelet-insecure-tls",
            "kubelet-pin-certificates",
        ));
    }
    let plain_and = [
        (insecure, "kubelet-insecure-tls"),
        (
            !flags.kubelet_certificate_authority.is_empty(),
            "kubelet-certificate-authority",
        ),
        (
            flags.kubelet_client_certificate.is_some(),
            "kubelet-client-certificate",
        ),
        (flags.kubelet_pin_certificates, "kubelet-pin-certificates"),
    ];
    match plain_and.into_iter().find(|(set, _)| plain && *set) {
        Some((_, other)) => Err(contradicts("deprecated-kubelet-completely-insecure", other)),
        None => Ok(()),
    }
}

fn node_selector(flags: &MetricsFlags) -> Result<Option<String>, InvalidSetting> {
    let text = &flags.node_selector;
    let parsed = selector("node-selector", text, "kubernetes.io/os=linux,!virtual")?;
    Ok(parsed.map(|_| text.clone()))
}

fn node_filter(flags: &MetricsFlags) -> Result<NodeFilter, InvalidSetting> {
    let example = "eks.amazonaws.com/compute-type=fargate";
    let text = &flags.exclude_node_selector;
    if let Some(taint) = flags.exclude_node_taints.iter().find(|key| !is_taint(key)) {
        return Err(InvalidSetting {
            flag: "exclude-node-taints",
            value: taint.clone(),
            problem: "not the key of a taint".to_owned(),
            advice: "write keys without value and effect, such as virtual-kubelet.io/provider"
                .to_owned(),
        });
    }
    Ok(NodeFilter {
        taints: flags.exclude_node_taints.clone(),
        selector: selector("exclude-node-selector", text, example)?,
    })
}

/// Whether a text can be the key of a taint. One with a value or an effect would match nothing.
fn is_taint(key: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    !key.is_empty() && key.bytes().all(is_allowed)
}

/// Parses a label selector; `None` if it is empty.
fn selector(
    flag: &'static str,
    text: &str,
    example: &str,
) -> Result<Option<LabelSelector>, InvalidSetting> {
    let parsed = LabelSelector::parse(text).map_err(|error| InvalidSetting {
        flag,
        value: text.to_owned(),
        problem: error.to_string(),
        advice: format!("write labels as for kubectl get -l, such as {example}"),
    })?;
    Ok((!parsed.is_empty()).then_some(parsed))
}

fn address_types(flags: &KubeletFlags) -> Result<Vec<AddressType>, InvalidSetting> {
    let types = flags.kubelet_preferred_address_types.iter();
    types
        .map(|text| {
            text.parse().map_err(|error| InvalidSetting {
                flag: "kubelet-preferred-address-types",
                value: text.clone(),
                problem: format!("{error}"),
                advice: "write some of Hostname, InternalDNS, InternalIP, ExternalDNS, ExternalIP"
                    .to_owned(),
            })
        })
        .collect()
}

impl Serving {
    fn new(flags: &ServingFlags, grace: GoDuration) -> Result<Self, InvalidSetting> {
        let certificate = match (&flags.tls_cert_file, &flags.tls_private_key_file) {
            (Some(certificate), Some(key)) => Certificate::Files {
                certificate: certificate.clone(),
                key: key.clone(),
            },
            _ => self_signed(flags)?,
        };
        if flags.manage_apiservices && matches!(certificate, Certificate::Files { .. }) {
            return Err(InvalidSetting {
                flag: "manage-apiservices",
                value: "true".to_owned(),
                problem: "the CA of a certificate from files is not known".to_owned(),
                advice: "leave out --tls-cert-file, or write the caBundle yourself".to_owned(),
            });
        }
        Ok(Self {
            address: SocketAddr::new(flags.bind_address, flags.secure_port),
            certificate,
            tls: tls_policy(flags)?,
            http2: !flags.disable_http2_serving,
            streams: NonZeroU32::new(flags.http2_max_streams_per_connection),
            in_flight: flags.max_requests_inflight,
            request_timeout: positive("request-timeout", flags.request_timeout)?,
            shutdown_delay: shutdown_delay(flags, grace)?,
            goaway_chance: goaway_chance(flags.goaway_chance)?,
            manage_apiservices: flags.manage_apiservices,
        })
    }
}

/// The delay is part of the grace period and leaves time to drain.
fn shutdown_delay(flags: &ServingFlags, grace: GoDuration) -> Result<Duration, InvalidSetting> {
    // A negative grace period is rejected with the other settings of the process.
    let grace_period = Duration::try_from(grace).unwrap_or_default();
    let Some(delay) = flags.shutdown_delay_duration else {
        return Ok(DEFAULT_SHUTDOWN_DELAY.min(grace_period / 2));
    };
    let invalid = |problem: String, advice: String| InvalidSetting {
        flag: "shutdown-delay-duration",
        value: delay.to_string(),
        problem,
        advice,
    };
    let Ok(duration) = Duration::try_from(delay) else {
        return Err(invalid(
            "must not be negative".to_owned(),
            "write a duration such as 5s, or 0s to close the port at once".to_owned(),
        ));
    };
    if !duration.is_zero() && duration >= grace_period {
        return Err(invalid(
            format!("it is part of --shutdown-grace-period, which is {grace}"),
            "write a shorter duration, or raise --shutdown-grace-period (and the \
             terminationGracePeriodSeconds of the pod)"
                .to_owned(),
        ));
    }
    Ok(duration)
}

fn goaway_chance(chance: f64) -> Result<f64, InvalidSetting> {
    if (0.0..=MAX_GOAWAY_CHANCE).contains(&chance) {
        return Ok(chance);
    }
    Err(InvalidSetting {
        flag: "goaway-chance",
        value: chance.to_string(),
        problem: "not a probability that clients can work with".to_owned(),
        advice: format!("write a number from 0 to {MAX_GOAWAY_CHANCE}, such as 0.001"),
    })
}

fn self_signed(flags: &ServingFlags) -> Result<Certificate, InvalidSetting> {
    let invalid = || InvalidSetting {
        flag: "apiservice-backend",
        value: flags.apiservice_backend.clone(),
        problem: "not the name of a Service".to_owned(),
        advice: "write NAMESPACE/NAME, such as kube-system/metrics-server".to_owned(),
    };
    let (namespace, service) = flags
        .apiservice_backend
        .split_once('/')
        .ok_or_else(invalid)?;
    if !is_dns_label(namespace) || !is_dns_label(service) {
        return Err(invalid());
    }
    Ok(Certificate::SelfSigned {
        namespace: namespace.to_owned(),
        service: service.to_owned(),
        folder: flags.cert_dir.clone(),
    })
}

fn is_dns_label(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(good)
}

fn tls_policy(flags: &ServingFlags) -> Result<TlsPolicy, InvalidSetting> {
    let version = match &flags.tls_min_version {
        None => MinTlsVersion::default(),
        Some(text) => text.parse().map_err(|error: TlsError| InvalidSetting {
            flag: "tls-min-version",
            value: text.clone(),
            problem: error.to_string(),
            advice: "write VersionTLS12 or VersionTLS13".to_owned(),
        })?,
    };
    let suites: Option<CipherSuites> = list(
        "tls-cipher-suites",
        &flags.tls_cipher_suites,
        "write names such as TLS_AES_128_GCM_SHA256, or leave the flag out",
    )?;
    let groups: Option<KeyExchangeGroups> = list(
        "tls-curve-preferences",
        &flags.tls_curve_preferences,
        "write numbers such as 29 for X25519 and 23 for P-256, or leave the flag out",
    )?;
    Ok(TlsPolicy::new(version, suites).with_key_exchange(groups))
}

/// Parses a list of names; `None` for an empty one.
fn list<T: FromStr<Err = TlsError>>(
    flag: &'static str,
    values: &[String],
    advice: &str,
) -> Result<Option<T>, InvalidSetting> {
    let values = values.join(",");
    if values.is_empty() {
        return Ok(None);
    }
    values
        .parse()
        .map(Some)
        .map_err(|error: TlsError| InvalidSetting {
            flag,
            value: values,
            problem: error.to_string(),
            advice: advice.to_owned(),
        })
}

impl Authentication {
    fn new(flags: &AuthenticationFlags) -> Result<Self, InvalidSetting> {
        Ok(Self {
            kubeconfig: flags.authentication_kubeconfig.clone(),
            skip_lookup: flags.authentication_skip_lookup,
            tolerate_lookup_failure: flags.authentication_tolerate_lookup_failure,
            token_ttl: positive(
                "authentication-token-webhook-cache-ttl",
                flags.authentication_token_webhook_cache_ttl,
            )?,
            client_ca: flags.client_ca_file.clone(),
            front_proxy_ca: flags.requestheader_client_ca_file.clone(),
            headers: RequestHeaders {
                username: flags.requestheader_username_headers.clone(),
                uid: flags.requestheader_uid_headers.clone(),
                group: flags.requestheader_group_headers.clone(),
                extra_prefix: flags.requestheader_extra_headers_prefix.clone(),
                allowed_names: flags.requestheader_allowed_names.clone(),
            },
        })
    }
}

impl Authorization {
    fn new(flags: &AuthorizationFlags) -> Result<Self, InvalidSetting> {
        Ok(Self {
            kubeconfig: flags.authorization_kubeconfig.clone(),
            always_allow_paths: flags.authorization_always_allow_paths.clone(),
            allowed_ttl: positive(
                "authorization-webhook-cache-authorized-ttl",
                flags.authorization_webhook_cache_authorized_ttl,
            )?,
            denied_ttl: positive(
                "authorization-webhook-cache-unauthorized-ttl",
                flags.authorization_webhook_cache_unauthorized_ttl,
            )?,
        })
    }
}

fn positive(flag: &'static str, duration: GoDuration) -> Result<Duration, InvalidSetting> {
    Duration::try_from(duration)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| InvalidSetting {
            flag,
            value: duration.to_string(),
            problem: "must be greater than zero".to_owned(),
            advice: "write a duration such as 15s".to_owned(),
        })
}

#[cfg(test)]
mod tests;

//! The configuration of scraping.

use std::path::PathBuf;
use std::time::Duration;

use kubevitals_model::Clock;
use kubevitals_tls::ClientTls;
use thiserror::Error;

use crate::address::AddressType;
use crate::credentials::Credentials;
use crate::filter::NodeFilter;
use crate::memory;
use crate::proxy::KubeletProxy;

/// The annotation of a node with the path of its metrics. Watches of nodes must keep it
/// ([`WatchSpec::keep_annotations`](kubevitals_watch::WatchSpec::keep_annotations)).
pub const RESOURCE_METRICS_PATH: &str = "metrics.k8s.io/resource-metrics-path";

/// The annotation, or label, of a node that excludes it from scraping (`false`), or includes it
/// although it matches [`NodeFilter`] (`true`).
pub const SCRAPE: &str = "kubevitals.io/scrape";
/// The annotation of a node with the port of its kubelet.
pub const PORT: &str = "kubevitals.io/port";
/// The annotation of a node with the scheme of its kubelet, `https` or `http`.
pub const SCHEME: &str = "kubevitals.io/scheme";
/// The annotation of a node with the interval at which it is scraped.
pub const RESOLUTION: &str = "kubevitals.io/resolution";

/// All annotations that scraping reads. Watches of nodes must keep them.
pub const ANNOTATIONS: [&str; 5] = [RESOURCE_METRICS_PATH, SCRAPE, PORT, SCHEME, RESOLUTION];

/// Kubelets sample every 10 to 15 s; with a shorter resolution they would do little but respond.
pub(crate) const MIN_RESOLUTION: Duration = Duration::from_secs(1);
/// Default timeout of a scrape, unless the resolution is too short for it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum timeout as a part of the resolution. Longer requests would delay the next scrape.
const MAX_TIMEOUT: f64 = 0.9;

/// The configuration of scraping. [`ScrapeConfig::new`] has the defaults of metrics-server's
/// manifests.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent settings, named where they are set"
)]
pub struct ScrapeConfig {
    /// The interval at which each node is scraped.
    pub resolution: Duration,
    /// The longest interval that [`RESOLUTION`] can set: with a longer one, values would become
    /// stale between two scrapes.
    pub max_resolution: Duration,
    /// The timeout of one scrape: name resolution, connections, TLS, head and body, over all
    /// addresses that are tried.
    pub timeout: Duration,
    /// The types of addresses that are dialled, most preferred first.
    pub address_types: Vec<AddressType>,
    /// The port of kubelets.
    pub port: u16,
    /// Whether a port in the node's status takes precedence over `port`.
    pub use_node_status_port: bool,
    pub transport: Transport,
    /// The proxy that kubelets are reached through; `None` to dial them directly.
    pub proxy: Option<KubeletProxy>,
    /// The credentials sent to kubelets, besides a client certificate in the transport.
    pub credentials: Credentials,
    /// Whether [`SCHEME`] can be `http`. Nodes write their own annotations and addresses: with this
    /// one, a node chooses any endpoint in the network that receives plain GET requests.
    pub allow_http: bool,
    /// The nodes that are not scraped.
    pub filter: NodeFilter,
    /// Whether the bearer token is also sent to kubelets whose identity is not verified.
    pub token_to_unverified: bool,
    /// Whether a kubelet with a certificate of an unknown authority is trusted on first use, and
    /// held to its key from then on.
    pub pin_keys: bool,
    /// Maximum length of a body. The node with the most pods that Kubernetes supports (a few
    /// hundred) sends about 300 KiB, or 3 MiB as `/stats/summary`; five times that is an error or
    /// an attack. A low `memory_limit` reduces it.
    pub max_body_bytes: usize,
    /// Maximum memory that all responses take together while they are read and decoded.
    pub memory_limit: usize,
    /// Maximum number of open connections. If there are more nodes, some connect for each scrape,
    /// in turns.
    pub max_connections: usize,
    /// Whether kubelets may compress responses.
    pub compression: bool,
    /// Maximum number of containers of one node. Further ones are counted and ignored.
    pub max_containers: usize,
    /// Maximum number of in-flight scrapes, including those of nodes that do not respond. Memory is
    /// allocated only once a response begins.
    pub concurrency: usize,
    /// Whether a node's first scrape also reads `/stats/summary`, so that CPU usage is available at
    /// once. It needs `nodes/stats`; where that is refused only the head start is lost.
    pub warm_start: bool,
    /// Whether every scrape also reads `/stats/summary` for ephemeral storage.
    pub ephemeral_storage: bool,
    /// The clock for samples without a timestamp.
    pub clock: Clock,
}

/// The protocol that kubelets are scraped by.
#[derive(Debug, Clone)]
pub enum Transport {
    /// TLS. Certificates may be for any name or address of the node.
    Tls(ClientTls),
    /// Plain HTTP without credentials, for `--deprecated-kubelet-completely-insecure`.
    InsecureHttp,
}

/// A setting that cannot work.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("resolution {resolution:?} is too short: it must be at least {min:?}")]
    ResolutionTooShort { resolution: Duration, min: Duration },
    #[error("request timeout must be greater than zero")]
    ZeroTimeout,
    /// Requests that may take longer than the resolution would delay the next scrape.
    #[error(
        "request timeout {timeout:?} is too long: with this resolution it must be at most {max:?}"
    )]
    TimeoutTooLong { timeout: Duration, max: Duration },
    #[error("no address type is configured: set at least one, such as InternalIP")]
    NoAddressTypes,
    #[error("memory limit of {limit} bytes is too low: it must be at least {min}")]
    MemoryLimitTooLow { limit: usize, min: usize },
    #[error("{limit} must be greater than zero")]
    ZeroLimit { limit: &'static str },
    #[error(
        "unknown address type {given:?}: use Hostname, InternalDNS, InternalIP, ExternalDNS or ExternalIP"
    )]
    UnknownAddressType { given: String },
    /// The token file could not be read at the start.
    #[error("cannot read the bearer token from {}", path.display())]
    TokenFile {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The token would break the request that carries it.
    #[error(
        "the bearer token from {origin} is empty or contains characters that are invalid in a header"
    )]
    InvalidToken { origin: String },
}

impl ScrapeConfig {
    /// The default of [`ScrapeConfig::memory_limit`].
    pub const DEFAULT_MEMORY_LIMIT: usize = 128 << 20;
    /// The minimum of [`ScrapeConfig::memory_limit`].
    pub const MIN_MEMORY_LIMIT: usize = memory::MIN_LIMIT;

    /// Returns the defaults of metrics-server's manifests, with the port in the node's status.
    pub fn new(transport: Transport, credentials: Credentials) -> Self {
        Self {
            resolution: Duration::from_secs(15),
            max_resolution: Duration::from_secs(22),
            timeout: DEFAULT_TIMEOUT,
            address_types: vec![
                AddressType::InternalIp,
                AddressType::ExternalIp,
                AddressType::Hostname,
            ],
            port: 10_250,
            use_node_status_port: true,
            transport,
            proxy: None,
            credentials,
            allow_http: false,
            filter: NodeFilter::default(),
            token_to_unverified: false,
            pin_keys: false,
            max_body_bytes: 16 << 20,
            memory_limit: Self::DEFAULT_MEMORY_LIMIT,
            max_connections: usize::MAX,
            compression: true,
            max_containers: 10_000,
            concurrency: 1_024,
            warm_start: true,
            ephemeral_storage: false,
            clock: Clock::system(),
        }
    }

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Self::validate_timing(self.resolution, self.timeout)?;
        if self.address_types.is_empty() {
            return Err(ConfigError::NoAddressTypes);
        }
        let limits = [
            (self.max_body_bytes, "max_body_bytes"),
            (self.max_containers, "max_containers"),
            (self.concurrency, "concurrency"),
            (self.max_connections, "max_connections"),
        ];
        if self.memory_limit < Self::MIN_MEMORY_LIMIT {
            return Err(ConfigError::MemoryLimitTooLow {
                limit: self.memory_limit,
                min: Self::MIN_MEMORY_LIMIT,
            });
        }
        match limits.into_iter().find(|(value, _)| *value == 0) {
            Some((_, limit)) => Err(ConfigError::ZeroLimit { limit }),
            None => Ok(()),
        }
    }

    /// The timeout of a scrape where none is configured: as long as the resolution allows, at most
    /// 10 s.
    pub fn default_timeout(resolution: Duration) -> Duration {
        DEFAULT_TIMEOUT.min(Self::max_timeout(resolution))
    }

    /// Returns the longest timeout for a resolution.
    pub(crate) fn max_timeout(resolution: Duration) -> Duration {
        resolution.mul_f64(MAX_TIMEOUT)
    }

    /// Checks a resolution and a timeout, which are known before the rest of a configuration.
    pub fn validate_timing(resolution: Duration, timeout: Duration) -> Result<(), ConfigError> {
        if resolution < MIN_RESOLUTION {
            return Err(ConfigError::ResolutionTooShort {
                resolution,
                min: MIN_RESOLUTION,
            });
        }
        let max = Self::max_timeout(resolution);
        match timeout {
            Duration::ZERO => Err(ConfigError::ZeroTimeout),
            timeout if timeout > max => Err(ConfigError::TimeoutTooLong { timeout, max }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_rejected() {
        let valid = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        assert!(valid.validate().is_ok());
        let invalid: [fn(&mut ScrapeConfig); 8] = [
            |c| c.resolution = Duration::from_millis(900),
            |c| c.timeout = Duration::ZERO,
            |c| c.timeout = Duration::from_secs(14),
            |c| c.address_types.clear(),
            |c| c.concurrency = 0,
            |c| c.max_body_bytes = 0,
            |c| c.max_connections = 0,
            |c| c.memory_limit = 1 << 20,
        ];
        for change in invalid {
            let mut config = valid.clone();
            change(&mut config);
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}

//! How to scrape.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kubevitals_model::{LabelSelector, Timestamp};
use kubevitals_tls::ClientTls;

use crate::address::AddressType;
use crate::credentials::Credentials;
use crate::error::ScrapeError;

/// The annotation by which a node states the path of its metrics: streams of nodes must keep it
/// ([`StreamSpec::keep_annotations`](kubevitals_watch::StreamSpec::keep_annotations)).
pub const RESOURCE_METRICS_PATH: &str = "metrics.k8s.io/resource-metrics-path";

/// Below this the kubelets would do little else.
const MIN_RESOLUTION: Duration = Duration::from_secs(1);

/// How to scrape. [`ScrapeConfig::new`] has the defaults of metrics-server's manifests.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own, named where it is set"
)]
pub struct ScrapeConfig {
    /// How often each node is scraped, about: the kubelet's own samples set the exact moment.
    pub resolution: Duration,
    /// How long one scrape may take in all: names, connections, TLS, head and body, every address
    /// that is tried.
    pub timeout: Duration,
    /// Which addresses are dialled, most preferred first; all are tried in turn.
    pub address_types: Vec<AddressType>,
    /// The port of kubelets.
    pub port: u16,
    /// Whether a port that the node states goes before `port`.
    pub use_node_status_port: bool,
    /// Only nodes with such labels are scraped.
    pub node_selector: LabelSelector,
    /// How kubelets are reached.
    pub transport: Transport,
    /// How we identify ourselves, a client certificate in the transport aside.
    pub credentials: Credentials,
    /// Whether the bearer token is also sent where nobody verified who receives it.
    pub token_to_unverified: bool,
    /// Whether a kubelet that no authority vouches for is trusted at first sight, and held to its
    /// key from then on.
    pub pin_keys: bool,
    /// The longest body that is taken. The node with the most pods that Kubernetes supports (a few
    /// hundred) sends about 300 KiB, or 3 MiB as `/stats/summary`; ten times that is somebody's
    /// mistake or malice.
    pub max_body_bytes: usize,
    /// The most containers of one node that are taken; the rest are counted and left out.
    pub max_containers: usize,
    /// How many scrapes may be under way at once, those included that wait for a node which does
    /// not answer. Memory is taken only once an answer begins.
    pub concurrency: usize,
    /// Whether a node's first scrape also asks `/stats/summary`, so that CPU usage is known at
    /// once. It needs `nodes/stats`; where that is refused nothing is lost but the head start.
    pub warm_start: bool,
    /// Whether every scrape also asks `/stats/summary` for ephemeral storage.
    pub ephemeral_storage: bool,
    /// What time it is, for samples that do not say when they were taken.
    pub clock: WallClock,
}

/// How kubelets are reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// Over TLS. Certificates may be for any name or address of the node.
    Tls(ClientTls),
    /// Over plain HTTP and without credentials, for `--deprecated-kubelet-completely-insecure`.
    InsecureHttp,
}

/// What time it is.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl ScrapeConfig {
    /// What metrics-server's manifests set, with the port that nodes state.
    pub fn new(transport: Transport, credentials: Credentials) -> Self {
        Self {
            resolution: Duration::from_secs(15),
            timeout: Duration::from_secs(10),
            address_types: vec![
                AddressType::InternalIp,
                AddressType::ExternalIp,
                AddressType::Hostname,
            ],
            port: 10_250,
            use_node_status_port: true,
            node_selector: LabelSelector::default(),
            transport,
            credentials,
            token_to_unverified: false,
            pin_keys: false,
            max_body_bytes: 32 << 20,
            max_containers: 10_000,
            concurrency: 1_024,
            warm_start: true,
            ephemeral_storage: false,
            clock: WallClock::system(),
        }
    }

    /// Whether these settings can work together.
    pub fn validate(&self) -> Result<(), ScrapeError> {
        if self.resolution < MIN_RESOLUTION {
            return Err(ScrapeError::ResolutionTooShort {
                given: self.resolution,
                least: MIN_RESOLUTION,
            });
        }
        if self.timeout.is_zero() || self.timeout > self.resolution.mul_f64(0.9) {
            return Err(ScrapeError::TimeoutTooLong {
                timeout: self.timeout,
                resolution: self.resolution,
            });
        }
        if self.address_types.is_empty() {
            return Err(ScrapeError::NoAddressTypes);
        }
        let limits = [
            (self.max_body_bytes, "the longest body"),
            (self.max_containers, "the number of containers"),
            (self.concurrency, "the number of scrapes at once"),
        ];
        match limits.into_iter().find(|(limit, _)| *limit == 0) {
            Some((_, what)) => Err(ScrapeError::ZeroLimit { what }),
            None => Ok(()),
        }
    }
}

impl WallClock {
    /// The system's.
    pub fn system() -> Self {
        Self::new(|| Timestamp::from_system_time(SystemTime::now()))
    }

    /// Another one, for tests.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The present instant.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({})", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let good = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        assert!(good.validate().is_ok());
        let spoiled: [fn(&mut ScrapeConfig); 6] = [
            |c| c.resolution = Duration::from_millis(900),
            |c| c.timeout = Duration::ZERO,
            |c| c.timeout = Duration::from_secs(14),
            |c| c.address_types.clear(),
            |c| c.concurrency = 0,
            |c| c.max_body_bytes = 0,
        ];
        for spoil in spoiled {
            let mut config = good.clone();
            spoil(&mut config);
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}

//! A node as the scraper sees it.
//!
//! Nodes write their own annotations. An invalid one makes the scrapes of its node fail with a
//! message that names it, and affects nothing else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Condition, GoDuration, Node, Uid};
use kubevitals_tls::PeerNames;

use crate::address::Addresses;
use crate::config::{
    MIN_RESOLUTION, PORT, RESOLUTION, RESOURCE_METRICS_PATH, SCHEME, SCRAPE, ScrapeConfig,
    Transport,
};
use crate::error::excerpt;

const DEFAULT_PATH: &str = "/metrics/resource";
const MAX_PATH: usize = 1_024;

/// The endpoint of a kubelet and the names that its certificate may be for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) uid: Uid,
    pub(crate) addresses: Addresses,
    pub(crate) port: u16,
    /// Whether the kubelet is scraped by TLS.
    pub(crate) is_tls: bool,
    pub(crate) path: Arc<str>,
    /// The interval at which the node is scraped.
    pub(crate) resolution: Duration,
    /// The valid names and addresses of the node, if there are any.
    pub(crate) names: Option<PeerNames>,
    pub(crate) is_ready: bool,
    /// An annotation with an invalid value: the node cannot be scraped as it demands.
    pub(crate) invalid: Option<InvalidAnnotation>,
}

/// An annotation of a node with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAnnotation {
    name: &'static str,
    /// The beginning of the value.
    value: String,
    expected: Arc<str>,
}

/// Reads the annotations of a node and keeps the first that is invalid.
struct Annotations<'a> {
    node: &'a Node,
    invalid: Option<InvalidAnnotation>,
}

impl Target {
    pub(crate) fn new(node: &Node, config: &ScrapeConfig) -> Self {
        let addresses = node.addresses.iter().map(|address| &*address.address);
        let status_port = node.kubelet_port.filter(|_| config.use_node_status_port);
        let default_port = status_port.unwrap_or(config.port);
        let default_tls = matches!(config.transport, Transport::Tls(_));
        let mut annotations = Annotations {
            node,
            invalid: None,
        };
        annotations.read(SCRAPE, "true or false", |text| text.parse::<bool>().ok());
        let port = annotations.read(PORT, "a port from 1 to 65535", parse_port);
        let is_tls = annotations.read(SCHEME, schemes(config), |text| match text {
            "https" if default_tls => Some(true),
            "http" if config.allow_http || !default_tls => Some(false),
            _ => None,
        });
        let max = config.max_resolution.max(config.resolution);
        let range = || {
            format!(
                "a duration from {} to {} (half of --staleness), such as 30s",
                GoDuration::saturating_from(MIN_RESOLUTION),
                GoDuration::saturating_from(max)
            )
        };
        let resolution = annotations.read(RESOLUTION, range, |text| {
            let duration = text.parse::<GoDuration>().ok()?;
            let duration = Duration::from_nanos(u64::try_from(duration.as_nanos()).ok()?);
            (MIN_RESOLUTION..=max)
                .contains(&duration)
                .then_some(duration)
        });
        let path = annotations.read(
            RESOURCE_METRICS_PATH,
            "a path, such as /metrics/resource",
            |text| is_path(text).then(|| text.into()),
        );
        Self {
            uid: node.identity.uid.clone(),
            addresses: Addresses::choose(&node.addresses, &config.address_types),
            port: port.unwrap_or(default_port),
            is_tls: is_tls.unwrap_or(default_tls),
            path: path.unwrap_or_else(|| DEFAULT_PATH.into()),
            resolution: resolution.unwrap_or(config.resolution),
            names: PeerNames::new([&*node.identity.name].into_iter().chain(addresses)).ok(),
            is_ready: Condition::find(&node.conditions, "Ready").is_some_and(Condition::is_true),
            invalid: annotations.invalid,
        }
    }

    /// Returns whether connections to the other target can be used for this one.
    pub(crate) fn has_same_endpoint(&self, other: &Self) -> bool {
        self.addresses.have_same_hosts(&other.addresses)
            && self.port == other.port
            && self.is_tls == other.is_tls
            && self.names == other.names
            && self.invalid == other.invalid
    }
}

impl Annotations<'_> {
    /// Returns the value of an annotation, if there is one and it is valid.
    fn read<T>(
        &mut self,
        name: &'static str,
        expected: impl Expected,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.node.meta.annotations.get(name)?;
        let value = parse(text);
        if value.is_none() && self.invalid.is_none() {
            self.invalid = Some(InvalidAnnotation {
                name,
                value: excerpt(text.as_bytes()),
                expected: expected.text(),
            });
        }
        value
    }
}

/// A description of valid values, which is made only if it is needed.
trait Expected {
    fn text(self) -> Arc<str>;
}

impl Expected for &str {
    fn text(self) -> Arc<str> {
        self.into()
    }
}

impl<F: FnOnce() -> String> Expected for F {
    fn text(self) -> Arc<str> {
        self().into()
    }
}

impl fmt::Display for InvalidAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            expected,
        } = self;
        write!(
            f,
            "annotation {name} of the node is {value:?}, expected {expected}"
        )
    }
}

fn schemes(config: &ScrapeConfig) -> &'static str {
    match (&config.transport, config.allow_http) {
        (Transport::Tls(_), true) => "https or http",
        (Transport::Tls(_), false) => "https (http needs --kubelet-allow-http)",
        (Transport::InsecureHttp, _) => {
            "http (https does not go with --deprecated-kubelet-completely-insecure)"
        }
    }
}

/// Digits only: a sign or spaces are a mistake.
fn parse_port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

#[cfg(test)]
impl Target {
    pub(crate) fn unreachable() -> Self {
        Self {
            uid: "".into(),
            addresses: Addresses::default(),
            port: 0,
            is_tls: false,
            path: DEFAULT_PATH.into(),
            resolution: Duration::from_secs(15),
            names: None,
            is_ready: false,
            invalid: None,
        }
    }
}

/// A path must not be able to inject another request.
fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= MAX_PATH
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

#[cfg(test)]
mod tests;

//! What is to be known of a node to scrape it.

use std::sync::Arc;

use kubevitals_model::LabelSelector;
use kubevitals_tls::PeerNames;
use kubevitals_watch::{Condition, Node, Uid};

use crate::address::Addresses;
use crate::config::{RESOURCE_METRICS_PATH, ScrapeConfig};

const DEFAULT_PATH: &str = "/metrics/resource";
/// A longer path than any that means something.
const MAX_PATH: usize = 1_024;

/// Where a kubelet is, and who it may say it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) uid: Uid,
    pub(crate) addresses: Addresses,
    pub(crate) port: u16,
    pub(crate) path: Arc<str>,
    /// The names and addresses that its certificate may be for; `None` if it has none that is
    /// valid.
    pub(crate) names: Option<PeerNames>,
    pub(crate) is_ready: bool,
}

impl Target {
    pub(crate) fn of(node: &Node, config: &ScrapeConfig) -> Self {
        let addresses = node.addresses.iter().map(|address| &*address.address);
        let stated = node.kubelet_port.filter(|_| config.use_node_status_port);
        let annotated = node.details.annotations.get(RESOURCE_METRICS_PATH);
        let path = annotated.filter(|path| is_path(path)).cloned();
        if let (Some(refused), None) = (annotated, &path) {
            let path: String = refused.chars().take(100).collect();
            tracing::warn!(node = %node.identity.name, path, "annotated metrics path cannot be used");
        }
        Self {
            uid: node.identity.uid.clone(),
            addresses: Addresses::choose(&node.addresses, &config.address_types),
            port: stated.unwrap_or(config.port),
            path: path.unwrap_or_else(|| DEFAULT_PATH.into()),
            names: PeerNames::new([&*node.identity.name].into_iter().chain(addresses)).ok(),
            is_ready: Condition::find(&node.conditions, "Ready").is_some_and(Condition::is_true),
        }
    }

    /// Whether connections made for the other are good for this one.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        self.addresses.are_same(&other.addresses)
            && self.port == other.port
            && self.names == other.names
    }
}

#[cfg(test)]
impl Target {
    /// One that cannot be reached.
    pub(crate) fn nowhere() -> Self {
        Self {
            uid: "".into(),
            addresses: Addresses::default(),
            port: 0,
            path: DEFAULT_PATH.into(),
            names: None,
            is_ready: false,
        }
    }
}

/// Whether a node with these labels is wanted.
pub(crate) fn is_selected(node: &Node, selector: &LabelSelector) -> bool {
    selector.matches(|key| node.labels.get(key).map(|value| &**value))
}

/// A node writes its own annotations: what goes into a request must not become another one.
fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= MAX_PATH
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_smuggle_a_request() {
        assert!(is_path("/metrics/nodes/a/metrics/resource?x=y"));
        for bad in ["", "metrics", "/a b", "/a\r\nHost: b", "/ä", "/a#b"] {
            assert!(!is_path(bad), "{bad:?}");
        }
        assert!(!is_path(&format!("/{}", "a".repeat(2_000))));
    }
}

//! A node as the scraper sees it.

use std::sync::Arc;

use kubevitals_model::{Condition, Node, Uid};
use kubevitals_tls::PeerNames;

use crate::address::Addresses;
use crate::config::{RESOURCE_METRICS_PATH, ScrapeConfig};

const DEFAULT_PATH: &str = "/metrics/resource";
const MAX_PATH: usize = 1_024;

/// The endpoint of a kubelet and the names that its certificate may be for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) uid: Uid,
    pub(crate) addresses: Addresses,
    pub(crate) port: u16,
    pub(crate) path: Arc<str>,
    /// The valid names and addresses of the node, if there are any.
    pub(crate) names: Option<PeerNames>,
    pub(crate) is_ready: bool,
}

impl Target {
    pub(crate) fn new(node: &Node, config: &ScrapeConfig) -> Self {
        let addresses = node.addresses.iter().map(|address| &*address.address);
        let status_port = node.kubelet_port.filter(|_| config.use_node_status_port);
        let annotated = node.meta.annotations.get(RESOURCE_METRICS_PATH);
        let path = annotated.filter(|path| is_path(path)).cloned();
        if let (Some(invalid), None) = (annotated, &path) {
            let path: String = invalid.chars().take(100).collect();
            tracing::warn!(node = %node.identity.name, path, "ignoring invalid metrics path in annotation");
        }
        Self {
            uid: node.identity.uid.clone(),
            addresses: Addresses::choose(&node.addresses, &config.address_types),
            port: status_port.unwrap_or(config.port),
            path: path.unwrap_or_else(|| DEFAULT_PATH.into()),
            names: PeerNames::new([&*node.identity.name].into_iter().chain(addresses)).ok(),
            is_ready: Condition::find(&node.conditions, "Ready").is_some_and(Condition::is_true),
        }
    }

    /// Returns whether connections to the other target can be used for this one.
    pub(crate) fn has_same_endpoint(&self, other: &Self) -> bool {
        self.addresses.have_same_hosts(&other.addresses)
            && self.port == other.port
            && self.names == other.names
    }
}

#[cfg(test)]
impl Target {
    pub(crate) fn unreachable() -> Self {
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

/// Nodes write their own annotations: a path must not be able to inject another request.
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
    fn a_path_cannot_inject_a_request() {
        assert!(is_path("/metrics/nodes/a/metrics/resource?x=y"));
        for bad in ["", "metrics", "/a b", "/a\r\nHost: b", "/ä", "/a#b"] {
            assert!(!is_path(bad), "{bad:?}");
        }
        assert!(!is_path(&format!("/{}", "a".repeat(2_000))));
    }
}

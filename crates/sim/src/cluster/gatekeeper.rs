//! Kubelet authentication and authorization by the cluster.

use std::sync::Arc;

use crate::api::shared::{Peer, Shared};
use crate::auth::User;
use crate::auth::authorize::Attempt;
use crate::kubelet::{Credentials, Gatekeeper, Verdict};

/// Webhook authentication and authorization of a kubelet, without the network round trip.
pub(super) struct ClusterGatekeeper {
    shared: Arc<Shared>,
}

impl ClusterGatekeeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn user(&self, credentials: &Credentials<'_>) -> Option<User> {
        if let Peer::User(user) = self.shared.judge(Some(credentials.certificates)) {
            return Some(user);
        }
        let now = self.shared.store.now();
        let user = self.shared.tokens.user(credentials.bearer?, now)?;
        Some(user.authenticated())
    }
}

impl Gatekeeper for ClusterGatekeeper {
    fn judge(&self, credentials: &Credentials<'_>) -> Verdict {
        let Some(user) = self.user(credentials) else {
            return Verdict::Unauthorized;
        };
        let attempt = Attempt::Resource {
            verb: "get",
            group: "",
            resource: "nodes",
            subresource: subresource(credentials.path),
            namespace: "",
            name: credentials.node,
        };
        if self.shared.allows(&user, &attempt) {
            Verdict::Allow
        } else {
            Verdict::Forbidden
        }
    }
}

/// Maps a path to the subresource of the node, as the kubelet does.
fn subresource(path: &str) -> &'static str {
    const KNOWN: [(&str, &str); 6] = [
        ("/metrics", "metrics"),
        ("/stats", "stats"),
        ("/logs", "log"),
        ("/pods", "pods"),
        ("/healthz", "healthz"),
        ("/configz", "configz"),
    ];
    KNOWN
        .iter()
        .find(|(start, _)| {
            path.strip_prefix(start)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        .map_or("proxy", |(_, subresource)| subresource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stand_for_the_subresources_that_rbac_names() {
        assert_eq!(subresource("/metrics/resource"), "metrics");
        assert_eq!(subresource("/metrics"), "metrics");
        assert_eq!(subresource("/stats/summary"), "stats");
        assert_eq!(subresource("/pods"), "pods");
        assert_eq!(subresource("/podsandmore"), "proxy");
        assert_eq!(subresource("/exec/a/b/c"), "proxy");
    }
}

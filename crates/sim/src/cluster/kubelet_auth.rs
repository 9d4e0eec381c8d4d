//! Kubelet authentication and authorization by the cluster.

use std::sync::Arc;

use crate::api::context::{ApiContext, Peer};
use crate::auth::User;
use crate::auth::authorize::AccessAttributes;
use crate::kubelet::{Credentials, Decision, KubeletAuth};

/// Webhook authentication and authorization of a kubelet, without the network round trip.
pub(super) struct ClusterAuth {
    context: Arc<ApiContext>,
}

impl ClusterAuth {
    pub(super) fn new(context: Arc<ApiContext>) -> Self {
        Self { context }
    }

    fn user(&self, credentials: &Credentials<'_>) -> Option<User> {
        if let Peer::User(user) = self.context.identify(Some(credentials.certificates)) {
            return Some(user);
        }
        let now = self.context.store.now();
        let user = self.context.tokens.user(credentials.bearer?, now)?;
        Some(user.authenticated())
    }
}

impl KubeletAuth for ClusterAuth {
    fn authorize(&self, credentials: &Credentials<'_>) -> Decision {
        let Some(user) = self.user(credentials) else {
            return Decision::Unauthorized;
        };
        let attributes = AccessAttributes::Resource {
            verb: "get",
            group: "",
            resource: "nodes",
            subresource: subresource(credentials.path),
            namespace: "",
            name: credentials.node,
        };
        if self.context.allows(&user, &attributes) {
            Decision::Allow
        } else {
            Decision::Forbidden
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
    fn paths_map_to_the_subresources_of_rbac() {
        assert_eq!(subresource("/metrics/resource"), "metrics");
        assert_eq!(subresource("/metrics"), "metrics");
        assert_eq!(subresource("/stats/summary"), "stats");
        assert_eq!(subresource("/pods"), "pods");
        assert_eq!(subresource("/podsandmore"), "proxy");
        assert_eq!(subresource("/exec/a/b/c"), "proxy");
    }
}

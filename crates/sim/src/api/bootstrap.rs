//! Objects that every cluster has from the start.

use std::net::SocketAddr;

use serde_json::json;

use super::resources::{self, GROUPS};
use crate::auth::authority::Authority;
use crate::error::SimError;
use crate::objects::{ObjectWriter, Resource};
use crate::store::{Store, timestamp};

/// Common name of the front-proxy certificate.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// Creates namespaces, the `kubernetes` Service, the authentication configuration for extension API
/// servers, and an `APIService` for each group that is served locally.
pub(crate) fn fill(
    store: &Store,
    address: SocketAddr,
    cluster: &Authority,
    front_proxy: &Authority,
) -> Result<(), SimError> {
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let labels = json!({"kubernetes.io/metadata.name": name});
        store.create(
            Resource::Namespaces,
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"finalizers": ["kubernetes"]},
                   "status": {"phase": "Active"}}),
        )?;
        store.create(
            Resource::ServiceAccounts,
            json!({"metadata": {"name": "default", "namespace": name}}),
        )?;
        store.create(
            Resource::ConfigMaps,
            json!({"metadata": {"name": "kube-root-ca.crt", "namespace": name},
                   "data": {"ca.crt": cluster.pem()}}),
        )?;
    }
    store.create(
        Resource::ConfigMaps,
        json!({
            "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
            "data": {
                "client-ca-file": cluster.pem(),
                "requestheader-client-ca-file": front_proxy.pem(),
                "requestheader-allowed-names": json!([FRONT_PROXY]).to_string(),
                "requestheader-username-headers": "[\"X-Remote-User\"]",
                "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
                "requestheader-group-headers": "[\"X-Remote-Group\"]",
                "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            },
        }),
    )?;
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let ports =
        json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": address.port()}]);
    store.create(
        Resource::Services,
        json!({"metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
               "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                        "ports": ports, "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                        "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"},
               "status": {"loadBalancer": {}}}),
    )?;
    let ip = address.ip().to_string();
    store.create(
        Resource::EndpointSlices,
        json!({"metadata": {"name": "kubernetes", "namespace": "default",
                            "labels": {"kubernetes.io/service-name": "kubernetes"}},
               "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
               "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
               "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}]}),
    )?;
    let condition = json!({
        "type": "Available", "status": "True", "reason": "Local",
        "message": "Local APIServices are always available",
        "lastTransitionTime": timestamp(store.now()),
    });
    for group in std::iter::once(&"").chain(GROUPS) {
        // kube-aggregator does not register its own group.
        if *group == resources::info(Resource::ApiServices).group {
            continue;
        }
        store.create(
            Resource::ApiServices,
            json!({"metadata": {"name": format!("v1.{group}"),
                                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
                   "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 17_000,
                            "versionPriority": 15},
                   "status": {"conditions": [condition.clone()]}}),
        )?;
    }
    Ok(())
}

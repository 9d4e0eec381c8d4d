//! The configuration files of a cluster's components.
//!
//! A cluster has the usual folders (`/run/containerd`, `/var/lib/kubelet`, `/var/log/pods`) for
//! itself, in its mount namespace, so its configuration reads like that of any other node.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::layout::{Addresses, Layout};
use crate::pki::{CLIENTS, Pki};

/// The API server's port on the node's address.
pub(crate) const API_PORT: u16 = 6443;

/// The image of pod sandboxes; without a registry it must be imported before the first pod.
pub(crate) const PAUSE_IMAGE: &str = "kubevitals.test/pause:1";

/// The folder of static pods, in that of the cluster.
pub(crate) const STATIC_PODS: &str = "static-pods";

/// Returns the path of a client's kubeconfig.
pub(crate) fn kubeconfig(layout: &Layout, client: &str) -> PathBuf {
    layout.path(&format!("{client}.kubeconfig"))
}

/// Writes all configuration files.
pub(crate) fn write(
    layout: &Layout,
    addresses: Addresses,
    pki: &Pki,
    cni_plugins: &Path,
) -> Result<()> {
    let server = format!("https://{}:{API_PORT}", addresses.node());
    for client in CLIENTS {
        let text = pretty(&client_config(&layout.name, &server, pki, client));
        save(&kubeconfig(layout, client), &text)?;
    }
    save(
        &layout.path("kubelet.json"),
        &pretty(&kubelet(layout, addresses, pki)),
    )?;
    save(
        &layout.path("kube-proxy.json"),
        &pretty(&proxy(layout, addresses)),
    )?;
    let cni = layout.path("cni");
    for folder in [&cni, &layout.path(STATIC_PODS)] {
        fs::create_dir_all(folder)?;
    }
    save(
        &cni.join("10-pods.conflist"),
        &pretty(&pod_network(addresses)),
    )?;
    save(
        &layout.path("containerd.toml"),
        &containerd(&cni, cni_plugins),
    )
}

/// Returns a kubeconfig with paths of keys, not copies: only their owner can use it.
fn client_config(cluster: &str, server: &str, pki: &Pki, client: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": cluster,
            "cluster": {"server": server, "certificate-authority": pki.certificate("ca")},
        }],
        "users": [{
            "name": client,
            "user": {"client-certificate": pki.certificate(client), "client-key": pki.key(client)},
        }],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": client}}],
        "current-context": cluster,
    })
}

fn kubelet(layout: &Layout, addresses: Addresses, pki: &Pki) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        // Not on the loopback, where tests forward the same port to pods.
        "address": addresses.node(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true, "cacheTTL": "10s"},
            "x509": {"clientCAFile": pki.certificate("ca")},
        },
        "authorization": {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "10s", "cacheUnauthorizedTTL": "5s"}},
        "tlsCertFile": pki.certificate("kubelet-serving"),
        "tlsPrivateKeyFile": pki.key("kubelet-serving"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        // Two kubelets under one root take each other's pods for orphans and kill them.
        "cgroupRoot": format!("/{}", layout.cgroup()),
        "cgroupsPerQOS": true,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDomain": "cluster.local",
        "clusterDNS": [addresses.dns_service()],
        "resolvConf": "",
        "staticPodPath": layout.path(STATIC_PODS),
        "nodeStatusUpdateFrequency": "5s",
        // A disk that others have filled must not evict a test's pods, nor remove images
        // that no registry has.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "imageMaximumGCAge": "0s",
    })
}

fn proxy(layout: &Layout, addresses: Addresses) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": kubeconfig(layout, "kube-proxy")},
        "hostnameOverride": layout.node_name(),
        "clusterCIDR": addresses.pods().to_string(),
        "healthzBindAddress": format!("0.0.0.0:{}", crate::components::PROXY_HEALTH_PORT),
        "metricsBindAddress": "127.0.0.1:10249",
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
        // Zero: leave the machine's settings alone; most of them belong to the host.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

/// A routed pair for each pod instead of a bridge: replies pass the node's address translation
/// without the kernel's help for bridges, so that a pod reaches a Service whose pod is its
/// neighbour, or itself.
fn pod_network(addresses: Addresses) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": addresses.pods().to_string()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn containerd(cni: &Path, cni_plugins: &Path) -> String {
    // Paths are quoted as JSON, whose strings are strings of TOML too.
    let quoted = |path: &Path| json!(path).to_string();
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE no process may make itself less likely to be killed, and every sandbox would fail.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {}
    conf_dir = {}
"#,
        quoted(cni_plugins),
        quoted(cni),
    )
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            name: "dev".to_owned(),
            folder: PathBuf::from("/cache/clusters/dev"),
        }
    }

    #[test]
    fn a_kubeconfig_names_the_authority_and_the_user() {
        let config = client_config(
            "dev",
            "https://10.213.7.2:6443",
            &Pki::new(&layout()),
            "admin",
        );
        insta::assert_snapshot!(pretty(&config));
    }

    #[test]
    fn configuration_of_the_node() {
        let (layout, addresses) = (layout(), Addresses::new(7));
        let texts = [
            pretty(&kubelet(&layout, addresses, &Pki::new(&layout))),
            pretty(&proxy(&layout, addresses)),
            pretty(&pod_network(addresses)),
            containerd(&layout.path("cni"), Path::new("/usr/lib/cni")),
        ];
        insta::assert_snapshot!(texts.join("---\n"));
    }
}

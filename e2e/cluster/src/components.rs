//! The programs of a cluster and the flags with which they are started.

use std::path::{Path, PathBuf};

use crate::config::{API_PORT, kubeconfig};
use crate::control::Launch;
use crate::layout::{Addresses, Layout};
use crate::pki::{FRONT_PROXY_CLIENT, Pki};

/// `/health` and `/metrics` of etcd, in plain HTTP; its API is for the API server alone.
pub(crate) const ETCD_HEALTH_PORT: u16 = 2381;
/// `/healthz` of kube-proxy, in plain HTTP.
pub(crate) const PROXY_HEALTH_PORT: u16 = 10256;
/// Controller manager and scheduler serve TLS, with certificates of their own making.
pub(crate) const CONTROLLER_MANAGER_PORT: u16 = 10257;
pub(crate) const SCHEDULER_PORT: u16 = 10259;

/// A process that a cluster consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Component {
    Etcd,
    Containerd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Proxy,
    Kubelet,
}

impl Component {
    /// All components, in the order in which they are started.
    pub(crate) const ALL: [Self; 7] = [
        Self::Etcd,
        Self::Containerd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Proxy,
        Self::Kubelet,
    ];

    /// The name of its program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Containerd => "containerd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Proxy => "kube-proxy",
            Self::Kubelet => "kubelet",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|component| component.name() == name)
    }

    pub(crate) fn log(self, layout: &Layout) -> PathBuf {
        layout.path("logs").join(format!("{}.log", self.name()))
    }

    /// Returns the command with which the holder starts it.
    pub(crate) fn launch(
        self,
        layout: &Layout,
        addresses: Addresses,
        program: &Path,
        path: &str,
    ) -> Launch {
        Launch {
            name: self.name().to_owned(),
            program: program.to_owned(),
            arguments: self.flags(layout, addresses),
            environment: vec![
                ("PATH".to_owned(), path.to_owned()),
                ("HOME".to_owned(), layout.folder.display().to_string()),
                (
                    "TMPDIR".to_owned(),
                    layout.path("tmp").display().to_string(),
                ),
            ],
            log: self.log(layout),
        }
    }

    fn flags(self, layout: &Layout, addresses: Addresses) -> Vec<String> {
        let pki = Pki::new(layout);
        match self {
            Self::Etcd => etcd(layout),
            Self::Containerd => vec![flag("config", layout.path("containerd.toml").display())],
            Self::ApiServer => api_server(layout, addresses, &pki),
            Self::ControllerManager => controller_manager(layout, addresses, &pki),
            Self::Scheduler => {
                let mut flags = behind_delegated_authentication(layout, "scheduler");
                flags.push(flag("secure-port", SCHEDULER_PORT));
                flags
            }
            Self::Proxy => vec![flag("config", layout.path("kube-proxy.json").display())],
            Self::Kubelet => vec![
                flag("config", layout.path("kubelet.json").display()),
                flag("kubeconfig", kubeconfig(layout, "kubelet").display()),
                flag("hostname-override", layout.node_name()),
                flag("node-ip", addresses.node()),
            ],
        }
    }
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

fn etcd(layout: &Layout) -> Vec<String> {
    vec![
        flag("data-dir", layout.path("etcd").display()),
        flag("listen-client-urls", "http://127.0.0.1:2379"),
        flag("advertise-client-urls", "http://127.0.0.1:2379"),
        flag("listen-peer-urls", "http://127.0.0.1:2380"),
        flag(
            "listen-metrics-urls",
            format_args!("http://0.0.0.0:{ETCD_HEALTH_PORT}"),
        ),
        // Nothing here must survive a power failure.
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn api_server(layout: &Layout, addresses: Addresses, pki: &Pki) -> Vec<String> {
    let certificate = |name, file| flag(name, pki.certificate(file).display());
    let key = |name, file| flag(name, pki.key(file).display());
    vec![
        flag("etcd-servers", "http://127.0.0.1:2379"),
        // Closes open watches at shutdown, which would otherwise delay it by a minute.
        flag("shutdown-watch-termination-grace-period", "1s"),
        flag("bind-address", "0.0.0.0"),
        flag("secure-port", API_PORT),
        flag("advertise-address", addresses.node()),
        flag("service-cluster-ip-range", addresses.services()),
        flag("cert-dir", layout.path("tmp").display()),
        certificate("tls-cert-file", "apiserver"),
        key("tls-private-key-file", "apiserver"),
        certificate("client-ca-file", "ca"),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("allow-privileged", true),
        flag(
            "service-account-issuer",
            "https://kubernetes.default.svc.cluster.local",
        ),
        flag(
            "service-account-key-file",
            pki.service_account_public().display(),
        ),
        key("service-account-signing-key-file", "service-account"),
        certificate("kubelet-certificate-authority", "ca"),
        certificate("kubelet-client-certificate", "apiserver-kubelet-client"),
        key("kubelet-client-key", "apiserver-kubelet-client"),
        flag("kubelet-preferred-address-types", "InternalIP"),
        flag("enable-aggregator-routing", true),
        certificate("requestheader-client-ca-file", "front-proxy-ca"),
        flag("requestheader-allowed-names", FRONT_PROXY_CLIENT),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        certificate("proxy-client-cert-file", "front-proxy-client"),
        key("proxy-client-key-file", "front-proxy-client"),
    ]
}

fn controller_manager(layout: &Layout, addresses: Addresses, pki: &Pki) -> Vec<String> {
    let mut flags = behind_delegated_authentication(layout, "controller-manager");
    flags.extend([
        flag("secure-port", CONTROLLER_MANAGER_PORT),
        flag("use-service-account-credentials", true),
        flag(
            "service-account-private-key-file",
            pki.key("service-account").display(),
        ),
        flag("root-ca-file", pki.certificate("ca").display()),
        flag("cluster-signing-cert-file", pki.certificate("ca").display()),
        flag("cluster-signing-key-file", pki.key("ca").display()),
        flag("cluster-cidr", addresses.pods()),
        flag("service-cluster-ip-range", addresses.services()),
        flag("horizontal-pod-autoscaler-sync-period", "5s"),
        // At start each controller requests a service account: at the default rate that takes five
        // seconds.
        flag("kube-api-qps", 200),
        flag("kube-api-burst", 400),
    ]);
    flags
}

/// Returns the flags that controller manager and scheduler share: delegated authentication, and no
/// leader election.
fn behind_delegated_authentication(layout: &Layout, client: &str) -> Vec<String> {
    let config = kubeconfig(layout, client);
    let mut flags: Vec<String> = [
        "kubeconfig",
        "authentication-kubeconfig",
        "authorization-kubeconfig",
    ]
    .into_iter()
    .map(|name| flag(name, config.display()))
    .collect();
    flags.extend([
        flag("bind-address", "0.0.0.0"),
        flag("leader-elect", false),
        flag("cert-dir", layout.path("tmp").display()),
    ]);
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_every_component() {
        let layout = Layout {
            name: "dev".to_owned(),
            folder: PathBuf::from("/cache/clusters/dev"),
        };
        let text = Component::ALL.map(|component| {
            let program = Path::new("/programs/it");
            let launch = component.launch(&layout, Addresses::new(7), program, "/usr/bin");
            format!("{}\n  {}", launch.name, launch.arguments.join("\n  "))
        });
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn a_component_is_found_by_its_name() {
        for component in Component::ALL {
            assert_eq!(Component::named(component.name()), Some(component));
        }
        assert_eq!(Component::named("dockerd"), None);
    }
}

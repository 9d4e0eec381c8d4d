//! Addons that clusters of providers and of kubeadm have, by the labels of their pods.

/// What an addon is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddonKind {
    Dns,
    /// `metrics.k8s.io`.
    MetricsApi,
    ServiceProxy,
    Logging,
    /// Credentials of the cloud provider for pods.
    Identity,
    Cni,
    Storage,
    /// The way from the control plane to nodes.
    Tunnel,
    ControlPlane,
}

/// An addon of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownAddon {
    /// The value of the label `addon`, the same on all providers.
    pub name: &'static str,
    pub kind: AddonKind,
    /// Labels of pods, of which any one is enough.
    pub labels: &'static [(&'static str, &'static str)],
}

const APP: &str = "k8s-app";
const NAME: &str = "app.kubernetes.io/name";
const COMPONENT: &str = "component";
const PLAIN_APP: &str = "app";

const fn known(
    name: &'static str,
    kind: AddonKind,
    labels: &'static [(&'static str, &'static str)],
) -> KnownAddon {
    KnownAddon { name, kind, labels }
}

/// The catalogue. An entry counts before the common labels, which would give other names.
pub const CATALOGUE: &[KnownAddon] = &[
    // CoreDNS has the label of its predecessor on GKE, EKS, AKS and kubeadm's clusters.
    known(
        "kube-dns",
        AddonKind::Dns,
        &[(APP, "kube-dns"), (NAME, "coredns"), (APP, "coredns")],
    ),
    known("node-local-dns", AddonKind::Dns, &[(APP, "node-local-dns")]),
    known(
        "metrics-server",
        AddonKind::MetricsApi,
        &[(APP, "metrics-server"), (NAME, "metrics-server")],
    ),
    known(
        "kubevitals",
        AddonKind::MetricsApi,
        &[(NAME, "kubevitals"), (APP, "kubevitals")],
    ),
    known(
        "kube-proxy",
        AddonKind::ServiceProxy,
        // A static pod on GKE, a DaemonSet with either label on EKS and AKS.
        &[(APP, "kube-proxy"), (COMPONENT, "kube-proxy")],
    ),
    known(
        "fluentbit",
        AddonKind::Logging,
        &[
            (COMPONENT, "fluentbit-gke"),
            (APP, "fluentbit-gke"),
            (APP, "fluent-bit"),
            (NAME, "fluent-bit"),
            (NAME, "aws-for-fluent-bit"),
        ],
    ),
    known(
        "azure-monitor",
        AddonKind::Logging,
        &[(COMPONENT, "ama-logs-agent"), ("dsName", "ama-logs-ds")],
    ),
    known(
        "gke-metadata-server",
        AddonKind::Identity,
        &[(APP, "gke-metadata-server")],
    ),
    known(
        "eks-pod-identity-agent",
        AddonKind::Identity,
        &[(NAME, "eks-pod-identity-agent")],
    ),
    known(
        "azure-workload-identity",
        AddonKind::Identity,
        &[
            ("azure-workload-identity.io/system", "true"),
            (COMPONENT, "nmi"),
        ],
    ),
    known(
        "aws-node",
        AddonKind::Cni,
        &[(APP, "aws-node"), (NAME, "aws-node")],
    ),
    known("azure-cns", AddonKind::Cni, &[(APP, "azure-cns")]),
    known("azure-npm", AddonKind::Cni, &[(APP, "azure-npm")]),
    known("calico-node", AddonKind::Cni, &[(APP, "calico-node")]),
    known("canal", AddonKind::Cni, &[(APP, "canal")]),
    // GKE's Dataplane V2 is Cilium too.
    known(
        "cilium",
        AddonKind::Cni,
        &[(APP, "cilium"), (NAME, "cilium-agent")],
    ),
    known(
        "flannel",
        AddonKind::Cni,
        &[(PLAIN_APP, "flannel"), (APP, "flannel")],
    ),
    known(
        "kindnet",
        AddonKind::Cni,
        &[(APP, "kindnet"), (PLAIN_APP, "kindnet")],
    ),
    known("kube-router", AddonKind::Cni, &[(APP, "kube-router")]),
    known(
        "antrea-agent",
        AddonKind::Cni,
        &[(COMPONENT, "antrea-agent")],
    ),
    known("weave-net", AddonKind::Cni, &[("name", "weave-net")]),
    known("netd", AddonKind::Cni, &[(APP, "netd")]),
    known("ip-masq-agent", AddonKind::Cni, &[(APP, "ip-masq-agent")]),
    known(
        "pdcsi-node",
        AddonKind::Storage,
        &[(APP, "gcp-compute-persistent-disk-csi-driver")],
    ),
    known(
        "ebs-csi-node",
        AddonKind::Storage,
        &[(PLAIN_APP, "ebs-csi-node")],
    ),
    known(
        "csi-azuredisk-node",
        AddonKind::Storage,
        &[(PLAIN_APP, "csi-azuredisk-node")],
    ),
    known(
        "konnectivity-agent",
        AddonKind::Tunnel,
        &[
            (APP, "konnectivity-agent"),
            (PLAIN_APP, "konnectivity-agent"),
        ],
    ),
    known("etcd", AddonKind::ControlPlane, &[(COMPONENT, "etcd")]),
    known(
        "kube-apiserver",
        AddonKind::ControlPlane,
        &[(COMPONENT, "kube-apiserver")],
    ),
    known(
        "kube-controller-manager",
        AddonKind::ControlPlane,
        &[(COMPONENT, "kube-controller-manager")],
    ),
    known(
        "kube-scheduler",
        AddonKind::ControlPlane,
        &[(COMPONENT, "kube-scheduler")],
    ),
];

//! Our own server of the resource metrics API.

use crate::access::{Access, Rule};
use crate::aggregation::AggregatedApi;
use crate::background::Background;
use crate::error::E2eError;
use crate::metrics_server::{MetricsServer, death_of};
use crate::namespace::TestNamespace;

/// What `deploy/server.yaml` allows it.
pub(crate) const RULES: &[Rule] = &[
    Rule::get(&["nodes/metrics", "nodes/stats"]),
    Rule::watch(&["nodes", "pods"]),
    Rule {
        group: "apiregistration.k8s.io",
        resources: &["apiservices"],
        verbs: &["get", "patch"],
    },
];

/// The name of its Service.
const SERVICE: &str = "kubevitals-server";

/// `kubevitals server` as a process in the cluster's network, with a certificate that it makes
/// itself, and whose authority it writes into its `APIService`s.
#[derive(Debug)]
pub struct MetricsApiServer {
    process: Background,
    api: AggregatedApi,
}

impl MetricsApiServer {
    /// Starts it and waits until `v1` and `v1beta1` of `metrics.k8s.io` are available. Only one
    /// test at a time can have it.
    pub async fn start(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let api = AggregatedApi::prepare(namespace, SERVICE).await?;
        Self::start_as(namespace, api, &["v1", "v1beta1"]).await
    }

    /// Starts it beside metrics-server, which keeps `v1beta1`: `v1` is ours.
    pub async fn start_beside(
        peer: &MetricsServer,
        namespace: &TestNamespace,
    ) -> Result<Self, E2eError> {
        let api = AggregatedApi::prepare_beside(peer.api(), namespace, SERVICE)?;
        Self::start_as(namespace, api, &["v1"]).await
    }

    /// The API that it serves.
    pub fn api(&self) -> &AggregatedApi {
        &self.api
    }

    /// An error with its last words, if it has ended.
    pub fn must_run(&mut self) -> Result<(), E2eError> {
        self.process.must_run()
    }

    /// Withdraws its `APIService`s and ends it.
    pub async fn stop(self, namespace: &TestNamespace) -> Result<(), E2eError> {
        let Self { mut process, api } = self;
        let ran_on = process.must_run();
        api.withdraw(namespace).await?;
        ran_on
    }

    async fn start_as(
        namespace: &TestNamespace,
        api: AggregatedApi,
        versions: &[&str],
    ) -> Result<Self, E2eError> {
        let cluster = namespace.cluster();
        let mut api = api.with_authority_of_its_own();
        let access = access_of_server(namespace, SERVICE, RULES).await?;
        let kubeconfig = access.kubeconfig(namespace)?.display().to_string();
        let arguments = [
            "server".to_owned(),
            format!("--kubeconfig={kubeconfig}"),
            format!("--bind-address={}", api.listen().ip()),
            format!("--secure-port={}", api.listen().port()),
            format!("--cert-dir={}", namespace.folder().join("server").display()),
            format!("--apiservice-backend={}/{SERVICE}", namespace.name()),
            format!(
                "--kubelet-certificate-authority={}",
                cluster.authority().display()
            ),
            "--manage-apiservices".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--metric-resolution=10s".to_owned(),
            "--kubelet-request-timeout=5s".to_owned(),
        ];
        for version in versions {
            api.register(namespace, "metrics.k8s.io", version).await?;
        }
        let output = namespace.folder().join("kubevitals-server.log");
        let program = cluster.program("kubevitals")?;
        let mut process = Background::start(&program, &arguments, &output)?;
        tokio::select! {
            available = api.available(namespace) => available?,
            died = death_of(&mut process) => return Err(died),
        }
        Ok(Self { process, api })
    }
}

/// An account that may do these, and what every aggregated API server may: ask who somebody is, and
/// what they may.
pub(crate) async fn access_of_server(
    namespace: &TestNamespace,
    name: &str,
    rules: &[Rule],
) -> Result<Access, E2eError> {
    let access = namespace.access(name, rules).await?;
    access
        .bind_everywhere(namespace, "system:auth-delegator")
        .await?;
    let reader = "extension-apiserver-authentication-reader";
    access.bind_in_kube_system(namespace, reader).await?;
    Ok(access)
}

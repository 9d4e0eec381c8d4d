//! Servers of the resource metrics API behind the aggregation layer: ours and Go's metrics-server.

use std::time::Duration;

use crate::access::{Access, Rule};
use crate::aggregation::AggregatedApi;
use crate::background::Background;
use crate::error::E2eError;
use crate::namespace::TestNamespace;

/// The rights of our server in `deploy/server.yaml`.
pub(crate) const RULES: &[Rule] = &[
    Rule::get(&["nodes/metrics", "nodes/stats"]),
    Rule::watch(&["nodes", "pods"]),
    Rule {
        group: "apiregistration.k8s.io",
        resources: &["apiservices"],
        verbs: &["get", "patch"],
    },
];

/// The rights of metrics-server in its own manifests.
const METRICS_SERVER_RULES: &[Rule] = &[
    Rule::get(&["nodes/metrics"]),
    Rule::watch(&["nodes", "pods"]),
];

/// The Service of our server.
const SERVICE: &str = "kubevitals-server";

/// Interval at which a starting server is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A server as a process in the cluster's network, with the rights of its own manifests and
/// verified TLS on both sides. Only one test at a time can serve an API.
#[derive(Debug)]
pub struct MetricsApiServer {
    process: Background,
    api: AggregatedApi,
}

impl MetricsApiServer {
    /// Starts `kubevitals server` and waits until `v1` and `v1beta1` of `metrics.k8s.io` are
    /// available.
    pub async fn start(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let api = AggregatedApi::prepare(namespace, SERVICE).await?;
        Self::start_ours(namespace, api, &["v1", "v1beta1"]).await
    }

    /// Starts `kubevitals server` beside metrics-server: it serves `v1`, metrics-server `v1beta1`.
    pub async fn start_beside(
        peer: &MetricsApiServer,
        namespace: &TestNamespace,
    ) -> Result<Self, E2eError> {
        let api = AggregatedApi::prepare_beside(&peer.api, namespace, SERVICE)?;
        Self::start_ours(namespace, api, &["v1"]).await
    }

    /// Starts Go's metrics-server and waits until `v1beta1` of `metrics.k8s.io` is available.
    pub async fn start_metrics_server(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let name = "metrics-server";
        let api = AggregatedApi::prepare(namespace, name).await?;
        let access = server_access(namespace, name, METRICS_SERVER_RULES).await?;
        let kubeconfig = access.kubeconfig(namespace)?.display().to_string();
        let mut arguments = common_arguments(namespace, &api, &kubeconfig);
        arguments.extend([
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--tls-cert-file={}", api.certificate().display()),
            format!("--tls-private-key-file={}", api.key().display()),
        ]);
        Self::launch(namespace, api, name, &arguments, &["v1beta1"]).await
    }

    /// The API that it serves.
    pub fn api(&self) -> &AggregatedApi {
        &self.api
    }

    /// Fails with the end of its output if it has ended.
    pub fn must_run(&mut self) -> Result<(), E2eError> {
        self.process.must_run()
    }

    /// Deletes its `APIService`s and stops it. Fails if it had ended before.
    pub async fn stop(self, namespace: &TestNamespace) -> Result<(), E2eError> {
        let Self { mut process, api } = self;
        let running = process.must_run();
        api.withdraw(namespace).await?;
        running
    }

    /// Our server makes its certificate itself and writes its authority into its `APIService`s.
    async fn start_ours(
        namespace: &TestNamespace,
        api: AggregatedApi,
        versions: &[&str],
    ) -> Result<Self, E2eError> {
        let api = api.with_authority_of_its_own();
        let access = server_access(namespace, SERVICE, RULES).await?;
        let kubeconfig = access.kubeconfig(namespace)?.display().to_string();
        let mut arguments = vec!["server".to_owned()];
        arguments.extend(common_arguments(namespace, &api, &kubeconfig));
        arguments.extend([
            format!("--cert-dir={}", namespace.folder().join("server").display()),
            format!("--apiservice-backend={}/{SERVICE}", namespace.name()),
            "--manage-apiservices".to_owned(),
        ]);
        Self::launch(namespace, api, "kubevitals", &arguments, versions).await
    }

    async fn launch(
        namespace: &TestNamespace,
        mut api: AggregatedApi,
        program: &str,
        arguments: &[String],
        versions: &[&str],
    ) -> Result<Self, E2eError> {
        for version in versions {
            api.register(namespace, "metrics.k8s.io", version).await?;
        }
        let output = namespace.folder().join(format!("{program}.log"));
        let program = namespace.cluster().program(program)?;
        let mut process = Background::start(&program, arguments, &output)?;
        tokio::select! {
            available = api.available(namespace) => available?,
            ended = end_of(&mut process) => return Err(ended),
        }
        Ok(Self { process, api })
    }
}

/// Returns the flags that both servers share, with the shortest resolution of metrics-server.
fn common_arguments(
    namespace: &TestNamespace,
    api: &AggregatedApi,
    kubeconfig: &str,
) -> Vec<String> {
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--bind-address={}", api.listen().ip()),
        format!("--secure-port={}", api.listen().port()),
        format!(
            "--kubelet-certificate-authority={}",
            namespace.cluster().authority().display()
        ),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--metric-resolution=10s".to_owned(),
        "--kubelet-request-timeout=5s".to_owned(),
    ]
}

/// Creates an account with these rights and those of every aggregated API server: token and access
/// reviews, and the authentication configuration of the aggregation layer.
pub(crate) async fn server_access(
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

/// Returns once a process has ended.
async fn end_of(process: &mut Background) -> E2eError {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    loop {
        ticks.tick().await;
        if let Err(ended) = process.must_run() {
            return ended;
        }
    }
}

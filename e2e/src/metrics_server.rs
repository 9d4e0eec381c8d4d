//! Go's metrics-server: the baseline that `kubectl top` and autoscalers know.

use std::time::Duration;

use crate::access::Rule;
use crate::aggregation::AggregatedApi;
use crate::background::Background;
use crate::error::E2eError;
use crate::namespace::TestNamespace;

/// What its manifests allow it.
const RULES: &[Rule] = &[
    Rule::get(&["nodes/metrics"]),
    Rule::watch(&["nodes", "pods"]),
];

/// The shortest resolution that it takes, and it wants requests to kubelets to take less.
const SHORTEST: [&str; 2] = ["--metric-resolution=10s", "--kubelet-request-timeout=5s"];

/// How often it is looked at while it starts.
const EVERY: Duration = Duration::from_millis(200);

/// metrics-server as a process in the cluster's network, behind its `APIService`, with the rights
/// of its own manifests and verified TLS on both sides.
#[derive(Debug)]
pub struct MetricsServer {
    process: Background,
    api: AggregatedApi,
}

impl MetricsServer {
    /// Starts it and waits until `v1beta1.metrics.k8s.io` is available. Only one test at a time can
    /// have it.
    pub async fn start(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let cluster = namespace.cluster();
        let mut api = AggregatedApi::prepare(namespace, "metrics-server").await?;
        let access = namespace.access("metrics-server", RULES).await?;
        access
            .bind_everywhere(namespace, "system:auth-delegator")
            .await?;
        let reader = "extension-apiserver-authentication-reader";
        access.bind_in_kube_system(namespace, reader).await?;
        let kubeconfig = access.kubeconfig(namespace)?.display().to_string();
        let arguments = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--bind-address={}", api.listen().ip()),
            format!("--secure-port={}", api.listen().port()),
            format!("--tls-cert-file={}", api.certificate().display()),
            format!("--tls-private-key-file={}", api.key().display()),
            format!(
                "--kubelet-certificate-authority={}",
                cluster.authority().display()
            ),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ]
        .into_iter()
        .chain(SHORTEST.map(str::to_owned))
        .collect::<Vec<_>>();
        let output = namespace.folder().join("metrics-server.log");
        let program = cluster.program("metrics-server")?;
        let mut process = Background::start(&program, &arguments, &output)?;
        api.register(namespace, "metrics.k8s.io", "v1beta1").await?;
        tokio::select! {
            available = api.available(namespace) => available?,
            died = death_of(&mut process) => return Err(died),
        }
        Ok(Self { process, api })
    }

    /// The API that it serves.
    pub fn api(&self) -> &AggregatedApi {
        &self.api
    }

    /// An error with its last words, if it has ended.
    pub fn must_run(&mut self) -> Result<(), E2eError> {
        self.process.must_run()
    }

    /// Withdraws its `APIService` and ends it.
    pub async fn stop(self, namespace: &TestNamespace) -> Result<(), E2eError> {
        let Self { mut process, api } = self;
        let ran_on = process.must_run();
        api.withdraw(namespace).await?;
        ran_on
    }
}

/// Resolves once a process has ended.
pub(crate) async fn death_of(process: &mut Background) -> E2eError {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        if let Err(ended) = process.must_run() {
            return ended;
        }
    }
}

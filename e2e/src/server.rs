//! Servers of the resource metrics API behind the aggregation layer: ours and Go's metrics-server.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kubevitals_tls::{Alpn, ClientOptions, ClientTls, PeerNames, PemSource, TrustRoots};

use crate::access::{Access, Rule};
use crate::aggregation::AggregatedApi;
use crate::background::Background;
use crate::error::E2eError;
use crate::kubelet::{KubeletResponse, get_once};
use crate::manifest::Manifest;
use crate::namespace::TestNamespace;

/// The rights of metrics-server in its own manifests.
const METRICS_SERVER_RULES: &[Rule] = &[
    Rule::get(&["nodes/metrics"]),
    Rule::watch(&["nodes", "pods"]),
];

/// The Service of our server, and its account in `deploy/server.yaml`.
const SERVICE: &str = "kubevitals-server";

/// Interval at which a starting server is checked.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A server as a process in the cluster's network, with the rights of its own manifests and
/// verified TLS on both sides. Only one test at a time can serve an API.
#[derive(Debug)]
pub struct MetricsApiServer {
    process: Background,
    api: AggregatedApi,
}

/// A client of our server without the API server between.
#[derive(Debug, Clone)]
pub struct DirectClient {
    address: SocketAddr,
    tls: ClientTls,
}

impl DirectClient {
    /// Sends one request on a new connection.
    pub async fn get(&self, path: &str, token: Option<&str>) -> Result<KubeletResponse, E2eError> {
        let url = format!("https://{}{path}", self.address);
        get_once(self.address, &self.tls, token, &url).await
    }
}

impl MetricsApiServer {
    /// Starts `kubevitals server` and waits until `v1` and `v1beta1` of `metrics.k8s.io` are
    /// available.
    pub async fn start(namespace: &TestNamespace) -> Result<Self, E2eError> {
        Self::start_with(namespace, &[]).await
    }

    /// The same with more flags.
    pub async fn start_with(namespace: &TestNamespace, flags: &[&str]) -> Result<Self, E2eError> {
        let api = AggregatedApi::prepare(namespace, SERVICE).await?;
        Self::start_ours(namespace, api, &["v1", "v1beta1"], flags).await
    }

    /// Starts `kubevitals server` beside metrics-server: it serves `v1`, metrics-server `v1beta1`.
    pub async fn start_beside(
        peer: &MetricsApiServer,
        namespace: &TestNamespace,
    ) -> Result<Self, E2eError> {
        let api = AggregatedApi::prepare_beside(&peer.api, namespace, SERVICE)?;
        Self::start_ours(namespace, api, &["v1"], &[]).await
    }

    /// Starts Go's metrics-server and waits until `v1beta1` of `metrics.k8s.io` is available.
    pub async fn start_metrics_server(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let name = "metrics-server";
        let api = AggregatedApi::prepare(namespace, name).await?;
        let access = namespace.access(name, METRICS_SERVER_RULES).await?;
        access
            .bind_everywhere(namespace, "system:auth-delegator")
            .await?;
        let reader = "extension-apiserver-authentication-reader";
        access.bind_in_kube_system(namespace, reader).await?;
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

    /// All that it has logged.
    pub fn log(&self) -> String {
        self.process.whole_output()
    }

    /// Returns a client of the process itself, past the aggregation layer.
    pub async fn direct(&self, namespace: &TestNamespace) -> Result<DirectClient, E2eError> {
        let registered: Api<APIService> = Api::all(namespace.cluster().client());
        let name = "v1.metrics.k8s.io";
        let registered = registered.get(name).await;
        let registered = registered.map_err(E2eError::api(format!("reading {name}")))?;
        let bundle = registered.spec.and_then(|spec| spec.ca_bundle);
        let authority = PemSource::Inline {
            label: "caBundle",
            pem: bundle.unwrap_or_default().0.into(),
        };
        let roots = TrustRoots::load("the server", vec![authority], SystemTime::now())?;
        let options = ClientOptions {
            alpn: vec![Alpn::Http11],
            ..ClientOptions::default()
        };
        let names = PeerNames::new([format!("{SERVICE}.{}.svc", namespace.name()).as_str()])?;
        Ok(DirectClient {
            address: self.api.listen(),
            tls: ClientTls::trusting(roots, &options)?.for_peer(names),
        })
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
        flags: &[&str],
    ) -> Result<Self, E2eError> {
        let api = api.with_authority_of_its_own();
        let manifest = Manifest::read("server.yaml")?;
        let access = Access::of_manifest(namespace, &manifest, SERVICE).await?;
        let kubeconfig = access.kubeconfig(namespace)?.display().to_string();
        let mut arguments = vec!["server".to_owned()];
        arguments.extend(common_arguments(namespace, &api, &kubeconfig));
        arguments.extend([
            format!("--cert-dir={}", namespace.folder().join("server").display()),
            "--manage-apiservices".to_owned(),
        ]);
        arguments.extend(manifest.flags_in(namespace.name()));
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
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
        // Virtual nodes listen beside the kubelet.
        "--kubelet-use-node-status-port".to_owned(),
        "--metric-resolution=10s".to_owned(),
        "--kubelet-request-timeout=5s".to_owned(),
    ]
}

/// Returns once a process has ended.
pub(crate) async fn end_of(process: &mut Background) -> E2eError {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    loop {
        ticks.tick().await;
        if let Err(ended) = process.must_run() {
            return ended;
        }
    }
}

//! A running server over an invented provider, certificates, and a reviewer with rules of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevitals_apiserver::{
    AccessDecision, AccessReview, Attributes, AuthenticationSource, BearerToken, ReviewFuture,
    Reviewer, ServingCertificate, TokenReviewResult, UserInfo,
};
use kubevitals_kubelet_api::provider::{
    Attach, AttachRequest, ContainerLogs, ContainerTarget, Exec, ExecRequest, ExitStatus,
    LogOptions, MetricFamily, MetricKind, MetricSample, PodLister, PodTarget, PortDialer,
    PortForward, ProviderFuture, ResourceMetrics, Session, Stats,
};
use kubevitals_kubelet_api::{
    AccessControl, KubeletConfig, KubeletMetrics, KubeletServer, KubeletTelemetry, Provider,
    ProviderError, TransportConfig,
};
use kubevitals_model::node_stats::NodeStats;
use kubevitals_telemetry::{Health, Metrics, OutageLog, SharedRegistry};
use kubevitals_tls::{PemSource, TrustRoots};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
pub(crate) const NODE: &str = "virtual-1";

/// A provider whose behaviour a test chooses, by the name of the pod.
#[derive(Default)]
pub(crate) struct Invented {
    pub(crate) stats: Arc<NodeStats>,
    /// The error of everything but logs and sessions.
    pub(crate) error: Mutex<Option<fn() -> ProviderError>>,
    /// What the last log was asked for.
    pub(crate) logged: Mutex<Option<(ContainerTarget, LogOptions)>>,
    /// What the last session was asked for.
    pub(crate) executed: Mutex<Option<ExecRequest>>,
    /// Told when the future of a request that waits is dropped.
    pub(crate) dropped: Mutex<Option<mpsc::Sender<()>>>,
    /// Lets the log of the pod `broken` break.
    pub(crate) gate: Arc<Notify>,
    /// Told when a request that waits has begun.
    pub(crate) begun: Mutex<Option<mpsc::Sender<()>>>,
}

/// Tells a channel that it was dropped.
struct TellDrop(Option<mpsc::Sender<()>>);

impl Drop for TellDrop {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _sent = sender.try_send(());
        }
    }
}

impl Invented {
    fn check(&self) -> Result<(), ProviderError> {
        match *self.error.lock() {
            Some(error) => Err(error()),
            None => Ok(()),
        }
    }

    /// Waits for ever, and tells when it is given up.
    async fn wait(&self) {
        let _told = TellDrop(self.dropped.lock().clone());
        let begun = self.begun.lock().clone();
        if let Some(begun) = begun {
            begun.send(()).await.unwrap();
        }
        std::future::pending::<()>().await;
    }
}

impl PodLister for Invented {
    fn pods(&self) -> ProviderFuture<'_, Vec<Arc<Pod>>> {
        Box::pin(async {
            self.check()?;
            let pod = |name: &str| {
                Arc::new(Pod {
                    metadata: ObjectMeta {
                        name: Some(name.to_owned()),
                        ..ObjectMeta::default()
                    },
                    spec: None,
                    status: None,
                })
            };
            Ok(vec![pod("a"), pod("b")])
        })
    }
}

impl Stats for Invented {
    fn stats(&self, only_cpu_and_memory: bool) -> ProviderFuture<'_, Arc<NodeStats>> {
        Box::pin(async move {
            if self.begun.lock().is_some() {
                self.wait().await;
            }
            assert_ne!(self.stats.name, "bug", "this node is a bug");
            self.check()?;
            if only_cpu_and_memory {
                assert!(!self.stats.name.is_empty());
            }
            Ok(Arc::clone(&self.stats))
        })
    }
}

impl ResourceMetrics for Invented {
    fn families(&self) -> ProviderFuture<'_, Vec<MetricFamily>> {
        Box::pin(async {
            self.check()?;
            Ok(vec![
                family("z_first"),
                family("not valid"),
                family("a_second"),
            ])
        })
    }
}

impl ContainerLogs for Invented {
    fn logs(
        &self,
        container: ContainerTarget,
        options: LogOptions,
    ) -> ProviderFuture<'_, BoxStream<'static, io::Result<Bytes>>> {
        Box::pin(async move {
            *self.logged.lock() = Some((container.clone(), options));
            let line = |at: usize| Ok(Bytes::from(format!("line {at}\n")));
            Ok(match &**container.pod.key.name() {
                "short" => stream::iter((0..3).map(line)).boxed(),
                "broken" => {
                    let gate = Arc::clone(&self.gate);
                    let broken = stream::once(async move {
                        gate.notified().await;
                        Err(io::Error::other("disk on fire"))
                    });
                    stream::iter([line(0)]).chain(broken).boxed()
                }
                "followed" => {
                    let told = TellDrop(self.dropped.lock().clone());
                    let lines = stream::iter((0..2).map(line)).chain(stream::pending());
                    lines.inspect(move |_| _ = &told).boxed()
                }
                "endless" => {
                    let told = TellDrop(self.dropped.lock().clone());
                    let block = Bytes::from(vec![b'x'; 16 << 10]);
                    let blocks = stream::repeat_with(move || Ok(block.clone()));
                    blocks.inspect(move |_| _ = &told).boxed()
                }
                "busy" => {
                    return Err(ProviderError::TooManyRequests {
                        message: String::from("too many logs"),
                        retry_after: Duration::from_secs(7),
                    });
                }
                name => {
                    return Err(ProviderError::NotFound(format!("pod {name:?} not found")));
                }
            })
        })
    }
}

impl Exec for Invented {
    fn exec(&self, request: ExecRequest) -> ProviderFuture<'_, Session> {
        Box::pin(async move {
            let command = request.command.clone();
            let pod = request.target.pod.key.name().to_string();
            *self.executed.lock() = Some(request);
            if pod == "gone" {
                return Err(ProviderError::NotFound(String::from(
                    "pod \"gone\" not found",
                )));
            }
            let session: Session = Box::new(move |mut streams| {
                Box::pin(async move {
                    let text = command.join(" ");
                    let mut stdout = streams.stdout.take().unwrap();
                    let count = if command[0] == "yes" { 1_000_000 } else { 1 };
                    for _ in 0..count {
                        if stdout.write_all(text.as_bytes()).await.is_err() {
                            break;
                        }
                    }
                    let code = if command[0] == "false" { 3 } else { 0 };
                    Ok(ExitStatus { code })
                })
            });
            Ok(session)
        })
    }
}

impl Attach for Invented {
    fn attach(&self, request: AttachRequest) -> ProviderFuture<'_, Session> {
        let exec = ExecRequest {
            target: request.target,
            command: vec![String::from("attach")],
            streams: request.streams,
        };
        self.exec(exec)
    }
}

impl PortForward for Invented {
    fn port_forward(&self, pod: PodTarget) -> ProviderFuture<'_, Arc<dyn PortDialer>> {
        Box::pin(async move {
            let name = pod.key.name();
            Err(ProviderError::Conflict(format!(
                "pod {name:?} is not running"
            )))
        })
    }
}

fn family(name: &str) -> MetricFamily {
    MetricFamily {
        name: name.to_owned(),
        help: String::from("A family."),
        kind: MetricKind::Gauge,
        samples: vec![MetricSample {
            labels: vec![(String::from("pod"), String::from("a\"b"))],
            value: 1.5,
            timestamp: None,
        }],
    }
}

/// All capabilities of one provider.
pub(crate) fn everything(invented: &Arc<Invented>) -> Provider {
    let mut provider = Provider::default();
    provider.pods = Some(Arc::<Invented>::clone(invented));
    provider.running_pods = Some(Arc::<Invented>::clone(invented));
    provider.stats = Some(Arc::<Invented>::clone(invented));
    provider.probe_metrics = Some(Arc::<Invented>::clone(invented));
    provider.logs = Some(Arc::<Invented>::clone(invented));
    provider.exec = Some(Arc::<Invented>::clone(invented));
    provider.attach = Some(Arc::<Invented>::clone(invented));
    provider.port_forward = Some(Arc::<Invented>::clone(invented));
    provider
}

/// Tokens are `token-of-NAME`. `scraper` may read metrics and stats, `operator` may do everything,
/// `proxy-reader` may `get nodes/proxy`, `pod-reader` may `get nodes/pods`.
#[derive(Default)]
pub(crate) struct Rules {
    /// `verb nodes/subresource` of all reviews.
    pub(crate) asked: Mutex<Vec<String>>,
    /// The data of the ConfigMap.
    pub(crate) config_map: BTreeMap<String, String>,
}

impl Reviewer for Rules {
    fn review_token<'a>(&'a self, token: &'a BearerToken) -> ReviewFuture<'a, TokenReviewResult> {
        Box::pin(async move {
            Ok(match token.expose().strip_prefix("token-of-") {
                Some(name) => TokenReviewResult::Valid(UserInfo {
                    name: name.to_owned(),
                    ..UserInfo::default()
                }),
                None => TokenReviewResult::Invalid,
            })
        })
    }

    fn review_access<'a>(&'a self, review: &'a AccessReview) -> ReviewFuture<'a, AccessDecision> {
        Box::pin(async move {
            let Attributes::Resource {
                verb,
                group,
                resource,
                subresource,
                name,
                ..
            } = &review.attributes
            else {
                panic!("{review:?}");
            };
            assert_eq!(
                (group.as_str(), resource.as_str(), name.as_str()),
                ("", "nodes", NODE)
            );
            let asked = format!("{verb} nodes/{subresource}");
            let allowed = match review.user.name.as_str() {
                "operator" => true,
                "scraper" => asked == "get nodes/metrics" || asked == "get nodes/stats",
                "proxy-reader" => asked == "get nodes/proxy",
                "pod-reader" => asked == "get nodes/pods",
                _ => false,
            };
            self.asked.lock().push(asked);
            Ok(AccessDecision {
                allowed,
                reason: String::new(),
            })
        })
    }
}

impl AuthenticationSource for Rules {
    fn authentication(&self) -> ReviewFuture<'_, Option<BTreeMap<String, String>>> {
        Box::pin(async { Ok(Some(self.config_map.clone())) })
    }
}

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) registry: SharedRegistry,
    pub(crate) health: Health,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts a server without TLS that allows everything.
    pub(crate) async fn open(provider: Provider) -> Self {
        Self::with(provider, |_| {}).await
    }

    /// Starts a server with an altered configuration.
    pub(crate) async fn with(provider: Provider, alter: impl FnOnce(&mut KubeletConfig)) -> Self {
        kubevitals_tls::install_crypto_provider();
        let mut metrics = Metrics::new();
        let own = KubeletMetrics::register(&mut metrics);
        let (registry, health) = (metrics.freeze(), Health::new());
        let telemetry = KubeletTelemetry {
            health: health.clone(),
            registry: registry.clone(),
            metrics: own,
            outage: OutageLog::default(),
        };
        let mut config = KubeletConfig::new(
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            NODE,
            provider,
            TransportConfig::Plain,
            AccessControl::AlwaysAllow,
            telemetry,
        );
        alter(&mut config);
        let server = KubeletServer::bind(config).await.unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.serve(async {
            let _ended = stopped.await;
        }));
        Self {
            address,
            registry,
            health,
            stop: Some(stop),
            task,
        }
    }

    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Shuts down and waits for the end.
    pub(crate) async fn stop(mut self) {
        self.begin_stop();
        tokio::time::timeout(DEADLINE, self.task)
            .await
            .unwrap()
            .unwrap();
    }

    /// Returns the value of a series of the server's own metrics.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let text = self
            .registry
            .encode(kubevitals_telemetry::exposition::Format::negotiate(
                &http::HeaderMap::new(),
            ))
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series))?;
        Some(line.trim().parse().unwrap())
    }
}

/// Delegated access control by [`Rules`], with an authority of client certificates.
pub(crate) fn delegated(rules: &Arc<Rules>, clients: Option<&Authority>) -> AccessControl {
    AccessControl::delegated(rules, clients.map(Authority::roots))
}

/// A self-signed certificate for loopback, and the authority that clients need.
pub(crate) fn certificate() -> (ServingCertificate, String) {
    let names = vec![String::from("localhost"), String::from("127.0.0.1")];
    let own = ServingCertificate::self_signed("kubelet", names, None, SystemTime::now()).unwrap();
    let ca = own.ca_bundle().unwrap().to_string();
    (own, ca)
}

/// Signs certificates.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn client(&self, name: &str) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Credentials {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    fn roots(&self) -> Arc<TrustRoots> {
        TrustRoots::load("test", vec![inline(&self.pem)], SystemTime::now()).unwrap()
    }
}

pub(crate) fn inline(pem: &str) -> PemSource {
    PemSource::Inline {
        label: "test",
        pem: Arc::from(pem.as_bytes()),
    }
}

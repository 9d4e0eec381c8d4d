//! The providers that `--provider` names.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::Uri;
use kubevitals_cli::{InvalidSetting, ResultExt as _, RunError};
use kubevitals_gcm::{
    Credentials, Description, GcmExporter, GcmMetrics, GcmSettings, MetadataServer, Place,
    PlaceSource,
};
use kubevitals_jsonl::PointLines;
use kubevitals_model::Clock;
use kubevitals_otlp::{MetricExporter, OtlpClient, Resource, SettingsSource, Signal};
use kubevitals_prober::{
    Naming, PointQueue, PointsProvider, PrometheusProvider, Provider, Providers,
};
use kubevitals_sink::{DataPoint, Sink, SinkCounts, SinkMetrics};
use kubevitals_telemetry::{Health, Metrics, Probe, Status};

use super::flags::{ProberFlags, ProviderName};
use crate::process::TaskSet;
use crate::proxy;

/// Longest wait for the metadata server at the start.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Lines of some thousand points.
const LINES_BUFFER: usize = 8 << 20;

/// Whether to report to Cloud Monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GcmChoice {
    Always,
    /// If the metadata server knows a cluster.
    OnGke,
    Never,
}

/// Settings of all providers.
#[derive(Debug, Clone)]
pub(super) struct ProviderSettings {
    gcm: GcmChoice,
    place: PlaceSource,
    endpoint: Uri,
    certificate: Option<PathBuf>,
    prefix: String,
    interval: Duration,
    otlp: Option<kubevitals_otlp::Settings>,
    pub(super) jsonl: bool,
    /// Attributes of all points.
    resource: Vec<(Arc<str>, Arc<str>)>,
}

/// The providers, with their metrics registered.
pub(super) struct StartedProviders {
    settings: ProviderSettings,
    prometheus: PrometheusProvider,
    /// `None` if Cloud Monitoring is out of the question.
    gcm: Option<(SinkMetrics, GcmMetrics)>,
    otlp: Option<SinkMetrics>,
    jsonl: Option<SinkMetrics>,
    clock: Clock,
}

/// JSON lines as a queue of data points.
struct Lines(PointLines);

impl PointQueue for Lines {
    fn push(&self, point: DataPoint) {
        let _ = self.0.push(&point);
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, SinkCounts> {
        self.0.shutdown(grace).boxed()
    }
}

impl ProviderSettings {
    pub(super) fn new(
        flags: &ProberFlags,
        prefix: &str,
        interval: Duration,
        get: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, InvalidSetting> {
        let chosen = &flags.reports.provider;
        let has = |provider| chosen.contains(&provider);
        let gcm = if has(ProviderName::Gcm) {
            GcmChoice::Always
        } else if chosen.is_empty() {
            GcmChoice::OnGke
        } else {
            GcmChoice::Never
        };
        let otlp = has(ProviderName::Otlp);
        let endpoint = &flags.gcm.gcm_endpoint;
        let cluster = flags.gcm.gcm_cluster.clone();
        let cluster_name = cluster.clone().or_else(|| get("CLUSTER_NAME"));
        let resource = cluster_name.map(|name| (Arc::from("k8s.cluster.name"), name.into()));
        Ok(Self {
            gcm,
            place: PlaceSource {
                project: flags.gcm.gcm_project.clone(),
                location: flags.gcm.gcm_location.clone(),
                cluster,
            },
            endpoint: endpoint.parse().map_err(|_| InvalidSetting {
                flag: "gcm-endpoint",
                value: endpoint.clone(),
                problem: "it is no URL".to_owned(),
                advice: "use https://HOST".to_owned(),
            })?,
            certificate: flags.gcm.gcm_certificate_authority.clone(),
            prefix: format!("workload.googleapis.com/{}", prefix.trim_matches('/')),
            interval,
            otlp: otlp.then(|| otlp_settings(flags, get)).transpose()?,
            jsonl: has(ProviderName::Jsonl),
            resource: resource.into_iter().collect(),
        })
    }

    /// Names the node that all points are about.
    pub(super) fn add_node(&mut self, name: &str) {
        self.resource.push(("k8s.node.name".into(), name.into()));
    }
}

fn otlp_settings(
    flags: &ProberFlags,
    get: &dyn Fn(&str) -> Option<String>,
) -> Result<kubevitals_otlp::Settings, InvalidSetting> {
    let flags = &flags.otlp;
    let source = SettingsSource {
        endpoint: flags.otlp_endpoint.clone(),
        protocol: flags.otlp_protocol,
        compression: flags.otlp_compression,
        headers_file: flags.otlp_headers_file.clone(),
        certificate: flags.otlp_certificate_authority.clone(),
    };
    let settings = kubevitals_otlp::Settings::read(Signal::METRICS, &source, get);
    let settings = settings.map_err(|error| InvalidSetting {
        flag: "otlp-endpoint",
        value: match &flags.otlp_endpoint {
            Some(url) if !url.contains('@') && !error.name.starts_with("OTEL_") => url.clone(),
            // A header is a secret, and a URL may have a password.
            _ => error.name,
        },
        problem: error.problem,
        advice: error.advice.to_owned(),
    })?;
    settings.ok_or_else(|| InvalidSetting {
        flag: "otlp-endpoint",
        value: String::new(),
        problem: "the provider otlp has no receiver".to_owned(),
        advice: "name one, such as http://collector:4318, or set OTEL_EXPORTER_OTLP_ENDPOINT"
            .to_owned(),
    })
}

impl StartedProviders {
    /// Registers the metrics of the providers. Prometheus is always one of them.
    pub(super) fn start(settings: ProviderSettings, metrics: &mut Metrics, clock: Clock) -> Self {
        let gcm = (settings.gcm != GcmChoice::Never).then(|| {
            (
                SinkMetrics::register(metrics.sub("kubevitals_prober_gcm_queue")),
                GcmMetrics::register(metrics.sub("kubevitals_prober_gcm")),
            )
        });
        let mut sink = |prefix: &str| SinkMetrics::register(metrics.sub(prefix));
        let otlp = settings.otlp.as_ref();
        let otlp = otlp.map(|_| sink("kubevitals_prober_otlp"));
        let jsonl = settings.jsonl.then(|| sink("kubevitals_prober_lines"));
        Self {
            gcm,
            otlp,
            jsonl,
            prometheus: PrometheusProvider::register(metrics),
            settings,
            clock,
        }
    }

    /// Opens the backends and starts their workers. `out` receives JSON lines.
    pub(super) async fn open(
        self,
        out: Option<Box<dyn Write + Send>>,
        health: &Health,
        tasks: &TaskSet,
    ) -> Result<Providers, RunError> {
        let mut all: Vec<Arc<dyn Provider>> = vec![Arc::new(self.prometheus.clone())];
        if let (Some(metrics), Some(settings)) = (&self.otlp, &self.settings.otlp) {
            all.push(Arc::new(self.otlp(metrics.clone(), settings, tasks)?));
        }
        if let (Some(metrics), Some(out)) = (&self.jsonl, out) {
            let lines = PointLines::start(out, LINES_BUFFER, metrics.clone());
            let lines = Lines(lines.context("cannot start the writer of JSON lines")?);
            all.push(Arc::new(self.points("jsonl", lines, Naming::Peer)));
        }
        if let Some((sink, metrics)) = &self.gcm {
            let gcm = self.gcm(sink.clone(), metrics.clone(), health, tasks);
            if let Some(gcm) = gcm.await? {
                all.push(Arc::new(gcm));
            }
        }
        let providers = Providers::new(all);
        tracing::info!(providers = providers.names().join(","), "reporting");
        Ok(providers)
    }

    fn points(
        &self,
        name: &'static str,
        queue: impl PointQueue + 'static,
        naming: Naming,
    ) -> PointsProvider {
        PointsProvider::new(name, queue, naming, self.settings.resource.clone())
    }

    fn otlp(
        &self,
        metrics: SinkMetrics,
        settings: &kubevitals_otlp::Settings,
        tasks: &TaskSet,
    ) -> Result<PointsProvider, RunError> {
        let rules = proxy::rules_of_environment();
        let proxy = rules.proxy_for(settings.is_tls(), settings.host(), settings.port());
        let client = OtlpClient::new(settings.clone(), proxy).map_err(RunError::runtime)?;
        let has_headers = !settings.headers.is_empty() || settings.headers_file.is_some();
        if has_headers && !settings.is_tls() {
            tracing::warn!("headers for the OTLP receiver are sent without encryption");
        }
        let (sink, worker) = Sink::new(kubevitals_otlp::metric_sink_config(), metrics);
        let resource = Resource::new(&super::identity(), |name| std::env::var(name).ok());
        let exporter = MetricExporter::new(client, resource);
        tasks.spawn("otlp-metrics", async move {
            worker.run(exporter).await;
            // It ends with the role, whose own error counts.
            std::future::pending::<()>().await;
        });
        Ok(self.points("otlp", sink, Naming::SemanticConventions))
    }

    /// Returns `None` if this process does not run on GKE and nobody asked for Cloud Monitoring.
    async fn gcm(
        &self,
        sink_metrics: SinkMetrics,
        metrics: GcmMetrics,
        health: &Health,
        tasks: &TaskSet,
    ) -> Result<Option<PointsProvider>, RunError> {
        let get = |name: &str| std::env::var(name).ok();
        let metadata = MetadataServer::new(get).map_err(RunError::runtime)?;
        if self.settings.gcm == GcmChoice::OnGke {
            let cluster = tokio::time::timeout(METADATA_TIMEOUT, metadata.cluster_name()).await;
            match cluster {
                Ok(Ok(cluster)) => tracing::info!(cluster, "on GKE: also reporting to gcm"),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "not on GKE");
                    return Ok(None);
                }
                Err(_) => return Ok(None),
            }
        }
        let credentials = Credentials::find(get).map_err(RunError::runtime)?;
        let instance = super::identity();
        let source = &self.settings.place;
        let place = Place::detect(source, get, &credentials, &metadata, &instance).await;
        let place = place.map_err(|error| InvalidSetting {
            flag: "gcm-project",
            value: String::new(),
            problem: error.to_string(),
            advice: "name the project of Google Cloud".to_owned(),
        })?;
        let endpoint = self.settings.endpoint.clone();
        let descriptions = Naming::Peer.descriptions();
        let settings = GcmSettings {
            certificate: self.settings.certificate.clone(),
            interval: self.settings.interval,
            descriptions: descriptions
                .into_iter()
                .map(|(name, text)| Description {
                    name: name.into(),
                    text: text.to_owned(),
                    labels: Vec::new(),
                })
                .collect(),
            endpoint: endpoint.clone(),
            ..GcmSettings::new(self.settings.prefix.clone(), place)
        };
        let rules = proxy::rules_of_environment();
        let is_tls = endpoint.scheme_str() != Some("http");
        let port = endpoint.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let proxy = rules.proxy_for(is_tls, endpoint.host().unwrap_or_default(), port);
        let clock = self.clock.clone();
        let exporter = GcmExporter::new(settings, credentials, metadata, proxy, clock, metrics);
        let exporter = exporter.map_err(RunError::runtime)?;
        let problem = exporter.health();
        let check = move || problem.problem().map_or(Status::Ok, Status::failing);
        health
            .check("gcm", Probe::READINESS, check)
            .map_err(RunError::runtime)?;
        let (sink, worker) = Sink::new(kubevitals_gcm::sink_config(), sink_metrics);
        tasks.spawn("gcm", async move {
            worker.run(exporter).await;
            // It ends with the role, whose own error counts.
            std::future::pending::<()>().await;
        });
        Ok(Some(self.points("gcm", sink, Naming::Peer)))
    }
}

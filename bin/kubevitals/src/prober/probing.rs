//! Wires probes: configuration, schedule, the page `/probe`, metrics of the scheduler.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_http::query::Query;
use kubevitals_model::Clock;
use kubevitals_prober::ProbeBoard;
use kubevitals_probes::{
    Allow, EndpointRequest, NoTargets, ProbeExecutor, Reloader, ReloaderOptions, Scheduler,
    SchedulerOptions, SystemResolver, Variables, render_probe,
};
use kubevitals_telemetry::{Page, PageRequest, PageResponse};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::config::ProbeSettings;

/// Runs at the same time.
const CONCURRENCY: usize = 256;

/// Results that are kept, and older failures.
const HISTORY: usize = 100;

/// Where Kubernetes mounts the service account of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The header in which Prometheus says how long it waits.
const SCRAPE_TIMEOUT: &str = "x-prometheus-scrape-timeout-seconds";

/// Probes that run.
#[derive(Clone)]
pub(super) struct Probing {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) reloader: Arc<Reloader>,
    executor: Arc<ProbeExecutor>,
}

/// Probes that may not run yet. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ProbingCell(Arc<OnceLock<Probing>>);

impl Probing {
    /// Reads the configuration and starts the probes. Call it inside a runtime.
    pub(super) fn start(
        settings: &ProbeSettings,
        kubernetes: &kube::Config,
        board: Arc<ProbeBoard>,
        clock: Clock,
    ) -> Result<Self, RunError> {
        let allow = Allow {
            exec: settings.allow_exec,
            ..Allow::default()
        };
        let resolver = Arc::new(SystemResolver);
        let executor = ProbeExecutor::new(clock.clone(), resolver, allow.clone());
        let executor = Arc::new(executor);
        let scheduler = Arc::new(Scheduler::new(SchedulerOptions {
            clock: clock.clone(),
            executor: Arc::<ProbeExecutor>::clone(&executor),
            sink: board,
            concurrency: CONCURRENCY,
            history: HISTORY,
        }));
        let started = Reloader::start(ReloaderOptions {
            clock,
            paths: settings.files.clone(),
            variables: variables(settings, kubernetes),
            builtins: settings.builtins.clone(),
            targets: Arc::new(NoTargets),
            scheduler: Arc::clone(&scheduler),
            executor: Some(Arc::clone(&executor)),
            allow,
        });
        let (reloader, applied) = started.map_err(|error| invalid(settings, &error))?;
        tracing::info!(targets = applied.added, "probing");
        for unavailable in reloader.config().unavailable() {
            tracing::warn!(
                probe = unavailable.probe,
                variable = unavailable.variable,
                "a built-in probe is not available: its variable is not set"
            );
        }
        Ok(Self {
            scheduler,
            reloader: Arc::new(reloader),
            executor,
        })
    }

    /// Probes a target for a request, with the metrics of blackbox_exporter.
    async fn respond(&self, request: PageRequest) -> PageResponse {
        let query = Query::new(Some(&request.query));
        let [target, module, hostname] =
            ["target", "module", "hostname"].map(|name| query.first(name));
        let scrape_timeout = request.headers.get(SCRAPE_TIMEOUT);
        let wanted = EndpointRequest {
            target: target.as_deref(),
            module: module.as_deref(),
            hostname: hostname.as_deref(),
            scrape_timeout: scrape_timeout.and_then(|value| value.to_str().ok()),
        };
        let probe = match self.reloader.config().endpoint(&wanted) {
            Ok(probe) => probe,
            Err(error) => {
                let status = StatusCode::from_u16(error.status());
                let status = status.unwrap_or(StatusCode::BAD_REQUEST);
                return PageResponse::text(status, format!("{error}\n"));
            }
        };
        let context = self.executor.context(probe.timeout);
        let prober = &probe.module.prober;
        let outcome = prober.run(&probe.target, &context).await;
        let text = render_probe(&outcome, prober.name(), probe.timeout);
        PageResponse {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            ..PageResponse::text(StatusCode::OK, text)
        }
    }
}

impl ProbingCell {
    pub(super) fn set(&self, probing: Probing) {
        let _ = self.0.set(probing);
    }

    /// The page `/probe`.
    pub(super) fn page(&self) -> Page {
        let cell = self.clone();
        let help = "probe a target that the configuration allows, as blackbox_exporter does";
        Page::new("/probe", help, move |request| {
            let cell = cell.clone();
            async move {
                match cell.0.get() {
                    Some(probing) => probing.respond(request).await,
                    None => PageResponse::text(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "probes have not been started yet\n",
                    ),
                }
            }
        })
    }
}

/// The variables that this process sets for probes.
fn variables(settings: &ProbeSettings, kubernetes: &kube::Config) -> Variables {
    let mut variables = Variables::default();
    if let Some(address) = settings.host_ip {
        variables.set_address(Variables::HOST_IP, address);
    }
    let server = kubernetes.cluster_url.to_string();
    variables.set(Variables::API_SERVER, server.trim_end_matches('/'));
    for (name, file) in [
        (Variables::TOKEN_FILE, "token"),
        (Variables::CA_FILE, "ca.crt"),
    ] {
        let path = Path::new(ACCOUNT).join(file);
        if path.is_file() {
            variables.set(name, &path.to_string_lossy());
        }
    }
    variables.set(Variables::METADATA_HOST, &settings.metadata_host);
    if let Ok(text) = std::fs::read_to_string("/etc/resolv.conf") {
        variables.set_resolv_conf(&text);
    }
    variables
}

fn invalid(settings: &ProbeSettings, error: &kubevitals_probes::ConfigError) -> InvalidSetting {
    let files = settings.files.iter().map(|file| file.display().to_string());
    InvalidSetting {
        flag: "probes",
        value: files.collect::<Vec<_>>().join(","),
        problem: kubevitals_cli::error_chain(error),
        advice: "correct the file".to_owned(),
    }
}

impl fmt::Debug for ProbingCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbingCell").finish_non_exhaustive()
    }
}

impl Collector for ProbingCell {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(probing) = self.0.get() else {
            return Ok(());
        };
        let stats = probing.scheduler.stats();
        let reload = probing.reloader.status();
        let is_good = reload.error.is_none();
        for (name, help, value) in [
            ("targets", "Number of targets of probes", stats.targets),
            ("in_flight", "Number of runs in progress", stats.in_flight),
            (
                "config_last_reload_successful",
                "Whether the files of probes, as they are now, are applied",
                usize::from(is_good),
            ),
        ] {
            let name = format!("kubevitals_probes_{name}");
            let family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(family)?;
        }
        for (name, help, value) in [
            ("started", "Total number of runs", stats.started),
            (
                "missed",
                "Total number of runs left out because the one before had not ended",
                stats.missed,
            ),
            ("panics", "Total number of runs that panicked", stats.panics),
            (
                "config_reloads",
                "Total number of configurations of probes that were applied",
                reload.successes,
            ),
            (
                "config_reload_failures",
                "Total number of changes of files of probes that were rejected",
                reload.failures,
            ),
        ] {
            let name = format!("kubevitals_probes_{name}");
            let family = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(family)?;
        }
        let help = "Total time from when runs were due to their start in seconds";
        let name = "kubevitals_probes_lag_seconds";
        let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(stats.lag.sum().as_secs_f64()).encode(family)
    }
}

//! Wires the export of traces: settings, queue, worker, and the flush at the end.

use std::time::Duration;

use kubevitals_cli::{InvalidSetting, RunError, Shutdown};
use kubevitals_otlp::{
    OtlpClient, Resource, Settings, SettingsSource, Signal, TraceExporter, TraceQueue,
};
use kubevitals_sink::SinkMetrics;
use kubevitals_telemetry::Metrics;
use kubevitals_transitions_role::RecordHook;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::flags::TraceFlags;
use super::identity;
use crate::process::TaskSet;
use crate::proxy;

/// Part of the grace period reserved for everything that follows the flush of the traces.
const SHUTDOWN_RESERVE: Duration = Duration::from_secs(1);

/// The export of traces, with its worker running.
pub(super) struct Traces {
    queue: TraceQueue,
}

/// The time at which shutdown was requested.
pub(super) struct RequestedAt(oneshot::Receiver<Instant>);

/// Validates the flags, and the variables that `get` returns; `None` if no traces are sent.
pub(super) fn settings(
    flags: &TraceFlags,
    get: impl Fn(&str) -> Option<String>,
) -> Result<Option<Settings>, InvalidSetting> {
    let source = SettingsSource {
        endpoint: flags.otlp_endpoint.clone(),
        protocol: flags.otlp_protocol,
        compression: flags.otlp_compression,
        headers_file: flags.otlp_headers_file.clone(),
        certificate: flags.otlp_certificate_authority.clone(),
    };
    Settings::read(Signal::TRACES, &source, get).map_err(|error| InvalidSetting {
        flag: "otlp-endpoint",
        value: match &flags.otlp_endpoint {
            Some(url) if !url.contains('@') && !error.name.starts_with("OTEL_") => url.clone(),
            // A header is a secret, and a URL may have a password.
            _ => error.name,
        },
        problem: error.problem,
        advice: error.advice.to_owned(),
    })
}

impl Traces {
    /// Registers the metrics of the queue and starts its worker among the tasks of the process.
    pub(super) fn start(
        settings: &Settings,
        metrics: &mut Metrics,
        tasks: &TaskSet,
    ) -> Result<Self, RunError> {
        let rules = proxy::rules_of_environment();
        let proxy = rules.proxy_for(settings.is_tls(), settings.host(), settings.port());
        let client = OtlpClient::new(settings.clone(), proxy).map_err(RunError::runtime)?;
        let has_headers = !settings.headers.is_empty() || settings.headers_file.is_some();
        if has_headers && !settings.is_tls() {
            tracing::warn!("headers for the OTLP receiver are sent without encryption");
        }
        tracing::info!(
            receiver = settings.host(),
            port = settings.port(),
            protocol = ?settings.protocol,
            is_tls = settings.is_tls(),
            is_proxied = proxy.is_some(),
            "starts of pods are sent as traces"
        );
        let sink = SinkMetrics::register(metrics.sub("kubevitals_transitions_spans"));
        let (queue, worker) = TraceQueue::new(sink);
        let resource = Resource::new(&identity(), |name| std::env::var(name).ok());
        let exporter = TraceExporter::new(client, resource);
        tasks.spawn("otlp-traces", async move {
            worker.run(exporter).await;
            // It ends with the role, whose own error counts.
            std::future::pending::<()>().await;
        });
        Ok(Self { queue })
    }

    /// Receives the records that this replica emits.
    pub(super) fn hook(&self) -> RecordHook {
        let queue = self.queue.clone();
        Box::new(move |output| queue.record(output))
    }

    /// Sends what is queued within what is left of the grace period.
    pub(super) async fn flush(self, grace: Duration, requested: RequestedAt) {
        let used = requested.elapsed();
        let left = grace.saturating_sub(SHUTDOWN_RESERVE).saturating_sub(used);
        let counts = self.queue.shutdown(left).await;
        if counts.dropped > 0 {
            tracing::warn!(
                dropped = counts.dropped,
                sent = counts.exported,
                "dropped spans"
            );
        }
    }
}

impl RequestedAt {
    /// Starts to wait for the request.
    pub(super) fn watch(mut shutdown: Shutdown) -> Self {
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            shutdown.requested().await;
            // The role may have failed meanwhile.
            let _ = sender.send(Instant::now());
        });
        Self(receiver)
    }

    fn elapsed(mut self) -> Duration {
        self.0.try_recv().map_or(Duration::ZERO, |at| at.elapsed())
    }
}

//! What the demo counts about its scrapes.

use kubevitals_telemetry::registry::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// The demo's metrics.
#[derive(Debug, Clone, Default)]
pub(super) struct DemoMetrics {
    scrapes: Family<ScrapeLabels, Counter>,
    /// Bytes of all bodies.
    pub(super) body_bytes: Counter,
    /// Lines that did not parse.
    pub(super) bad_lines: Counter,
    /// Containers with a rate after the last scrape.
    pub(super) containers: Gauge,
}

/// How a scrape ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Ok,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScrapeLabels {
    result: &'static str,
}

impl DemoMetrics {
    /// Registers the metrics; `registry` has the prefix `kubevitals_demo`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("scrapes", "Scrapes by result", metrics.scrapes.clone());
        registry.register(
            "body_bytes",
            "Bytes of all bodies",
            metrics.body_bytes.clone(),
        );
        registry.register(
            "bad_lines",
            "Lines that did not parse",
            metrics.bad_lines.clone(),
        );
        let help = "Containers with a rate after the last scrape";
        registry.register("containers", help, metrics.containers.clone());
        metrics
    }

    pub(super) fn scraped(&self, result: Outcome) {
        let result = match result {
            Outcome::Ok => "ok",
            Outcome::Failed => "failed",
        };
        self.scrapes.get_or_create(&ScrapeLabels { result }).inc();
    }
}

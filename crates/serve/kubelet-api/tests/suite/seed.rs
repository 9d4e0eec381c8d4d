//! The proposal that brought `/metrics/resource` to Virtual Kubelet, sentence by sentence where no
//! other test has it. The table is in `docs/adr/0048-kubelet-endpoints.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_kubelet_api::provider::{
    MetricFamily, MetricKind, MetricSample, ProviderFuture, ResourceMetrics,
};
use kubevitals_kubelet_api::{Provider, ProviderError};
use kubevitals_promtext::{Document, MetricType};

use crate::client::Client;
use crate::recorded::{self, RESOURCE_METRICS, SUMMARY};
use crate::support::{Invented, Running, everything};

/// What the proposal calls `GetMetricsResource`.
struct GetMetricsResource(Result<Vec<MetricFamily>, fn() -> ProviderError>);

impl ResourceMetrics for GetMetricsResource {
    fn families(&self) -> ProviderFuture<'_, Vec<MetricFamily>> {
        Box::pin(async {
            match &self.0 {
                Ok(families) => Ok(families.clone()),
                Err(error) => Err(error()),
            }
        })
    }
}

fn only(metrics: GetMetricsResource) -> Provider {
    let mut provider = Provider::default();
    provider.resource_metrics = Some(Arc::new(metrics));
    provider
}

/// "A provider returns metric families", and "the metrics server expects metrics to be encoded in
/// prometheus' text format".
#[tokio::test]
async fn families_of_a_provider_are_served_as_text() {
    let families = recorded::families(RESOURCE_METRICS[0]);
    let server = Running::open(only(GetMetricsResource(Ok(families)))).await;
    for path in ["/metrics/resource", "/metrics/resource/"] {
        let response = Client::of(&server).get(path).await;
        assert_eq!((response.code, response.text()), (200, RESOURCE_METRICS[0]));
        assert!(
            response
                .header("content-type")
                .starts_with("text/plain; version=0.0.4")
        );
    }
    server.stop().await;
}

/// Families take precedence over statistics, for a provider that has both.
#[tokio::test]
async fn families_take_precedence_over_statistics() {
    let invented = Arc::new(Invented {
        stats: Arc::new(recorded::summary(SUMMARY)),
        ..Invented::default()
    });
    let mut provider = everything(&invented);
    provider.resource_metrics = Some(Arc::<Invented>::clone(&invented));
    let server = Running::open(provider).await;
    let response = Client::of(&server).get("/metrics/resource").await;
    assert!(response.text().starts_with("# HELP z_first"));
    server.stop().await;
}

/// "An additive update": the old endpoint is served beside the new one, each by itself.
#[tokio::test]
async fn the_old_endpoint_is_served_beside_the_new_one() {
    let invented = Arc::new(Invented {
        stats: Arc::new(recorded::summary(SUMMARY)),
        ..Invented::default()
    });
    let server = Running::open(everything(&invented)).await;
    let client = Client::of(&server);
    assert_eq!(client.get("/stats/summary").await.text(), SUMMARY);
    assert_eq!(client.get("/metrics/resource").await.code, 200);
    server.stop().await;
    let server = Running::open(only(GetMetricsResource(Ok(Vec::new())))).await;
    let client = Client::of(&server);
    assert_eq!(client.get("/metrics/resource").await.code, 200);
    assert_eq!(
        client.get("/stats/summary").await.code,
        501,
        "`GetStatsSummary` is nil"
    );
    server.stop().await;
}

/// "If the passed in handler func is nil this will create handlers which only serves
/// http.StatusNotImplemented"; errors of the provider are errors of the request.
#[tokio::test]
async fn errors_of_families_are_responses() {
    let error: fn() -> ProviderError = || ProviderError::Unavailable(String::from("no cloud"));
    let server = Running::open(only(GetMetricsResource(Err(error)))).await;
    let response = Client::of(&server).get("/metrics/resource").await;
    assert_eq!((response.code, response.text()), (503, "no cloud\n"));
    server.stop().await;
    let server = Running::open(Provider::default()).await;
    assert_eq!(Client::of(&server).get("/metrics/resource").await.code, 501);
    server.stop().await;
}

/// The eight metrics of the proposal have the names, the types and the labels of today's, with
/// those that came later.
#[test]
fn all_metrics_of_the_proposal_are_written() {
    let stats = recorded::stats(RESOURCE_METRICS[0]);
    let text = kubevitals_kubelet_api::resource_metrics::encode_stats(&stats, true);
    let document = Document::parse(&text);
    let written: BTreeMap<&str, (Option<MetricType>, Vec<&str>)> = document
        .families()
        .iter()
        .map(|family| {
            let series = family.series().next().unwrap();
            let labels = series
                .labels
                .iter()
                .map(|(name, _)| name.as_str())
                .collect();
            (family.name().as_str(), (family.kind(), labels))
        })
        .collect();
    let container = || vec!["container", "namespace", "pod"];
    let pod = || vec!["namespace", "pod"];
    for (name, kind, labels) in [
        ("node_cpu_usage_seconds_total", MetricType::Counter, vec![]),
        ("node_memory_working_set_bytes", MetricType::Gauge, vec![]),
        (
            "container_cpu_usage_seconds_total",
            MetricType::Counter,
            container(),
        ),
        (
            "container_memory_working_set_bytes",
            MetricType::Gauge,
            container(),
        ),
        ("pod_cpu_usage_seconds_total", MetricType::Counter, pod()),
        ("pod_memory_working_set_bytes", MetricType::Gauge, pod()),
        ("scrape_error", MetricType::Gauge, vec![]),
        (
            "container_start_time_seconds",
            MetricType::Gauge,
            container(),
        ),
        ("node_swap_usage_bytes", MetricType::Gauge, vec![]),
        ("container_swap_usage_bytes", MetricType::Gauge, container()),
        ("container_swap_limit_bytes", MetricType::Gauge, container()),
        ("pod_swap_usage_bytes", MetricType::Gauge, pod()),
        ("resource_scrape_error", MetricType::Gauge, vec![]),
    ] {
        assert_eq!(written[name], (Some(kind), labels), "{name}");
    }
    assert_eq!(written.len(), 13);
}

/// A family has a name, a help, a type and its metrics, as `dto.MetricFamily`.
#[test]
fn a_family_is_that_of_prometheus() {
    let family = MetricFamily {
        name: String::from("n"),
        help: String::from("Two\nlines"),
        kind: MetricKind::Untyped,
        samples: vec![MetricSample {
            labels: Vec::new(),
            value: f64::INFINITY,
            timestamp: None,
        }],
    };
    let (text, _) = kubevitals_kubelet_api::resource_metrics::encode_families(&[family]);
    assert_eq!(text, b"# HELP n Two\\nlines\n# TYPE n untyped\nn +Inf\n");
}

//! The complete responses of `/readyz?verbose` and `/metrics`.

use std::time::Duration;

use kubevitals_telemetry::{
    BuildInfo, HistogramFamily, HistogramSpec, LabelSet, Limits, Metrics, NativeOptions, Probe,
    Status,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Unit,
};

use crate::Harness;

const FROM_PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;q=0.5,\
                               application/openmetrics-text;version=0.0.1;q=0.4,\
                               text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScrapeLabels {
    zone: &'static str,
    node: &'static str,
}

/// One metric of each kind, with values that the two text formats write differently.
fn one_of_each() -> Metrics {
    let mut metrics = Metrics::new();
    let build = BuildInfo {
        version: "1.2.3",
        revision: Some("abc"),
        rustc: None,
    };
    build.register(metrics.sub("kubevitals"));
    let registry = metrics.sub("kubevitals_scrape");

    let requests = Family::<ScrapeLabels, Counter>::default();
    requests
        .get_or_create(&ScrapeLabels {
            zone: "b",
            node: "n\"1\"\\\n",
        })
        .inc_by(1_234_567);
    requests
        .get_or_create(&ScrapeLabels {
            zone: "a",
            node: "n2",
        })
        .inc();
    registry.register("requests", "Requests with \"quotes\"", requests);

    let age: Gauge<f64, std::sync::atomic::AtomicU64> = Gauge::default();
    age.set(0.000_012_5);
    registry.register_with_unit("age", "Age of the oldest sample", Unit::Seconds, age);

    let duration = Histogram::new([0.005, 1.0, 2.5]);
    for seconds in [0.001, 0.5, 1.0, 9.0] {
        duration.observe(seconds);
    }
    registry.register_with_unit("duration", "Time of a scrape", Unit::Seconds, duration);

    registry.register(
        "kubelet",
        "The kubelet",
        Info::new(vec![("version", "v1.37.1")]),
    );
    metrics
}

#[tokio::test]
async fn readyz_verbose() {
    let server = Harness::start(Limits::default()).await;
    let health = &server.health;
    health.cell("watch-nodes", Probe::ALL, Status::Ok).unwrap();
    health
        .cell(
            "metric-storage-ready",
            Probe::READINESS,
            Status::warming_up("first scrape of 3 nodes"),
        )
        .unwrap();
    health
        .check("scrape-errors", Probe::READINESS, || {
            Status::failing("12 of 14 nodes return 401")
        })
        .unwrap();
    let response = server.get("/readyz?verbose").await;
    assert_eq!(response.status, 500);
    insta::assert_snapshot!(response.body);
}

#[tokio::test]
async fn metrics_for_prometheus() {
    let server = Harness::with_metrics(one_of_each(), Limits::default()).await;
    let accept = [("Accept", FROM_PROMETHEUS)];
    let response = server
        .connect()
        .await
        .send("GET", "/metrics", &accept, "")
        .await;
    assert_eq!(
        response.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    // The library keeps series in a hash map: the order of these two lines is not defined.
    let mut lines: Vec<&str> = response.body.lines().collect();
    let first = lines
        .iter()
        .position(|line| line.starts_with("kubevitals_scrape_requests_"))
        .unwrap();
    lines[first..first + 2].sort_unstable();
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn metrics_for_other_clients() {
    let server = Harness::with_metrics(one_of_each(), Limits::default()).await;
    let accept = [("Accept", "*/*")];
    let response = server
        .connect()
        .await
        .send("GET", "/metrics", &accept, "")
        .await;
    assert_eq!(
        response.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    insta::assert_snapshot!(response.body);
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NoLabels;

impl LabelSet for NoLabels {
    fn visit(&self, _: &mut dyn FnMut(&str, &str)) {}
}

#[tokio::test]
async fn metrics_for_a_prometheus_with_native_histograms() {
    let mut metrics = one_of_each();
    let spec = HistogramSpec {
        name: "wait_duration_seconds",
        help: "Waits",
        bounds: &[1.0],
        native: Some(NativeOptions::default()),
    };
    let waits = HistogramFamily::register(&mut metrics, spec);
    waits.observe(&NoLabels, Duration::from_millis(500));
    let server = Harness::with_metrics(metrics, Limits::default()).await;
    let mut client = server.connect().await;
    let accept = format!(
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,{FROM_PROMETHEUS}"
    );
    let protobuf = client
        .send("GET", "/metrics", &[("Accept", &accept)], "")
        .await;
    assert_eq!(protobuf.status, 200);
    assert_eq!(
        protobuf.header("content-type"),
        Some(
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
        )
    );
    assert!(protobuf.body.contains("wait_duration_seconds"));
    let text = client.send("GET", "/metrics", &[], "").await;
    let line = "\nwait_duration_seconds_bucket{le=\"1\"} 1\n";
    assert!(text.body.contains(line), "{}", text.body);
}

#[test]
fn every_process_has_process_and_build_metrics() {
    let build = BuildInfo {
        version: "1.2.3",
        revision: None,
        rustc: None,
    };
    let mut metrics = Metrics::new().with_process(&build);
    kubevitals_telemetry::AdminMetrics::register(metrics.sub("kubevitals_admin"));
    let names = metrics.freeze().families().unwrap();
    if cfg!(target_os = "linux") {
        insta::assert_snapshot!(names.join("\n"));
    }
}

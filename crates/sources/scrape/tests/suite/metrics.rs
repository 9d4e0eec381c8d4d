//! Metrics and health.

use kubevitals_sim::faults::Fault;
use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{Health, Probe};

use crate::harness::{Harness, NODES};

#[tokio::test]
async fn metrics_count_scrapes_and_failures() {
    let harness = Harness::start().await;
    harness
        .cluster
        .fleet()
        .faults()
        .set(NODES[0], Fault::Forbidden);
    let running = harness.scrape(harness.config());
    running.events.first_error(NODES[0]).await;
    running.events.first_batch(NODES[1]).await;
    insta::assert_snapshot!(running.registry.families().unwrap().join("\n"));
    let text = String::from_utf8(running.registry.encode(Format::OpenMetrics).unwrap()).unwrap();
    for line in [
        r#"metrics_server_kubelet_request_total{success="false"}"#,
        r#"metrics_server_kubelet_request_duration_seconds_bucket{node="node-00001",le="0.005"}"#,
        r#"metrics_server_kubelet_last_request_time_seconds{node="node-00000"} 1"#,
        r#"metrics_server_manager_tick_duration_seconds_bucket{le="0.9"}"#,
        r#"kubevitals_scrape_failures_total{reason="annotation"} 0"#,
        r#"kubevitals_scrape_nodes{state="excluded"} 0"#,
        r#"kubevitals_scrape_failures_total{reason="tls-pin"} 0"#,
        r#"kubevitals_scrape_nodes{state="failing"} 1"#,
        r#"kubevitals_scrape_nodes{state="ok"} 1"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains(r#"reason="http-403"} 0"#), "{text}");
    let counts = running.scraper.counts();
    assert_eq!((counts.new, counts.ok, counts.failing), (0, 1, 1));
    harness.shutdown(running).await;
}

#[tokio::test]
async fn liveness_reports_a_stopped_scraper() {
    let harness = Harness::start().await;
    let running = harness.scrape(harness.config());
    let health = Health::new();
    running.scraper.add_livez(&health).unwrap();
    running.events.first_batch(NODES[0]).await;
    let verdict = health.report_one(Probe::Livez, "metric-collection-timely");
    assert_eq!(verdict.unwrap().reason(), None);
    running.scraper.shutdown().await;
    let verdict = health.report_one(Probe::Livez, "metric-collection-timely");
    assert_eq!(verdict.unwrap().reason(), Some("scraper has stopped"));
}

//! Metrics and health.

use kubevitals_sim::faults::Fault;
use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{Health, Probe};

use crate::bed::{Bed, NODES};

#[tokio::test]
async fn metrics_have_their_names_and_count_what_happened() {
    let bed = Bed::start().await;
    bed.cluster.fleet().faults().set(NODES[0], Fault::Forbidden);
    let scrape = bed.scrape(bed.config());
    scrape.notes.failure(NODES[0]).await;
    scrape.notes.first(NODES[1]).await;
    insta::assert_snapshot!(scrape.registry.families().unwrap().join("\n"));
    let text = String::from_utf8(scrape.registry.encode(Format::OpenMetrics).unwrap()).unwrap();
    for line in [
        r#"metrics_server_kubelet_request_total{success="false"}"#,
        r#"metrics_server_kubelet_request_duration_seconds_bucket{le="0.005",node="node-00001"}"#,
        r#"metrics_server_kubelet_last_request_time_seconds{node="node-00000"} 1"#,
        r#"metrics_server_manager_tick_duration_seconds_bucket{le="0.9"}"#,
        r#"kubevitals_scrape_failures_total{reason="tls-pin"} 0"#,
        r#"kubevitals_scrape_nodes{state="failing"} 1"#,
        r#"kubevitals_scrape_nodes{state="ok"} 1"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains(r#"reason="http-403"} 0"#), "{text}");
    let counts = scrape.scraper.counts();
    assert_eq!((counts.new, counts.ok, counts.failing), (0, 1, 1));
    bed.end(scrape).await;
}

#[tokio::test]
async fn scraping_is_timely_while_it_runs() {
    let bed = Bed::start().await;
    let scrape = bed.scrape(bed.config());
    let health = Health::new();
    scrape.scraper.add_livez(&health).unwrap();
    scrape.notes.first(NODES[0]).await;
    let verdict = health.report_one(Probe::Livez, "metric-collection-timely");
    assert_eq!(verdict.unwrap().reason(), None);
    scrape.scraper.shutdown().await;
    let verdict = health.report_one(Probe::Livez, "metric-collection-timely");
    assert_eq!(verdict.unwrap().reason(), Some("scraping has ended"));
}

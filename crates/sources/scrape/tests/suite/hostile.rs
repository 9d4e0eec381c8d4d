//! Many nodes that misbehave at once, and the limits that they share with the others.

use std::time::Duration;

use kubevitals_sim::faults::Fault;
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::logs::{LogCapture, LogOptions};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::harness::{Event, Harness, NODES, is_batch};

/// Adds nodes whose kubelets accept connections and send nothing. They come first in lists.
#[expect(clippy::indexing_slicing, reason = "absent fields are created")]
async fn add_silent_nodes(harness: &Harness, count: usize) -> TcpListener {
    // The kernel completes connections, whether they are accepted or not.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let template = harness.node(NODES[0]);
    for number in 0..count {
        let mut node = template.clone();
        node["metadata"] = json!({"name": format!("a-silent-{number:03}")});
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
        node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = json!(port);
        harness
            .api()
            .writer()
            .create(Resource::Nodes, node)
            .unwrap();
    }
    listener
}

/// Healthy nodes once waited behind them, until their timeouts: 64 handshakes at a time.
#[tokio::test]
async fn kubelets_that_stay_silent_do_not_delay_others() {
    let harness = Harness::start().await;
    let _listener = add_silent_nodes(&harness, 100).await;
    let mut config = harness.config();
    // The timeout of a silent one is longer than this test waits.
    config.resolution = Duration::from_mins(10);
    config.timeout = Duration::from_mins(9);
    let running = harness.scrape(config);
    for node in NODES {
        running.events.first_batch(node).await;
    }
    let all = running.events.all();
    assert!(all.iter().all(|event| matches!(event, Event::Batch { .. })));
    harness.shutdown(running).await;
}

#[tokio::test]
async fn as_many_nodes_are_scraped_at_once_as_configured() {
    let harness = Harness::start().await;
    let listener = add_silent_nodes(&harness, 10).await;
    for node in NODES {
        harness
            .api()
            .writer()
            .delete(Resource::Nodes, None, node)
            .unwrap();
    }
    let mut config = harness.config();
    config.resolution = Duration::from_mins(10);
    config.timeout = Duration::from_mins(9);
    config.concurrency = 4;
    let running = harness.scrape(config);
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(listener.accept().await.unwrap());
    }
    let early = timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(early.is_err(), "{early:?}");
    // A scrape that ends makes room for the next.
    open.pop();
    open.push(listener.accept().await.unwrap());
    running.events.wait_for_errors(0, 1).await;
    harness.shutdown(running).await;
}

/// Every node sends more than is read, or drops the connection. None is reported as slow.
#[tokio::test]
async fn nodes_that_send_endless_bodies_all_at_once_fail_with_a_reason_of_their_own() {
    let harness = Harness::start().await;
    for node in NODES {
        let faults = harness.cluster.fleet().faults();
        assert!(faults.set(node, Fault::Huge(2 << 30)));
    }
    let mut config = harness.config();
    config.resolution = Duration::from_mins(2);
    config.timeout = Duration::from_mins(1);
    config.max_body_bytes = 6 << 20;
    let running = harness.scrape(config);
    for node in NODES {
        let error = running.events.first_error(node).await;
        assert_eq!(error.reason(), "too-large", "{error}");
    }
    harness.shutdown(running).await;
}

#[tokio::test]
async fn compressed_responses_give_the_same_samples() {
    let harness = Harness::start().await;
    let mut sizes = Vec::new();
    for compression in [false, true] {
        let mut config = harness.config();
        config.compression = compression;
        let running = harness.scrape(config);
        let event = running.events.first_batch(NODES[0]).await;
        let containers = event.containers();
        assert!(containers.iter().all(|c| c.sample.memory.is_some()));
        sizes.push(containers.len());
        running.scraper.shutdown().await;
    }
    assert!(sizes[0] >= 6 && sizes[0] == sizes[1], "{sizes:?}");
    harness.nodes.shutdown().await;
    harness.cluster.shutdown().await;
}

/// A failing node is in the log when it begins to fail, when the reason changes, and when it
/// recovers; not at each scrape.
#[tokio::test]
async fn the_log_has_one_line_per_change_of_state() {
    // This test runs on one thread, as do the tasks that it spawns.
    let log = LogCapture::start(&LogOptions::default());
    let harness = Harness::start().await;
    let faults = harness.cluster.fleet().faults().clone();
    let running = harness.scrape(harness.config());
    running.events.first_batch(NODES[0]).await;
    for fault in [Fault::Forbidden, Fault::ServerError] {
        faults.clear(NODES[0]);
        assert!(faults.set(NODES[0], fault));
        let from = running.events.all().len();
        running.events.wait_for_errors(from, 2).await;
    }
    faults.clear(NODES[0]);
    let from = running.events.all().len();
    let recovered = |event: &Event| is_batch(event, NODES[0]);
    running.events.wait(from, "recovery", recovered).await;
    let text = log.text();
    let lines = |needle: &str| {
        let matching = text.lines().filter(|line| line.contains(needle));
        matching.filter(|line| line.contains(NODES[0])).count()
    };
    assert_eq!(lines("failed to scrape node"), 2, "{text}");
    assert_eq!(lines("scrapes of node recovered"), 1, "{text}");
    assert!(!text.contains(NODES[1]), "{text}");
    harness.shutdown(running).await;
}

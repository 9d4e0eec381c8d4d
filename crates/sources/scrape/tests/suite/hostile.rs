//! Many nodes that misbehave at once, and the limits that they share with the others.

use std::time::Duration;

use kubevitals_sim::faults::Fault;
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::logs::{LogCapture, LogOptions};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::harness::{Event, Harness, NODES, is_batch, request, within};

/// Adds nodes whose kubelets accept connections and send nothing. They come first in lists.
#[expect(clippy::indexing_slicing, reason = "absent fields are created")]
async fn add_silent_nodes(harness: &Harness, count: usize, is_ready: bool) -> TcpListener {
    // The kernel completes connections, whether they are accepted or not.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let template = harness.node(NODES[0]);
    for number in 0..count {
        let mut node = template.clone();
        node["metadata"] = json!({"name": format!("a-silent-{number:03}")});
        let status = if is_ready { "True" } else { "False" };
        node["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
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
    let _listener = add_silent_nodes(&harness, 100, true).await;
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

/// They once took all permits, until their timeouts.
#[tokio::test]
async fn silent_kubelets_that_are_not_ready_leave_permits_to_others() {
    let harness = Harness::start().await;
    let _listener = add_silent_nodes(&harness, 10, false).await;
    let mut config = harness.config();
    config.resolution = Duration::from_mins(10);
    config.timeout = Duration::from_mins(9);
    config.concurrency = 4;
    let running = harness.scrape(config);
    for node in NODES {
        running.events.first_batch(node).await;
    }
    harness.shutdown(running).await;
}

/// Large bodies once were as many as there were nodes that sent them.
#[tokio::test]
async fn a_large_body_waits_for_the_memory_that_another_holds() {
    const LENGTH: usize = 15 << 20;
    let harness = Harness::start().await;
    let listeners = [
        harness.respond_for(NODES[0]).await,
        harness.respond_for(NODES[1]).await,
    ];
    let mut config = harness.config();
    config.allow_http = true;
    config.warm_start = false;
    config.resolution = Duration::from_mins(10);
    config.timeout = Duration::from_mins(9);
    let running = harness.scrape(config);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
    let mut streams = Vec::new();
    for listener in &listeners {
        let (mut stream, _) = request(listener).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    let (mut second, mut first) = (streams.pop().unwrap(), streams.pop().unwrap());
    // All but its end, which is more than sockets buffer: it has its memory, and keeps it.
    let body = vec![b'\n'; LENGTH - 1];
    let sent = first.write_all(&body);
    within("the first body is read", sent).await.unwrap();
    let sending = tokio::spawn(async move {
        second.write_all(&body).await.unwrap();
        second.write_all(b"\n").await.unwrap();
        second
    });
    let second = running.events.first_result(NODES[1]);
    let early = timeout(Duration::from_secs(1), second).await;
    assert!(early.is_err(), "it is read beside the first: {early:?}");
    first.write_all(b"\n").await.unwrap();
    for node in NODES {
        running.events.first_result(node).await;
    }
    within("the second body is sent", sending).await.unwrap();
    harness.shutdown(running).await;
}

#[tokio::test]
async fn as_many_nodes_are_scraped_at_once_as_configured() {
    let harness = Harness::start().await;
    let listener = add_silent_nodes(&harness, 10, true).await;
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
        open.push(within("a scrape", listener.accept()).await.unwrap());
    }
    let early = timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(early.is_err(), "{early:?}");
    // A scrape that ends makes room for the next.
    open.pop();
    let next = within("the next scrape", listener.accept()).await;
    open.push(next.unwrap());
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
async fn responses_are_compressed_if_configured() {
    let harness = Harness::start().await;
    let listener = harness.respond_for(NODES[0]).await;
    for compression in [true, false] {
        let mut config = harness.config();
        config.allow_http = true;
        config.compression = compression;
        let running = harness.scrape(config);
        let (_stream, head) = request(&listener).await;
        let accepts = head.to_lowercase().contains("accept-encoding: gzip");
        assert_eq!(accepts, compression, "{head}");
        within("the scraper ends", running.scraper.shutdown()).await;
    }
    harness.nodes.shutdown().await;
    harness.cluster.shutdown().await;
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

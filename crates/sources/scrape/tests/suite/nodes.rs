//! Nodes: addresses, endpoints, triggers, removal.

use std::time::Duration;

use kubevitals_scrape::AddressType;
use kubevitals_sim::faults::Fault;
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::harness::{Event, Harness, NODES, is_batch};

#[tokio::test]
async fn samples_equal_the_usage_of_the_simulated_containers() {
    let harness = Harness::start().await;
    let running = harness.scrape(harness.config());
    let mut checked = 0;
    for node in NODES {
        let event = running.events.first_batch(node).await;
        for container in event.containers() {
            let usage = harness.cluster.workload().with(|workload| {
                workload.usage(&container.namespace, &container.pod, &container.name)
            });
            let (usage, sample) = (usage.unwrap(), container.sample);
            let (cpu, memory) = (sample.cpu.unwrap(), sample.memory.unwrap());
            assert_eq!(cpu.total.get(), usage.cpu_nanos(cpu.at));
            assert_eq!(memory.bytes.count(), usage.memory_bytes(memory.at));
            assert_eq!(sample.started, Some(usage.started()));
            checked += 1;
        }
        let Event::Batch { sample, info, .. } = event else {
            panic!("no batch")
        };
        assert!(sample.cpu.is_some() && sample.memory.is_some());
        assert!(info.is_complete && info.is_new && info.next_scrape > info.requested_at);
    }
    assert!(checked >= 12, "{checked}");
    harness.shutdown(running).await;
}

#[tokio::test]
async fn nothing_is_scraped_before_the_sink_is_ready() {
    let harness = Harness::start().await;
    let (make_ready, ready) = tokio::sync::oneshot::channel();
    let ready = async { ready.await.unwrap_or_default() };
    let running = harness.scrape_after(ready, harness.config());
    assert!(harness.nodes.synced().await);
    // One thread: all tasks that are ready have run.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.scraper.counts().total(), 0);
    make_ready.send(()).unwrap();
    for node in NODES {
        running.events.first_batch(node).await;
    }
    harness.shutdown(running).await;
}

#[tokio::test]
async fn removed_nodes_lose_their_series_and_may_return() {
    let harness = Harness::start().await;
    let running = harness.scrape(harness.config());
    running.events.first_batch(NODES[0]).await;
    running.events.first_batch(NODES[1]).await;
    let series = || {
        let text = running
            .registry
            .encode(kubevitals_telemetry::exposition::Format::OpenMetrics);
        String::from_utf8(text.unwrap()).unwrap()
    };
    assert!(series().contains(NODES[0]));
    let node = harness.node(NODES[0]);
    let writer = harness.api().writer();
    writer.delete(Resource::Nodes, None, NODES[0]).unwrap();
    let removed = |event: &Event| matches!(event, Event::Removed { node } if node == NODES[0]);
    running.events.wait(0, "the removal", removed).await;
    assert!(!series().contains(NODES[0]), "{}", series());
    assert_eq!(running.scraper.counts().total(), 1);
    let from = running.events.all().len();
    writer.create(Resource::Nodes, node).unwrap();
    running
        .events
        .wait(from, "the node to return", |e| is_batch(e, NODES[0]))
        .await;
    let events = running.events.all();
    let index = events.iter().position(removed).unwrap();
    let back = events.iter().skip(index + 1).find(|e| e.node() == NODES[0]);
    assert!(matches!(back, Some(Event::Batch { .. })));
    harness.shutdown(running).await;
}

#[tokio::test]
async fn the_next_address_is_tried_if_one_does_not_work() {
    let harness = Harness::start().await;
    let mut node = harness.node(NODES[0]);
    let real = node["status"]["addresses"][0]["address"].clone();
    node["status"]["addresses"] = json!([
        {"type": "ExternalIP", "address": real},
        {"type": "InternalIP", "address": "127.200.0.1"},
        {"type": "Hostname", "address": "not.a.name.invalid"},
    ]);
    harness.write(node.clone());
    let mut config = harness.config();
    config.address_types = AddressType::ALL.to_vec();
    config.resolution = Duration::from_secs(6);
    config.timeout = Duration::from_secs(5);
    let running = harness.scrape(config);
    running.events.first_batch(NODES[0]).await;
    let fails = |e: &Event| matches!(e, Event::Error { .. }) && e.node() == NODES[0];
    assert!(!running.events.all().iter().any(fails));
    // Without the working address scrapes fail; with it the node is scraped again at once.
    let good = node.clone();
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "127.200.0.1"}]);
    harness.write(node);
    let failed = running.events.first_error(NODES[0]).await;
    assert_eq!(failed.reason(), "connect", "{failed}");
    let from = running.events.all().len();
    harness.write(good);
    running
        .events
        .wait(from, "a batch from the working address", |e| {
            is_batch(e, NODES[0])
        })
        .await;
    harness.shutdown(running).await;
}

#[tokio::test]
async fn a_node_without_addresses_has_a_reason_of_its_own() {
    let harness = Harness::start().await;
    let mut node = harness.node(NODES[0]);
    node["status"]["addresses"] = json!([]);
    harness.write(node);
    let running = harness.scrape(harness.config());
    assert_eq!(
        running.events.first_error(NODES[0]).await.reason(),
        "no-address"
    );
    harness.shutdown(running).await;
}

#[tokio::test]
async fn the_annotated_path_is_scraped() {
    let harness = Harness::start().await;
    let mut node = harness.node(NODES[0]);
    node["metadata"]["annotations"]["metrics.k8s.io/resource-metrics-path"] = json!("/elsewhere");
    harness.write(node);
    let running = harness.scrape(harness.config());
    let error = running.events.first_error(NODES[0]).await;
    assert!(
        error.to_string().contains("/elsewhere returned status 403"),
        "{error}"
    );
    harness.shutdown(running).await;
}

#[tokio::test]
async fn the_summary_is_the_fallback_for_a_missing_endpoint() {
    let harness = Harness::start().await;
    harness.allow_stats();
    harness
        .cluster
        .fleet()
        .faults()
        .set(NODES[0], Fault::NotFound);
    let running = harness.scrape(harness.config());
    let first = running.events.first_batch(NODES[0]).await;
    assert!(first.containers().len() >= 6);
    for container in first.containers() {
        let sample = container.sample;
        assert!(sample.cpu.is_some() && sample.memory.is_some() && sample.cpu_now.is_some());
    }
    let from = running.events.all().len();
    running
        .events
        .wait(from, "a second batch", |e| is_batch(e, NODES[0]))
        .await;
    assert!(
        !running
            .events
            .all()
            .iter()
            .any(|e| matches!(e, Event::Error { .. }))
    );
    harness.shutdown(running).await;
}

#[tokio::test]
async fn a_triggered_scrape_comes_before_the_scheduled_one() {
    let harness = Harness::start().await;
    let mut config = harness.config();
    config.resolution = Duration::from_secs(6);
    config.timeout = Duration::from_secs(5);
    let running = harness.scrape(config);
    // One that leaves time: triggers have an effect three times in a resolution at most.
    let has_time = |event: &Event| match event {
        Event::Batch { node, info, .. } => {
            node == NODES[0]
                && info.next_scrape.since(info.requested_at) > Some(Duration::from_millis(3_500))
        }
        _ => false,
    };
    let first = running.events.wait(0, "a long wait", has_time).await;
    let from = running.events.all().len();
    running.scraper.trigger(NODES[0]);
    running.scraper.trigger("no such node");
    let second = running
        .events
        .wait(from, "a triggered scrape", |e| is_batch(e, NODES[0]))
        .await;
    let info_of = |event| match event {
        Event::Batch { info, .. } => info,
        other => panic!("{other:?}"),
    };
    let (first, second) = (info_of(first), info_of(second));
    assert!(
        second.requested_at < first.next_scrape,
        "{first:?} {second:?}"
    );
    harness.shutdown(running).await;
}

#[tokio::test]
async fn connections_are_reused() {
    let harness = Harness::start().await;
    let mut config = harness.config();
    config.resolution = Duration::from_secs(2);
    config.timeout = Duration::from_secs(1);
    let running = harness.scrape(config);
    for node in NODES {
        running.events.first_batch(node).await;
        let mut from = 0;
        for _ in 0..3 {
            running
                .events
                .wait(from, "another batch", |e| is_batch(e, node))
                .await;
            from = running.events.all().len();
        }
    }
    let text = running
        .registry
        .encode(kubevitals_telemetry::exposition::Format::OpenMetrics);
    let text = String::from_utf8(text.unwrap()).unwrap();
    assert!(
        text.contains("kubevitals_scrape_connections_total 2"),
        "{text}"
    );
    harness.shutdown(running).await;
}

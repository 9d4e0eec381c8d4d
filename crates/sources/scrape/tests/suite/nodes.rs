//! Nodes: addresses, endpoints, triggers, removal.

use std::time::Duration;

use kubevitals_model::{Clock, SteppedClock, Timestamp};
use kubevitals_scrape::{AddressType, PORT, SCRAPE, ScrapeConfig};
use kubevitals_sim::faults::Fault;
use kubevitals_sim::kubelet::Binding;
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::harness::{Event, Harness, NODES, is_batch, within};

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
        assert!(info.is_complete && info.is_new && info.next_slot > info.requested_at);
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
    assert!(within("a list of nodes", harness.nodes.synced()).await);
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
    running
        .metrics("series of the node", |text| text.contains(NODES[0]))
        .await;
    let node = harness.node(NODES[0]);
    let writer = harness.api().writer();
    writer.delete(Resource::Nodes, None, NODES[0]).unwrap();
    running
        .metrics("the removal", |text| !text.contains(NODES[0]))
        .await;
    assert_eq!(running.scraper.counts().total(), 1);
    let from = running.events.all().len();
    writer.create(Resource::Nodes, node).unwrap();
    running
        .events
        .wait(from, "the node to return", |e| is_batch(e, NODES[0]))
        .await;
    harness.shutdown(running).await;
}

#[tokio::test]
async fn excluded_nodes_are_not_scraped_and_counted() {
    let harness = Harness::start().await;
    let mut node = harness.node(NODES[0]);
    node["metadata"]["annotations"][SCRAPE] = json!("false");
    harness.write(node.clone());
    let running = harness.scrape(harness.config());
    running.events.first_batch(NODES[1]).await;
    let excluded = r#"kubevitals_scrape_nodes{state="excluded"} 1"#;
    let text = running
        .metrics("the exclusion", |text| text.contains(excluded))
        .await;
    assert!(!text.contains(NODES[0]), "{text}");
    assert_eq!(running.scraper.counts().total(), 1);
    let events = running.events.all();
    assert!(events.iter().all(|event| event.node() != NODES[0]));
    // Included, and excluded again.
    let from = events.len();
    node["metadata"]["annotations"][SCRAPE] = json!("true");
    harness.write(node.clone());
    let is_own = |event: &Event| is_batch(event, NODES[0]);
    running.events.wait(from, "a batch", is_own).await;
    node["metadata"]["annotations"][SCRAPE] = json!("false");
    harness.write(node);
    running
        .metrics("the exclusion", |text| !text.contains(NODES[0]))
        .await;
    harness.shutdown(running).await;
}

#[tokio::test]
async fn an_invalid_annotation_is_the_reason_of_failure_until_it_is_corrected() {
    let harness = Harness::start().await;
    let mut node = harness.node(NODES[0]);
    node["metadata"]["annotations"][PORT] = json!("http");
    harness.write(node.clone());
    let running = harness.scrape(harness.config());
    let error = running.events.first_error(NODES[0]).await;
    assert_eq!(error.reason(), "annotation");
    assert_eq!(
        error.to_string(),
        r#"annotation kubevitals.io/port of the node is "http", expected a port from 1 to 65535"#
    );
    running.events.first_batch(NODES[1]).await;
    let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    node["metadata"]["annotations"][PORT] = json!(port.to_string());
    // The annotation takes precedence over the status.
    node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = json!(1);
    harness.write(node);
    running.events.first_batch(NODES[0]).await;
    harness.shutdown(running).await;
}

/// Two replicas once scraped a node at times that depended on their starts, so that a client which
/// alternated between them saw samples go back.
#[tokio::test]
async fn two_scrapers_of_one_cluster_have_the_same_slots() {
    let harness = Harness::start().await;
    let config = harness.config();
    let resolution = i64::try_from(config.resolution.as_millis()).unwrap();
    let first = harness.scrape(config.clone());
    first.events.first_batch(NODES[0]).await;
    // It starts at another phase of the resolution.
    let second = harness.scrape(config);
    for node in NODES {
        let mut phases = Vec::new();
        for running in [&first, &second] {
            let mut from = 0;
            for _ in 0..3 {
                let is_own = |event: &Event| is_batch(event, node);
                let Event::Batch { info, .. } = running.events.wait(from, "a batch", is_own).await
                else {
                    panic!("no batch")
                };
                // By the same clock: `None` is a slot in the past.
                let gap = info.next_slot.since(info.requested_at);
                let is_near = |gap| gap <= config_gap(resolution);
                assert!(gap.is_some_and(is_near), "{info:?}");
                phases.push(info.next_slot.unix_millis() % resolution);
                from = running.events.all().len();
            }
        }
        phases.dedup();
        assert_eq!(phases.len(), 1, "{node}: {phases:?}");
    }
    second.scraper.shutdown().await;
    harness.shutdown(first).await;
}

/// The longest wait for a slot: one that is closer than a quarter of a short resolution is skipped.
fn config_gap(resolution: i64) -> Duration {
    Duration::from_millis(resolution.unsigned_abs() * 5 / 4 + 10)
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
async fn kubelets_are_scraped_over_ipv6() {
    let harness = Harness::start_on(Binding::Ipv6Ports).await;
    let addresses = &harness.node(NODES[0])["status"]["addresses"];
    assert_eq!(addresses[0]["address"], "::1");
    let running = harness.scrape(harness.config());
    for node in NODES {
        let batch = running.events.first_batch(node).await;
        assert!(batch.containers().len() >= 6);
    }
    let faults = harness.cluster.fleet().faults();
    assert!(faults.set(NODES[0], Fault::Forbidden));
    let error = running.events.first_error(NODES[0]).await.to_string();
    assert!(error.starts_with("[::1]:"), "{error}");
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
                && info.next_slot.since(info.requested_at) > Some(Duration::from_millis(3_500))
        }
        Event::Error { .. } => false,
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
        other @ Event::Error { .. } => panic!("{other:?}"),
    };
    let (first, second) = (info_of(first), info_of(second));
    let is_later = |event: &Event| match event {
        Event::Batch { node, info, .. } => {
            node == NODES[0] && info.requested_at > second.requested_at
        }
        Event::Error { .. } => false,
    };
    let third = running.events.wait(from, "the next slot", is_later).await;
    let third = info_of(third);
    assert!(
        second.requested_at < first.next_slot,
        "{first:?} {second:?}"
    );
    let slots = [first.is_slot, second.is_slot, third.is_slot];
    assert_eq!(slots, [true, false, true], "{first:?} {second:?} {third:?}");
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

#[tokio::test]
async fn steps_of_the_wall_clock_do_not_stop_scraping() {
    let harness = Harness::start().await;
    let clock = SteppedClock::new(Clock::system().now());
    let config = ScrapeConfig {
        clock: clock.clock(),
        ..harness.config()
    };
    let running = harness.scrape(config);
    running.events.first_batch(NODES[0]).await;
    let hour = 3_600_000;
    for step in [hour, -hour, -hour, hour, i64::MIN / 4, i64::MAX / 4] {
        let stepped = clock.now().unix_millis().saturating_add(step);
        clock.set(Timestamp::from_unix_millis(stepped));
        for _ in 0..2 {
            let from = running.events.all().len();
            let is_own = |event: &Event| is_batch(event, NODES[0]);
            running.events.wait(from, "another batch", is_own).await;
        }
    }
    let is_error = |event: &Event| matches!(event, Event::Error { .. });
    assert!(!running.events.all().iter().any(is_error));
    harness.shutdown(running).await;
}

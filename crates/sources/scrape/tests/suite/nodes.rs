//! Which nodes are scraped, where, and how often.

use std::time::Duration;

use kubevitals_model::LabelSelector;
use kubevitals_scrape::AddressType;
use kubevitals_sim::faults::Fault;
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::bed::{Bed, Event, NODES, is_received};

#[tokio::test]
async fn what_is_received_is_true() {
    let bed = Bed::start().await;
    let scrape = bed.scrape(bed.config());
    let mut checked = 0;
    for node in NODES {
        let event = scrape.notes.first(node).await;
        for container in event.containers() {
            let usage = bed.cluster.workload().with(|workload| {
                workload.usage(&container.namespace, &container.pod, &container.name)
            });
            let (usage, sample) = (usage.unwrap(), container.sample);
            let (cpu, memory) = (sample.cpu.unwrap(), sample.memory.unwrap());
            assert_eq!(cpu.total.get(), usage.cpu_nanos(cpu.at));
            assert_eq!(memory.bytes.count(), usage.memory_bytes(memory.at));
            assert_eq!(sample.started, Some(usage.started()));
            checked += 1;
        }
        let Event::Received { sample, answer, .. } = event else {
            panic!("not received")
        };
        assert!(sample.cpu.is_some() && sample.memory.is_some());
        assert!(answer.is_complete && answer.is_new && answer.next > answer.asked);
    }
    assert!(checked >= 12, "{checked}");
    bed.end(scrape).await;
}

#[tokio::test]
async fn nothing_is_scraped_before_its_time() {
    let bed = Bed::start().await;
    let (begin, begun) = tokio::sync::oneshot::channel();
    let before = async { begun.await.unwrap_or_default() };
    let scrape = bed.scrape_after(before, bed.config());
    assert!(bed.nodes.synced().await);
    // One thread: whoever could have begun has had its turn.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(scrape.scraper.counts().total(), 0);
    begin.send(()).unwrap();
    for node in NODES {
        scrape.notes.first(node).await;
    }
    bed.end(scrape).await;
}

#[tokio::test]
async fn nodes_that_leave_are_forgotten_and_may_come_back() {
    let bed = Bed::start().await;
    let scrape = bed.scrape(bed.config());
    scrape.notes.first(NODES[0]).await;
    scrape.notes.first(NODES[1]).await;
    let series = || {
        let text = scrape
            .registry
            .encode(kubevitals_telemetry::exposition::Format::OpenMetrics);
        String::from_utf8(text.unwrap()).unwrap()
    };
    assert!(series().contains(NODES[0]));
    let node = bed.node(NODES[0]);
    let writer = bed.api().writer();
    writer.delete(Resource::Nodes, None, NODES[0]).unwrap();
    let left = |event: &Event| matches!(event, Event::Left { node } if node == NODES[0]);
    scrape.notes.wait(0, "the node left", left).await;
    assert!(!series().contains(NODES[0]), "{}", series());
    assert_eq!(scrape.scraper.counts().total(), 1);
    let from = scrape.notes.all().len();
    writer.create(Resource::Nodes, node).unwrap();
    scrape
        .notes
        .wait(from, "the node is back", |e| is_received(e, NODES[0]))
        .await;
    let events = scrape.notes.all();
    let gone = events.iter().position(left).unwrap();
    let back = events.iter().skip(gone + 1).find(|e| e.node() == NODES[0]);
    assert!(matches!(back, Some(Event::Received { .. })));
    bed.end(scrape).await;
}

#[tokio::test]
async fn only_selected_nodes_are_scraped() {
    let bed = Bed::start().await;
    let mut config = bed.config();
    let selector = format!("kubernetes.io/hostname={},!skip", NODES[1]);
    config.node_selector = LabelSelector::parse(&selector).unwrap();
    let scrape = bed.scrape(config);
    scrape.notes.first(NODES[1]).await;
    assert_eq!(scrape.scraper.counts().total(), 1);
    let mut node = bed.node(NODES[1]);
    node["metadata"]["labels"]["skip"] = json!("me");
    bed.write(node);
    let left = |event: &Event| matches!(event, Event::Left { .. });
    scrape.notes.wait(0, "it is selected no more", left).await;
    assert!(
        scrape
            .notes
            .all()
            .iter()
            .all(|event| event.node() == NODES[1])
    );
    bed.end(scrape).await;
}

#[tokio::test]
async fn an_address_that_does_not_work_gives_way_to_the_next() {
    let bed = Bed::start().await;
    let mut node = bed.node(NODES[0]);
    let real = node["status"]["addresses"][0]["address"].clone();
    node["status"]["addresses"] = json!([
        {"type": "ExternalIP", "address": real},
        {"type": "InternalIP", "address": "127.200.0.1"},
        {"type": "Hostname", "address": "not.a.name.invalid"},
    ]);
    bed.write(node.clone());
    let mut config = bed.config();
    config.address_types = AddressType::ALL.to_vec();
    config.resolution = Duration::from_secs(6);
    config.timeout = Duration::from_secs(5);
    let scrape = bed.scrape(config);
    scrape.notes.first(NODES[0]).await;
    let fails = |e: &Event| matches!(e, Event::Failed { .. }) && e.node() == NODES[0];
    assert!(!scrape.notes.all().iter().any(fails));
    // Without the one that works it fails, and with it again it is scraped at once.
    let good = node.clone();
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "127.200.0.1"}]);
    bed.write(node);
    let failed = scrape.notes.failure(NODES[0]).await;
    assert_eq!(failed.reason(), "connect", "{failed}");
    let from = scrape.notes.all().len();
    bed.write(good);
    scrape
        .notes
        .wait(from, "reachable again", |e| is_received(e, NODES[0]))
        .await;
    bed.end(scrape).await;
}

#[tokio::test]
async fn a_node_without_addresses_says_so() {
    let bed = Bed::start().await;
    let mut node = bed.node(NODES[0]);
    node["status"]["addresses"] = json!([]);
    bed.write(node);
    let scrape = bed.scrape(bed.config());
    assert_eq!(scrape.notes.failure(NODES[0]).await.reason(), "no-address");
    bed.end(scrape).await;
}

#[tokio::test]
async fn the_path_that_a_node_states_is_asked_for() {
    let bed = Bed::start().await;
    let mut node = bed.node(NODES[0]);
    node["metadata"]["annotations"]["metrics.k8s.io/resource-metrics-path"] = json!("/elsewhere");
    bed.write(node);
    let scrape = bed.scrape(bed.config());
    let failure = scrape.notes.failure(NODES[0]).await;
    assert!(
        failure.to_string().contains("/elsewhere answers 403"),
        "{failure}"
    );
    bed.end(scrape).await;
}

#[tokio::test]
async fn the_summary_stands_in_for_an_endpoint_that_a_node_lacks() {
    let bed = Bed::start().await;
    bed.allow_stats();
    bed.cluster.fleet().faults().set(NODES[0], Fault::NotFound);
    let scrape = bed.scrape(bed.config());
    let first = scrape.notes.first(NODES[0]).await;
    assert!(first.containers().len() >= 6);
    for container in first.containers() {
        let sample = container.sample;
        assert!(sample.cpu.is_some() && sample.memory.is_some() && sample.cpu_now.is_some());
    }
    let from = scrape.notes.all().len();
    scrape
        .notes
        .wait(from, "again", |e| is_received(e, NODES[0]))
        .await;
    assert!(
        !scrape
            .notes
            .all()
            .iter()
            .any(|e| matches!(e, Event::Failed { .. }))
    );
    bed.end(scrape).await;
}

#[tokio::test]
async fn a_nudge_is_followed_before_the_plan() {
    let bed = Bed::start().await;
    let mut config = bed.config();
    config.resolution = Duration::from_secs(6);
    config.timeout = Duration::from_secs(5);
    let scrape = bed.scrape(config);
    // One that leaves time: nudges are heeded thrice in a resolution at most.
    let has_time = |event: &Event| match event {
        Event::Received { node, answer, .. } => {
            node == NODES[0] && answer.next.since(answer.asked) > Some(Duration::from_millis(3_500))
        }
        _ => false,
    };
    let first = scrape.notes.wait(0, "a plan", has_time).await;
    let from = scrape.notes.all().len();
    scrape.scraper.nudge(NODES[0]);
    scrape.scraper.nudge("no such node");
    let second = scrape
        .notes
        .wait(from, "nudged", |e| is_received(e, NODES[0]))
        .await;
    let answer = |event| match event {
        Event::Received { answer, .. } => answer,
        other => panic!("{other:?}"),
    };
    let (first, second) = (answer(first), answer(second));
    assert!(second.asked < first.next, "{first:?} {second:?}");
    bed.end(scrape).await;
}

#[tokio::test]
async fn connections_are_kept_and_the_second_scrape_is_no_repetition_of_the_first() {
    let bed = Bed::start().await;
    let mut config = bed.config();
    config.resolution = Duration::from_secs(2);
    config.timeout = Duration::from_secs(1);
    let scrape = bed.scrape(config);
    for node in NODES {
        scrape.notes.first(node).await;
        let mut from = 0;
        for _ in 0..3 {
            scrape
                .notes
                .wait(from, "one more", |e| is_received(e, node))
                .await;
            from = scrape.notes.all().len();
        }
    }
    let text = scrape
        .registry
        .encode(kubevitals_telemetry::exposition::Format::OpenMetrics);
    let text = String::from_utf8(text.unwrap()).unwrap();
    assert!(
        text.contains("kubevitals_scrape_connections_total 2"),
        "{text}"
    );
    bed.end(scrape).await;
}

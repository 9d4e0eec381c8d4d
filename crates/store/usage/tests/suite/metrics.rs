//! Names and values of metrics.

use prometheus_client::registry::Registry;

use crate::harness::{CORE_SECOND, Harness, batch, moment, of_node, row, row_of, uid};

#[test]
fn scrapes_and_failures_are_counted() {
    let harness = Harness::with_pod();
    let mut registry = Registry::default();
    harness.store.metrics().register(&mut registry);
    harness.node("n2");
    harness.pod("n2", "default/elsewhere");
    for (now, total) in [(0, 10), (15_000, 25), (15_000, 25), (7_000, 12)] {
        let mut scrape = batch(&[
            row("app", now, total * CORE_SECOND),
            row_of("default/elsewhere", "app", now, total),
            row_of("default/unknown", "app", now, total),
        ]);
        scrape.node = of_node(now, total * CORE_SECOND).node;
        harness
            .store
            .ingest("n1", &uid("n1"), &scrape, moment(now + 1_000));
        harness
            .store
            .ingest("gone", &uid("gone"), &scrape, moment(now + 1_000));
    }
    harness.scrape(31_000, &[row("app", 30_000, 9).started(18_000)]);
    harness.scrape(46_000, &[row("app", 45_000, 8).started(18_000)]);
    harness.fail(50_000, "timed out");
    harness.store.expire(moment(65_000));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    // The order of series within a family is that of a hash table.
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn gauges_return_to_zero_when_everything_is_deleted() {
    let harness = Harness::with_pod();
    let mut registry = Registry::default();
    harness.store.metrics().register(&mut registry);
    for (now, total) in [(0, 10), (15_000, 25)] {
        let mut scrape = batch(&[row("app", now, total * CORE_SECOND)]);
        scrape.node = of_node(now, total * CORE_SECOND).node;
        harness
            .store
            .ingest("n1", &uid("n1"), &scrape, moment(now + 1_000));
    }
    harness.fail(17_000, "timed out");
    let gauges = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let is_gauge = |line: &&str| {
            !line.starts_with('#') && !line.contains("_total{") && !line.contains("_total ")
        };
        let values = text.lines().filter(is_gauge).map(|line| {
            let value = line.rsplit(' ').next().unwrap();
            value.parse::<u32>().unwrap()
        });
        values.collect::<Vec<_>>()
    };
    assert_eq!(
        gauges().iter().sum::<u32>(),
        9,
        "all but the excluded nodes"
    );
    harness.store.node_deleted("n1", &uid("n1"), moment(0));
    assert_eq!(gauges(), [0; 10]);
}

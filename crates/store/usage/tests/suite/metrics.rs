//! Names of metrics, so that a rename is seen, and what they count.

use prometheus_client::registry::Registry;

use crate::world::{CORE_SECOND, World, at, batch, of_node, row, row_of};

#[test]
fn what_happened_is_counted() {
    let world = World::with_pod();
    let mut registry = Registry::default();
    world.store.metrics().register(&mut registry);
    world.node("n2");
    world.pod("n2", "default/elsewhere");
    for (now, total) in [(0, 10), (15_000, 25), (15_000, 25), (7_000, 12)] {
        let mut answer = batch(&[
            row("app", now, total * CORE_SECOND),
            row_of("default/elsewhere", "app", now, total),
            row_of("default/unknown", "app", now, total),
        ]);
        answer.node = of_node(now, total * CORE_SECOND).node;
        world.store.ingest("n1", &answer, at(now + 1_000));
        world.store.ingest("gone", &answer, at(now + 1_000));
    }
    world.scrape(31_000, &[row("app", 30_000, 9).started(18_000)]);
    world.scrape(46_000, &[row("app", 45_000, 8).started(18_000)]);
    world.fail(50_000, "timed out");
    world.store.expire(at(65_000));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    // Within a family series come in the order of a hash table.
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn gauges_return_to_zero_when_everything_has_gone() {
    let world = World::with_pod();
    let mut registry = Registry::default();
    world.store.metrics().register(&mut registry);
    for (now, total) in [(0, 10), (15_000, 25)] {
        let mut answer = batch(&[row("app", now, total * CORE_SECOND)]);
        answer.node = of_node(now, total * CORE_SECOND).node;
        world.store.ingest("n1", &answer, at(now + 1_000));
    }
    world.fail(17_000, "timed out");
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
    assert_eq!(gauges(), [1; 7]);
    world.store.node_deleted("n1");
    assert_eq!(gauges(), [0; 7]);
}

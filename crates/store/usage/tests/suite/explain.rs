//! Why there is nothing: the sentences that callers read.

use std::sync::Arc;

use kubevitals_model::PodPhase;

use crate::world::{CORE_SECOND, Row, World, at, of_node, pod, row};

fn old(container: &str, millis: i64, total: u64) -> Row {
    row(container, millis, total).started(-86_400_000)
}

#[test]
fn a_pod_is_not_known_or_does_not_run() {
    let world = World::new();
    insta::assert_snapshot!(world.explain(0), @"pod is not known");
    let mut waiting = pod("", "default/web-0");
    waiting.phase = PodPhase::Pending;
    world.store.pod_applied(&Arc::new(waiting));
    insta::assert_snapshot!(world.explain(0), @"pod is not scheduled to a node yet");
    let mut waiting = pod("n1", "default/web-0");
    waiting.phase = PodPhase::Pending;
    world.store.pod_applied(&Arc::new(waiting));
    insta::assert_snapshot!(world.explain(0), @"pod is Pending, and only running pods have metrics");
    world.store.pod_deleted(&pod("n1", "default/web-0"));
    insta::assert_snapshot!(world.explain(0), @"pod is not known");
}

#[test]
fn its_node_is_not_known_or_was_not_asked_or_does_not_answer() {
    let world = World::new();
    world.pod("n2", "default/web-0");
    insta::assert_snapshot!(world.explain(0), @"node n2 is not known");
    let world = World::with_pod();
    insta::assert_snapshot!(world.explain(0), @"node n1 was not asked yet");
    world.fail(1_000, "certificate is not valid for 10.0.0.3");
    insta::assert_snapshot!(
        world.explain(4_000),
        @"node n1: certificate is not valid for 10.0.0.3 (asked again in 12 s)"
    );
    insta::assert_snapshot!(
        world.explain(40_000),
        @"node n1: certificate is not valid for 10.0.0.3"
    );
    world.scrape(46_000, &[]);
    insta::assert_snapshot!(
        world.explain(48_000),
        @"node n1 answered 2 s ago, but has not reported it"
    );
}

#[test]
fn its_samples_make_no_usage_yet() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, CORE_SECOND)]);
    insta::assert_snapshot!(
        world.explain(8_000),
        @"container app: first sample 7 s old, second due in 8 s"
    );
    insta::assert_snapshot!(
        world.explain(20_000),
        @"container app: first sample 19 s old, second overdue"
    );
    world.scrape(16_000, &[old("app", 15_000, 1)]);
    insta::assert_snapshot!(
        world.explain(17_000),
        @"container app: the counter of cpu time went backwards, next sample due in 14 s"
    );
    world.scrape(31_000, &[row("app", 30_000, 1).started(25_000)]);
    insta::assert_snapshot!(
        world.explain(32_000),
        @"container app: the container started too recently, next sample due in 14 s"
    );
    world.scrape(46_000, &[row("app", 200_000, 1).started(25_000)]);
    insta::assert_snapshot!(
        world.explain(47_000),
        @"container app: the clock of the node jumped, next sample due in 14 s"
    );
}

#[test]
fn a_part_is_missing() {
    let world = World::with_pod();
    let without_cpu = old("app", 0, 0).with(|own| own.cpu = None);
    world.scrape(1_000, &[without_cpu]);
    insta::assert_snapshot!(world.explain(2_000), @"container app: the node reports no cpu time");
    for (now, total) in [(15_000, 1), (30_000, 2)] {
        let world = &world;
        let without = old("side", now, total * CORE_SECOND).with(|own| own.memory = None);
        world.scrape(now + 1_000, &[without]);
    }
    insta::assert_snapshot!(world.explain(32_000), @"container side: the node reports no memory");
}

#[test]
fn its_value_became_too_old() {
    let world = World::with_pod();
    world.scrape(1_000, &[old("app", 0, 10 * CORE_SECOND)]);
    world.scrape(16_000, &[old("app", 15_000, 25 * CORE_SECOND)]);
    insta::assert_snapshot!(world.explain(17_000), @"metrics have just arrived; ask again");
    world.store.expire(at(62_000));
    insta::assert_snapshot!(
        world.explain(101_000),
        @"last value was too old and dropped 40 s ago"
    );
    world.fail(102_000, "connect to 10.0.0.3:10250: connection refused");
    insta::assert_snapshot!(
        world.explain(103_000),
        @"last value was too old and dropped 42 s ago; node n1: connect to 10.0.0.3:10250: connection refused (asked again in 14 s)"
    );
}

#[test]
fn nodes_have_reasons_too() {
    let world = World::new();
    let explain = |name, now| world.store.explain_node(name, at(now)).to_string();
    insta::assert_snapshot!(explain("n9", 0), @"node n9 is not known");
    insta::assert_snapshot!(explain("n1", 0), @"node n1 was not asked yet");
    world
        .store
        .ingest("n1", &of_node(0, 10 * CORE_SECOND), at(1_000));
    insta::assert_snapshot!(explain("n1", 8_000), @"first sample 7 s old, second due in 8 s");
    world.fail(16_000, "401 Unauthorized");
    insta::assert_snapshot!(
        explain("n1", 17_000),
        @"node n1: 401 Unauthorized (asked again in 14 s)"
    );
    let batch = of_node(15_000, 25 * CORE_SECOND);
    world.store.ingest("n1", &batch, at(31_000));
    insta::assert_snapshot!(explain("n1", 32_000), @"metrics have just arrived; ask again");
    insta::assert_snapshot!(
        explain("n1", 500_000),
        @"last value was too old and dropped 7 min ago"
    );
}

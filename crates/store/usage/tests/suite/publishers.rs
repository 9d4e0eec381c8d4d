//! Several publishers of one store.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Labels, NodeName};
use kubevitals_usage::{UsageConfig, UsageStore};

use crate::harness::{CORE_SECOND, Recorder, batch, moment, pod, row, uid};

#[test]
fn every_publisher_receives_the_same() {
    let recorders = [Arc::new(Recorder::default()), Arc::default()];
    let mut store = UsageStore::new(UsageConfig::new(Duration::from_secs(15)));
    for recorder in &recorders {
        store.add_publisher(Arc::<Recorder>::clone(recorder));
    }
    let [first, second] = &recorders;
    let assert_same = || {
        assert_eq!(first.node("n1"), second.node("n1"));
        assert_eq!(first.publications(), second.publications());
    };

    store.node_applied(&NodeName::new("n1"), &Labels::default(), &uid("n1"));
    store.pod_applied(&Arc::new(pod("n1", "default/web-0")));
    store.flush(moment(0));
    assert_same();
    for round in 0..3_i64 {
        let total = CORE_SECOND * round.unsigned_abs();
        let sampled = batch(&[row("app", round * 10_000, total)]);
        store.ingest("n1", &uid("n1"), &sampled, moment(round * 15_000));
        assert_same();
    }
    assert_eq!(first.node("n1").map(|node| node.pods.len()), Some(1));

    store.node_deleted("n1", &uid("n1"), moment(0));
    assert_same();
    assert_eq!(first.node("n1"), None);
}

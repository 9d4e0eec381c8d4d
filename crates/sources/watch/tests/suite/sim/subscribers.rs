//! Subscribers of different speed.

use std::collections::BTreeSet;

use kubevitals_model::{PodSummary, Timestamp};
use kubevitals_sim::objects::Resource as Stored;
use kubevitals_watch::{Mirror, ObjectEvent, Origin, ResyncCause, Update};
use tokio::time::timeout;

use super::{
    DEADLINE, Follower, connect, create, delete, pod, replace, spec, start, states, stored,
};

const BURST: usize = 300;

#[tokio::test]
async fn in_a_burst_a_slow_subscriber_blocks_nothing_and_ends_in_sync() {
    let sim = start().await;
    create(&sim, pod("first", "n1", "Running", "web"));
    let (server, requests) = connect(&sim.kubeconfig()).await;
    let pods = server.reflector(spec::<PodSummary>("pods"));
    let mut fast = Follower::new(&pods);
    fast.until("listed", |own| own.mirror.len() == 1).await;
    let mut slow = pods.subscribe_with(2);
    let mut copy = Mirror::<PodSummary>::new();
    let first = slow.next().await.unwrap();
    copy.apply(first, Timestamp::from_unix_millis(0));
    fast.changes.clear();

    for number in 0..BURST {
        let name = format!("pod-{number}");
        create(&sim, pod(&name, "n1", "Pending", "web"));
        replace(&sim, pod(&name, "n1", "Running", "web"));
        if number % 3 == 0 {
            delete(&sim, &name);
        }
    }
    let last = stored(&sim, Stored::Pods);
    fast.learn(&last).await;
    // Every single state, as it happened.
    assert_eq!(fast.changes.len(), 2 * BURST + BURST / 3);
    assert!(
        fast.changes
            .iter()
            .all(|change| change.origin == Origin::Live)
    );
    let versions: BTreeSet<u64> = fast.changes.iter().filter_map(version).collect();
    assert_eq!(versions.len(), fast.changes.len());

    let state = pods.state();
    assert_eq!((state.lagging, state.lags), (1, 1));
    let Some(Update::Resync(all)) = timeout(DEADLINE, slow.next()).await.unwrap() else {
        panic!("a resync is due");
    };
    let missed = u64::try_from(fast.changes.len()).unwrap();
    assert_eq!(all.cause, ResyncCause::Lagged { missed });
    let all = Update::Resync(all);
    let changes = copy.apply(all, Timestamp::from_unix_millis(0));
    assert_eq!(changes.len(), BURST - BURST / 3);
    assert_eq!(states(&copy.objects()), last);
    assert_eq!(requests.all().len(), 1, "one connection served both");
    sim.shutdown().await;
}

fn version(change: &kubevitals_watch::Change<PodSummary>) -> Option<u64> {
    let (ObjectEvent::Added(pod)
    | ObjectEvent::Modified { now: pod, .. }
    | ObjectEvent::Deleted(pod)) = &change.event;
    pod.identity.resource_version.as_number()
}

//! Many subscribers of one stream.

use kubevitals_model::{PodSummary, Timestamp};
use kubevitals_watch::{Mirror, ObjectEvent, ResyncCause, Update};

use crate::fake::{Fake, pass, view, within};

const NOW: Timestamp = Timestamp::from_unix_millis(0);

#[tokio::test(start_paused = true)]
async fn all_subscribers_share_one_connection() {
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods();
    let mut subscriptions: Vec<_> = (0..5).map(|_| pods.subscribe()).collect();
    for subscription in &mut subscriptions {
        assert!(
            matches!(within("an update", subscription.next()).await, Some(Update::Resync(all)) if all.objects.len() == 1)
        );
    }
    fake.put("b");
    for subscription in &mut subscriptions {
        assert!(matches!(
            within("an update", subscription.next()).await,
            Some(Update::Change(_))
        ));
    }
    assert_eq!(fake.requests().len(), 1);
    assert_eq!(pods.state().subscribers, 5);
    drop(subscriptions);
    assert_eq!(pods.state().subscribers, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_subscriber_gets_all_objects_first() {
    let fake = Fake::new();
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    fake.put("a");
    fake.put("b");
    pass(1).await;
    let mut late = pods.subscribe();
    fake.put("c");
    pass(1).await;
    let Some(Update::Resync(all)) = within("an update", late.next()).await else {
        panic!("a resync comes first");
    };
    assert_eq!(all.cause, ResyncCause::Subscribed);
    assert_eq!(view(&all.objects), fake.objects());
    assert!(late.try_next().is_none(), "the change is in the resync");
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_blocks_nothing_and_must_resync() {
    let fake = Fake::new();
    let pods = fake.pods();
    let mut slow = pods.subscribe_with(3);
    let mut fast = pods.subscribe();
    assert!(
        within("an update", slow.next()).await.is_some()
            && within("an update", fast.next()).await.is_some()
    );
    for number in 0..100 {
        fake.put(&format!("pod-{number}"));
        assert!(matches!(
            within("an update", fast.next()).await,
            Some(Update::Change(_))
        ));
    }
    let state = pods.state();
    assert_eq!((state.lagging, state.lags), (1, 1));

    let Some(Update::Resync(all)) = within("an update", slow.next()).await else {
        panic!("a resync is due");
    };
    assert_eq!(all.cause, ResyncCause::Lagged { missed: 100 });
    assert_eq!(view(&all.objects), fake.objects());
    assert_eq!(pods.state().lagging, 0);
    fake.put("next");
    assert!(matches!(
        within("an update", slow.next()).await,
        Some(Update::Change(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_mirror_turns_a_resync_into_changes() {
    let fake = Fake::new();
    fake.put("goes");
    fake.put("stays");
    let pods = fake.pods();
    let mut slow = pods.subscribe_with(1);
    let mut mirror = Mirror::<PodSummary>::new();
    let first = mirror.apply(within("an update", slow.next()).await.unwrap(), NOW);
    assert!(
        first
            .iter()
            .all(|change| matches!(change.event, ObjectEvent::Added(_)))
    );
    assert_eq!(first.len(), 2);

    fake.delete("goes");
    fake.put("comes");
    pass(1).await;
    let second = mirror.apply(within("an update", slow.next()).await.unwrap(), NOW);
    let changes: Vec<String> = second
        .iter()
        .map(|change| match &change.event {
            ObjectEvent::Added(pod) => format!("added {}", pod.identity),
            ObjectEvent::Modified { now, .. } => format!("modified {}", now.identity),
            ObjectEvent::Deleted(pod) => format!("deleted {}", pod.identity),
        })
        .collect();
    assert_eq!(changes, ["deleted default/goes", "added default/comes"]);
    assert_eq!(view(&mirror.objects()), fake.objects());
    assert!(mirror.get("default", "stays").is_some());
}

//! Streams of which nothing is kept.

use kubevitals_model::PodSummary;
use kubevitals_watch::{
    EventType, EventWatcher, Origin, RestartReason, WatchMetrics, WatchSpec, WatchedObject,
};
use prometheus_client::registry::Registry;

use crate::fake::{Fake, Streaming, pass, within};

fn tail(
    fake: &Fake,
    change: impl FnOnce(&mut kubevitals_watch::WatchOptions),
) -> EventWatcher<PodSummary> {
    let mut spec = WatchSpec::<PodSummary>::new("pods");
    spec.options.seed = Some(1);
    change(&mut spec.options);
    fake.server().event_watcher(spec)
}

fn describe(watched: &WatchedObject<PodSummary>) -> String {
    let seen = match watched.origin {
        Origin::Live => "live",
        Origin::Relist => "listed",
    };
    format!(
        "{:?} {} {seen}",
        watched.event, watched.object.identity.name
    )
}

async fn take(tail: &mut EventWatcher<PodSummary>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(describe(&within("an update", tail.next()).await.unwrap()));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn listed_objects_come_first_and_then_events() {
    for streaming in [Streaming::Known, Streaming::Refused(422)] {
        let fake = Fake::new();
        fake.lock().streaming = streaming;
        fake.put("a");
        fake.put("b");
        let mut pods = tail(&fake, |_| {});
        assert_eq!(
            take(&mut pods, 2).await,
            ["Added a listed", "Added b listed"]
        );
        assert!(within("a first list", pods.synced()).await);
        fake.put("c");
        fake.put("a");
        fake.delete("b");
        assert_eq!(
            take(&mut pods, 3).await,
            ["Added c live", "Modified a live", "Deleted b live"]
        );
        assert!(pods.try_next().is_none());
        let state = pods.state();
        assert_eq!((state.objects, state.events, state.queue_depth), (0, 5, 0));
        assert!(
            state.connected.is_some()
                && !state.restarts.contains_key(&RestartReason::ConnectionLost)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_all_objects_are_sent_again() {
    let fake = Fake::new();
    fake.put("a");
    let mut pods = tail(&fake, |_| {});
    assert_eq!(take(&mut pods, 1).await, ["Added a listed"]);
    fake.drop_watches();
    fake.put("b");
    fake.delete("a");
    fake.compact();
    assert_eq!(take(&mut pods, 1).await, ["Added b listed"]);
    assert_eq!(pods.state().restarts.get(&RestartReason::Expired), Some(&1));
    fake.break_watches();
    fake.put("c");
    assert_eq!(
        take(&mut pods, 1).await,
        ["Added c live"],
        "resumed, not listed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_blocks_the_connection_and_loses_nothing() {
    let fake = Fake::new();
    let mut pods = tail(&fake, |options| options.queue = 3);
    assert!(within("a first list", pods.synced()).await);
    for number in 0..100 {
        fake.put(&format!("pod-{number:03}"));
    }
    pass(400).await;
    let state = pods.state();
    assert_eq!(state.queue_depth, 3);
    assert!(state.connected.is_some(), "waiting is no silence");
    for number in 0..100 {
        let expected = format!("Added pod-{number:03} live");
        assert_eq!(take(&mut pods, 1).await, [expected]);
    }
    assert!(pods.state().blocked.as_secs() >= 400);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_truncated_and_no_later_event_is_missed() {
    let fake = Fake::new();
    fake.lock().streaming = Streaming::Refused(422);
    for number in 0..100 {
        fake.put(&format!("pod-{number:03}"));
    }
    let mut pods = tail(&fake, |options| {
        options.page_size = 10;
        options.max_listed = Some(25);
    });
    assert!(within("a first list", pods.synced()).await);
    fake.put("new");
    let all = take(&mut pods, 31).await;
    assert!(
        all[..30].iter().all(|one| one.ends_with("listed")),
        "{all:?}"
    );
    assert_eq!(all[30], "Added new live");
    assert!(pods.try_next().is_none());
    assert_eq!(pods.state().truncated_lists, 1);
    let watch = fake.requests().pop().unwrap();
    assert!(watch.contains("resourceVersion=100"), "{watch}");
}

#[tokio::test(start_paused = true)]
async fn queued_objects_can_be_read_after_the_shutdown() {
    let mut registry = Registry::default();
    let metrics = WatchMetrics::register(registry.sub_registry_with_prefix("kubevitals_watch"));
    let fake = Fake::new();
    fake.put("a");
    let mut pods = tail(&fake, |_| {});
    metrics.track_event_watcher(&pods);
    assert!(within("a first list", pods.synced()).await);
    pods.shutdown().await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("kubevitals_watch_events_total{watch=\"pods\"} 1\n"));
    let last = within("an update", pods.next()).await.unwrap();
    assert_eq!(
        (last.event, &*last.object.identity.name),
        (EventType::Added, "a")
    );
    assert!(within("an update", pods.next()).await.is_none());
}

//! Streams of which nothing is kept.

use kubevitals_model::PodSummary;
use kubevitals_watch::{EventType, Restart, Seen, StreamSpec, Tail, Tailed, WatchMetrics};
use prometheus_client::registry::Registry;

use crate::fake::{Fake, Streaming, pass};

fn tail(
    fake: &Fake,
    change: impl FnOnce(&mut kubevitals_watch::StreamOptions),
) -> Tail<PodSummary> {
    let mut spec = StreamSpec::<PodSummary>::new("pods");
    spec.options.seed = Some(1);
    change(&mut spec.options);
    fake.server().tail(spec)
}

fn told(tailed: &Tailed<PodSummary>) -> String {
    let seen = match tailed.seen {
        Seen::Live => "live",
        Seen::Relist => "listed",
    };
    format!("{:?} {} {seen}", tailed.event, tailed.object.identity.name)
}

async fn take(tail: &mut Tail<PodSummary>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(told(&tail.next().await.unwrap()));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_is_handed_over_and_then_what_happens() {
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
        assert!(pods.synced().await);
        fake.put("c");
        fake.put("a");
        fake.delete("b");
        assert_eq!(
            take(&mut pods, 3).await,
            ["Added c live", "Modified a live", "Deleted b live"]
        );
        assert!(pods.try_next().is_none());
        let state = pods.state();
        assert_eq!((state.objects, state.changes, state.queued), (0, 5, 0));
        assert!(state.connected.is_some() && !state.restarts.contains_key(&Restart::Broken));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_everything_is_handed_over_again() {
    let fake = Fake::new();
    fake.put("a");
    let mut pods = tail(&fake, |_| {});
    assert_eq!(take(&mut pods, 1).await, ["Added a listed"]);
    fake.drop_watches();
    fake.put("b");
    fake.delete("a");
    fake.compact();
    assert_eq!(take(&mut pods, 1).await, ["Added b listed"]);
    assert_eq!(pods.state().restarts.get(&Restart::Expired), Some(&1));
    fake.break_watches();
    fake.put("c");
    assert_eq!(
        take(&mut pods, 1).await,
        ["Added c live"],
        "resumed, not listed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_slow_holds_up_the_server_and_loses_nothing() {
    let fake = Fake::new();
    let mut pods = tail(&fake, |options| options.queue = 3);
    assert!(pods.synced().await);
    for number in 0..100 {
        fake.put(&format!("pod-{number:03}"));
    }
    pass(400).await;
    let state = pods.state();
    assert_eq!(state.queued, 3);
    assert!(state.connected.is_some(), "waiting is no silence");
    for number in 0..100 {
        let expected = format!("Added pod-{number:03} live");
        assert_eq!(take(&mut pods, 1).await, [expected]);
    }
    assert!(pods.state().waited.as_secs() >= 400);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_left_and_nothing_that_comes_is_missed() {
    let fake = Fake::new();
    fake.lock().streaming = Streaming::Refused(422);
    for number in 0..100 {
        fake.put(&format!("pod-{number:03}"));
    }
    let mut pods = tail(&fake, |options| {
        options.page_size = 10;
        options.most_listed = Some(25);
    });
    assert!(pods.synced().await);
    fake.put("new");
    let all = take(&mut pods, 31).await;
    assert!(
        all[..30].iter().all(|one| one.ends_with("listed")),
        "{all:?}"
    );
    assert_eq!(all[30], "Added new live");
    assert!(pods.try_next().is_none());
    assert_eq!(pods.state().cut_lists, 1);
    let watch = fake.requests().pop().unwrap();
    assert!(watch.contains("resourceVersion=100"), "{watch}");
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_at_the_end_can_still_be_taken() {
    let mut registry = Registry::default();
    let metrics = WatchMetrics::register(registry.sub_registry_with_prefix("kubevitals_watch"));
    let fake = Fake::new();
    fake.put("a");
    let mut pods = tail(&fake, |_| {});
    metrics.track_tail(&pods);
    assert!(pods.synced().await);
    pods.shutdown().await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("kubevitals_watch_changes_total{stream=\"pods\"} 1\n"));
    let last = pods.next().await.unwrap();
    assert_eq!(
        (last.event, &*last.object.identity.name),
        (EventType::Added, "a")
    );
    assert!(pods.next().await.is_none());
}

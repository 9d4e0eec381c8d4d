//! Reflectors against servers that behave well and badly.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Pod, PodSummary};
use kubevitals_telemetry::{Health, Probe, Status};
use kubevitals_watch::{ObjectEvent, Origin, Reflector, RestartReason, Update, WatchSpec};
use tokio::time::Instant;

use crate::fake::{Fake, Fault, Streaming, event, pass, view, within};

/// The number of restarts for a reason.
fn count(reflector: &Reflector<PodSummary>, reason: RestartReason) -> u64 {
    reflector
        .state()
        .restarts
        .get(&reason)
        .copied()
        .unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_becomes_a_watch_on_one_connection() {
    let fake = Fake::new();
    for name in ["a", "b", "c"] {
        fake.put(name);
    }
    let pods = fake.pods();
    assert!(within("a first list", pods.synced()).await);
    fake.put("d");
    fake.delete("a");
    pass(1).await;
    assert_eq!(view(&pods.objects()), fake.objects());
    let requests = fake.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(
        requests[0].contains("sendInitialEvents=true"),
        "{requests:?}"
    );
    let state = pods.state();
    assert_eq!(state.objects, 3);
    assert_eq!(state.resource_version.unwrap().to_string(), "5");
    assert!(state.connected.is_some() && state.restarts.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_in_pages_and_that_is_remembered() {
    for streaming in [
        Streaming::Refused(422),
        Streaming::Refused(400),
        Streaming::Ignored,
    ] {
        let fake = Fake::new();
        fake.lock().streaming = streaming;
        for number in 0..1_201 {
            fake.put(&format!("pod-{number}"));
        }
        let server = fake.server();
        let pods = server.reflector(WatchSpec::<PodSummary>::new("pods"));
        assert!(within("a first list", pods.synced()).await);
        assert_eq!(view(&pods.objects()), fake.objects());
        pass(1).await;
        let requests = fake.requests();
        assert_eq!(requests.len(), 5, "{streaming:?}: {requests:?}");
        assert!(
            requests[2].ends_with("/pods?limit=500&continue=500"),
            "{requests:?}"
        );
        assert!(requests[4].contains("resourceVersion=1201"), "{requests:?}");

        let more = server.reflector(WatchSpec::<Pod>::new("more"));
        assert!(within("a first list", more.synced()).await);
        assert!(fake.requests()[0].contains("limit=500"), "{streaming:?}");
        assert_eq!(more.objects().len(), 1_201);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_pages_expire_is_retried_with_larger_ones() {
    let fake = Fake::new();
    fake.lock().streaming = Streaming::Refused(422);
    fake.lock().expired_pages = 2;
    for number in 0..10 {
        fake.put(&format!("pod-{number}"));
    }
    let pods = fake.pods_with(|options| options.page_size = 2);
    assert!(within("a first list", pods.synced()).await);
    assert_eq!(view(&pods.objects()), fake.objects());
    let limits: Vec<String> = fake
        .requests()
        .iter()
        .filter_map(|request| Some(request.split_once("limit=")?.1.to_owned()))
        .collect();
    assert_eq!(limits, ["2", "2&continue=2", "8", "8&continue=8", "32"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_resumes_where_it_was_and_repeats_nothing() {
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods();
    let mut subscription = pods.subscribe();
    assert!(matches!(
        within("an update", subscription.next()).await,
        Some(Update::Resync(_))
    ));
    fake.requests();
    for end in [Fake::drop_watches, Fake::break_watches] {
        end(&fake);
        fake.put("a");
        let Some(Update::Change(change)) = within("an update", subscription.next()).await else {
            panic!("a change is due");
        };
        assert_eq!(change.origin, Origin::Live);
        assert!(matches!(change.event, ObjectEvent::Modified { .. }));
    }
    assert!(subscription.try_next().is_none());
    assert_eq!(count(&pods, RestartReason::Ended), 1);
    assert_eq!(count(&pods, RestartReason::ConnectionLost), 1);
    let requests = fake.requests();
    assert!(
        requests
            .iter()
            .all(|request| !request.contains("sendInitialEvents")),
        "{requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn objects_deleted_during_a_gap_are_reported_with_their_last_state() {
    for expires_by_event in [false, true] {
        let fake = Fake::new();
        fake.lock().expires_by_event = expires_by_event;
        for name in ["stays", "goes", "is-replaced", "changes"] {
            fake.put(name);
        }
        let pods = fake.pods();
        let mut subscription = pods.subscribe();
        let Some(Update::Resync(first)) = within("an update", subscription.next()).await else {
            panic!("a resync comes first");
        };
        assert_eq!(first.objects.len(), 4);

        fake.drop_watches();
        fake.delete("goes");
        fake.delete("is-replaced");
        fake.put("is-replaced");
        fake.put("changes");
        fake.put("is-new");
        fake.compact();

        let mut changes = Vec::new();
        while changes.len() < 5 {
            let Some(Update::Change(change)) = within("an update", subscription.next()).await
            else {
                panic!("only changes are due, after {changes:?}");
            };
            assert_eq!(change.origin, Origin::Relist);
            changes.push(match change.event {
                ObjectEvent::Added(pod) => format!("added {}", pod.identity.name),
                ObjectEvent::Modified { before, now } => {
                    assert_ne!(
                        before.identity.resource_version,
                        now.identity.resource_version
                    );
                    format!("modified {}", now.identity.name)
                }
                ObjectEvent::Deleted(last) => {
                    format!(
                        "deleted {} at {}",
                        last.identity.name, last.identity.resource_version
                    )
                }
            });
        }
        let is_replaced = |line: &str| {
            changes
                .iter()
                .position(|change| change.starts_with(line))
                .unwrap()
        };
        assert!(is_replaced("deleted is-replaced") < is_replaced("added is-replaced"));
        changes.sort();
        assert_eq!(
            changes,
            [
                "added is-new",
                "added is-replaced",
                "deleted goes at 2",
                "deleted is-replaced at 3",
                "modified changes"
            ]
        );
        assert!(
            subscription.try_next().is_none(),
            "unchanged objects are not reported"
        );
        assert_eq!(count(&pods, RestartReason::Expired), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_list_leaves_the_cache_unchanged() {
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    fake.compact();
    fake.lock().version += 1;
    fake.compact();
    fake.drop_watches();
    let half = event("ADDED", "half", 99, 99);
    // The watch expires, then a streaming list brings one object and never ends.
    fake.lock()
        .faults
        .extend([Fault::Status(410, None), Fault::Silent(half)]);
    pass(30).await;
    assert_eq!(view(&pods.objects()), fake.objects());
    pass(60).await;
    assert_eq!(view(&pods.objects()), fake.objects());
    assert_eq!(count(&pods, RestartReason::NoStreamingLists), 1);
    assert!(pods.state().connected.is_some(), "{:?}", pods.state());
}

#[tokio::test(start_paused = true)]
async fn error_responses_are_classified_and_waits_grow_up_to_the_maximum() {
    for (code, why) in [
        (401, RestartReason::Unauthorized),
        (403, RestartReason::Forbidden),
        (404, RestartReason::NotFound),
        (500, RestartReason::ServerError),
        (418, RestartReason::Rejected),
    ] {
        let fake = Fake::new();
        fake.lock()
            .faults
            .extend(std::iter::repeat_n(Fault::Status(code, None), 1_000));
        let pods = fake.pods();
        pass(3_600).await;
        let state = pods.state();
        assert_eq!(state.last_error.as_ref().unwrap().0, why);
        assert_eq!(
            state.health(Duration::from_mins(1)),
            Status::warming_up(format!("server responded with {code}: fault {code}"))
        );
        let attempts = fake.requests().len();
        // Half of the cap on average, once it is reached.
        assert!(
            (150..400).contains(&attempts),
            "{code}: {attempts} attempts in an hour"
        );
        fake.lock().faults.clear();
        pass(31).await;
        assert!(pods.state().synced, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_throttling_server_is_honored() {
    let fake = Fake::new();
    fake.lock().faults.push_back(Fault::Status(429, Some("90")));
    let pods = fake.pods();
    let began = Instant::now();
    within("a first list", pods.synced()).await;
    let waited = began.elapsed();
    assert!((90..122).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(count(&pods, RestartReason::Throttled), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_or_unresponsive_server_is_retried() {
    let fake = Fake::new();
    fake.lock()
        .faults
        .extend([Fault::Unreachable, Fault::Hang, Fault::Encoded("gzip")]);
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    for why in [
        RestartReason::Unreachable,
        RestartReason::Timeout,
        RestartReason::InvalidResponse,
    ] {
        assert_eq!(count(&pods, why), 1, "{why:?}");
    }
    pass(1).await;
    assert_eq!(pods.state().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    // Without bookmarks only the timeout of the watch applies: 240 to 480 s, and 30 s more.
    pass(239).await;
    assert!(pods.state().restarts.is_empty());
    pass(272).await;
    assert_eq!(count(&pods, RestartReason::Idle), 1);

    // A server that sends bookmarks and stops is dead sooner.
    fake.bookmark();
    pass(149).await;
    fake.bookmark();
    pass(149).await;
    assert_eq!(count(&pods, RestartReason::Idle), 1);
    pass(3).await;
    assert_eq!(count(&pods, RestartReason::Idle), 2);
    fake.put("b");
    pass(1).await;
    assert_eq!(view(&pods.objects()), fake.objects());
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_retried_with_backoff() {
    let fake = Fake::new();
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    fake.requests();
    fake.drop_watches();
    fake.lock()
        .faults
        .extend(std::iter::repeat_n(Fault::Body(String::new()), 10_000));
    pass(600).await;
    let attempts = fake.requests().len();
    assert!(attempts < 80, "{attempts} attempts in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_object_affects_only_itself() {
    let fake = Fake::new();
    fake.put("good");
    fake.put("bad");
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    let bad = r#""object":{"metadata":{"name":"bad","namespace":"default"},"spec":{"nodeName":7}}"#;
    fake.send_all(&format!(r#"{{"type":"MODIFIED",{bad}}}"#));
    fake.send_all("not json");
    fake.put("good");
    pass(1).await;
    assert_eq!(
        view(&pods.objects()),
        [("bad".to_owned(), 2), ("good".to_owned(), 3)]
    );
    let state = pods.state();
    assert_eq!(state.decode_errors, 2);
    assert!(state.connected.is_some());

    fake.send_all(&format!(r#"{{"type":"DELETED",{bad}}}"#));
    pass(1).await;
    assert_eq!(view(&pods.objects()), [("good".to_owned(), 3)]);
    let error = pods.state().last_decode_error.unwrap();
    assert!(
        error.starts_with("failed to decode object default/bad: "),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_response_leads_to_a_relist() {
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods_with(|options| options.max_event_bytes = 1_000);
    within("a first list", pods.synced()).await;
    fake.requests();
    fake.send_all(&"<html>\n".repeat(8));
    fake.send_all(&format!("{}\n", "x".repeat(5_000)).repeat(8));
    pass(2).await;
    assert_eq!(count(&pods, RestartReason::InvalidResponse), 1);
    assert!(pods.state().connected.is_some());
    // From one version only so often.
    let garbage = Fault::Body("<html>\n".repeat(16));
    fake.drop_watches();
    fake.lock().faults.extend(std::iter::repeat_n(garbage, 5));
    pass(120).await;
    let requests = fake.requests();
    assert!(
        requests
            .iter()
            .any(|request| request.contains("sendInitialEvents")),
        "{requests:?}"
    );
    assert_eq!(view(&pods.objects()), fake.objects());
}

#[tokio::test(start_paused = true)]
async fn a_stale_cache_fails_the_health_check_with_the_reason() {
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    let patience = Duration::from_mins(1);
    assert_eq!(pods.state().health(patience), Status::Ok);
    fake.lock()
        .faults
        .extend(std::iter::repeat_n(Fault::Unreachable, 1_000));
    fake.break_watches();
    pass(50).await;
    assert_eq!(pods.state().health(patience), Status::Ok);
    pass(11).await;
    assert_eq!(
        pods.state().health(patience),
        Status::failing("no data for 61 s: request failed: connection refused")
    );
    assert_eq!(pods.objects().len(), 1, "the last view is still there");
}

#[tokio::test(start_paused = true)]
async fn an_error_response_does_not_reset_the_idle_time() {
    let fake = Fake::new();
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    let refusals = std::iter::repeat_n(Fault::Status(403, None), 1_000);
    fake.lock().faults.extend(refusals);
    fake.drop_watches();
    pass(600).await;
    let state = pods.state();
    assert!(state.consecutive_failures > 10, "{state:?}");
    assert_eq!(
        state.health(Duration::from_mins(1)),
        Status::failing("no data for 600 s: server responded with 403: fault 403")
    );
    fake.lock().faults.clear();
    pass(45).await;
    assert_eq!(pods.state().consecutive_failures, 0, "{:?}", pods.state());
    assert_eq!(pods.state().health(Duration::ZERO), Status::Ok);
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_streaming_list_does_not_end_streaming_lists() {
    let fake = Fake::new();
    fake.put("a");
    let half = Fault::Body(event("ADDED", "half", 1, 9));
    fake.lock().faults.push_back(half);
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    assert_eq!(view(&pods.objects()), fake.objects());
    let requests = fake.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests
            .iter()
            .all(|request| request.contains("sendInitialEvents")),
        "{requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_health_check_follows_the_watch_and_does_not_keep_it_running() {
    let fake = Fake::new();
    fake.lock().faults.push_back(Fault::Status(403, None));
    let pods = fake.pods();
    let health = Health::new();
    let check = pods.health_check(Duration::from_mins(1));
    health.check(pods.name(), Probe::READINESS, check).unwrap();
    let verdict = || format!("{:?}", health.report_one(Probe::Readyz, "pods").unwrap());
    tokio::task::yield_now().await;
    assert!(
        verdict().contains("server responded with 403: fault 403"),
        "{}",
        verdict()
    );
    within("a first list", pods.synced()).await;
    assert_eq!(verdict(), "Passed");
    drop(pods);
    pass(1).await;
    assert!(verdict().contains("watch has ended"), "{}", verdict());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_the_reflector() {
    let fake = Fake::new();
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    let subscription = pods.subscribe();
    drop(pods.clone());
    drop(pods);
    pass(1).await;
    assert_eq!(fake.watchers(), 1, "a subscription keeps it running");
    drop(subscription);
    pass(1).await;
    assert_eq!(fake.watchers(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_subscriptions_once_their_queues_are_empty() {
    let fake = Fake::new();
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    let mut subscription = pods.subscribe();
    within("an update", subscription.next()).await.unwrap();
    fake.put("a");
    pass(1).await;
    pods.shutdown().await;
    pods.shutdown().await;
    assert_eq!(fake.watchers(), 0);
    assert!(matches!(
        within("an update", subscription.next()).await,
        Some(Update::Change(_))
    ));
    assert!(within("an update", subscription.next()).await.is_none());

    let hanging = Fake::new();
    hanging.lock().faults.push_back(Fault::Hang);
    let pods = hanging.pods();
    pods.shutdown().await;
    assert!(!within("a first list", pods.synced()).await);
    assert!(within("an update", pods.subscribe().next()).await.is_none());
}

/// Checks used to pass for as long as a handle was left, and subscriptions to wait forever.
#[tokio::test(start_paused = true)]
async fn a_watch_that_has_ended_fails_its_checks_and_is_not_synced() {
    let timeout = Duration::from_mins(1);
    for panics in [false, true] {
        let fake = Fake::new();
        let pods = fake.pods();
        assert!(within("a first list", pods.synced()).await);
        let (check, observer) = (pods.health_check(timeout), pods.observer());
        let mut subscription = pods.subscribe();
        within("an update", subscription.next()).await.unwrap();
        assert_eq!(check(), Status::Ok);
        assert!(observer().is_some());

        if panics {
            fake.lock().faults.push_back(Fault::Panic);
            fake.drop_watches();
        } else {
            pods.shutdown().await;
        }
        pods.closed().await;
        assert_eq!(check(), Status::failing("watch has ended"));
        assert!(observer().is_none());
        assert!(!within("a first list", pods.synced()).await);
        assert!(within("an update", subscription.next()).await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_relist_keeps_the_objects_that_did_not_change() {
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods();
    within("a first list", pods.synced()).await;
    let before = pods.get("default", "a").unwrap();
    fake.drop_watches();
    fake.put("b");
    fake.compact();
    pass(5).await;
    assert_eq!(pods.objects().len(), 2);
    assert!(Arc::ptr_eq(&before, &pods.get("default", "a").unwrap()));
}

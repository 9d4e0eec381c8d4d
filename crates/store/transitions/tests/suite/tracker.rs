//! When a tracker tells what, and what it does not keep.

use std::time::Duration;

use kubevitals_transitions::{Arrival, Checkpoint, Existing, Output, Tracker, TrackerConfig};
use serde_json::json;

use crate::support::{Made, at, running, status};

fn spec() -> serde_json::Value {
    json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]})
}

fn kinds(told: &[Output]) -> Vec<&'static str> {
    told.iter()
        .map(|output| match output {
            Output::Startup(_) => "startup",
            Output::Life(_) => "life",
            Output::Progress(_) => "progress",
        })
        .collect()
}

const READY: [&str; 2] = ["ContainersReady=True@2", "Ready=True@2"];

#[test]
fn a_start_is_told_after_late_events_had_their_time_and_a_life_after_its_end() {
    let mut made = Made::new(spec());
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut told = Vec::new();
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut |output| {
        told.push(output);
    });
    let fields =
        json!({"phase": "Running", "containerStatuses": [status("app", running(2), true, true)]});
    tracker.pod(
        &made.status(fields, &READY),
        Arrival::Live,
        Some(at(2)),
        &mut |output| told.push(output),
    );
    tracker.advance(at(4), &mut |output| told.push(output));
    assert!(told.is_empty(), "{told:?}");
    // A pull whose end is told late is still part of it.
    let pulled = made.event(
        "a",
        "Pulled",
        "spec.containers{app}",
        "Container image \"i\" already present on machine",
        (1, 1),
        1,
    );
    tracker.event(&pulled, &mut |output| told.push(output));
    tracker.advance(at(5), &mut |output| told.push(output));
    assert_eq!(kinds(&told), ["startup"]);
    let Output::Startup(record) = &told[0] else {
        panic!()
    };
    assert!(record.is_complete() && record.facts.of("app").unwrap().pull.done.is_some());

    made.deleting(40, 0);
    tracker.deleted(&made.pod(), Arrival::Live, Some(at(40)), &mut |output| {
        told.push(output);
    });
    assert_eq!((kinds(&told).len(), tracker.len()), (1, 1));
    tracker.advance(at(43), &mut |output| told.push(output));
    assert_eq!(kinds(&told), ["startup", "life"]);
    assert!(tracker.is_empty());

    // What comes later raises nobody.
    tracker.pod(
        &made.pod(),
        Arrival::Relisted,
        Some(at(44)),
        &mut |output| told.push(output),
    );
    tracker.event(&pulled, &mut |output| told.push(output));
    assert!(tracker.is_empty());
    assert_eq!(
        (tracker.counts().repeated, tracker.counts().events_late),
        (1, 1)
    );
}

#[test]
fn a_pod_that_is_deleted_before_it_is_ready_is_told_of_once() {
    let mut made = Made::new(spec());
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut told = Vec::new();
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut |output| {
        told.push(output);
    });
    let failed = made.status(json!({"phase": "Failed"}), &[]);
    tracker.pod(&failed, Arrival::Live, Some(at(1)), &mut |output| {
        told.push(output);
    });
    tracker.deleted(&made.pod(), Arrival::Live, Some(at(2)), &mut |output| {
        told.push(output);
    });
    tracker.advance(at(60), &mut |output| told.push(output));
    assert_eq!(kinds(&told), ["startup", "life"]);
}

#[test]
fn of_pods_from_before_the_start_only_those_still_starting_are_told_of() {
    let listed = |existing: Existing, is_ready: bool| {
        let mut made = Made::new(spec());
        let conditions: &[&str] = if is_ready { &READY } else { &["Ready=False@1"] };
        let fields = json!({"startTime": "2026-11-15T20:12:01Z"});
        let pod = made.status(fields, conditions);
        let mut tracker = Tracker::new(TrackerConfig {
            existing,
            ..TrackerConfig::default()
        });
        let mut told = Vec::new();
        tracker.pod(&pod, Arrival::Listed, Some(at(50)), &mut |output| {
            told.push(output);
        });
        tracker.pod(
            &made.status(json!({}), &READY),
            Arrival::Live,
            Some(at(51)),
            &mut |output| told.push(output),
        );
        tracker.advance(at(60), &mut |output| told.push(output));
        made.deleting(70, 0);
        tracker.deleted(&made.pod(), Arrival::Live, Some(at(70)), &mut |output| {
            told.push(output);
        });
        tracker.advance(at(80), &mut |output| told.push(output));
        for output in &told {
            let (Output::Startup(record) | Output::Life(record)) = output else {
                panic!()
            };
            assert!(record.reconstructed);
        }
        kinds(&told)
    };
    let unsettled = Existing::Unsettled { since: None };
    assert_eq!(listed(unsettled, false), ["startup", "life"]);
    assert_eq!(listed(unsettled, true), ["life"]);
    assert_eq!(listed(Existing::All, true), ["startup", "life"]);
    // Another process told of what it saw up to then; who was ready at second 2 is told of again in
    // case of doubt.
    let since = |version, second| Existing::Unsettled {
        since: Some(Checkpoint {
            version,
            time: at(second),
        }),
    };
    assert_eq!(listed(since(100, 1), true), ["startup", "life"]);
    assert_eq!(listed(since(100, 7), true), ["startup", "life"]);
    assert_eq!(listed(since(100, 8), true), ["life"]);
    assert_eq!(listed(since(101, 1), true), ["life"]);
}

#[test]
fn a_pod_that_is_not_ready_for_the_moment_is_not_taken_for_one_that_starts() {
    let told = |existing: Existing| {
        let mut made = Made::new(spec());
        let fields = json!({"startTime": "2026-11-15T20:12:01Z", "phase": "Running",
            "containerStatuses": [status("app", running(2), false, true)]});
        let pod = made.status(fields, &["Ready=False@30", "ContainersReady=False@30"]);
        let mut tracker = Tracker::new(TrackerConfig {
            existing,
            ..TrackerConfig::default()
        });
        let mut told = Vec::new();
        let mut out = |output| told.push(output);
        tracker.pod(&pod, Arrival::Listed, Some(at(50)), &mut out);
        let again = made.status(json!({}), &["Ready=True@51", "ContainersReady=True@51"]);
        tracker.pod(&again, Arrival::Live, Some(at(51)), &mut out);
        tracker.advance(at(60), &mut out);
        told
    };
    assert!(told(Existing::Unsettled { since: None }).is_empty());
    let told = told(Existing::All);
    let [Output::Startup(record)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(record.was_ready_before && record.is_unseen() && !record.is_complete());
    assert_eq!(record.milestones.ready, None);
    assert_eq!(record.containers[0].running.unwrap().api, Some(at(2)));
}

#[test]
fn progress_is_told_until_a_pod_is_ready() {
    let mut made = Made::new(spec());
    let mut tracker = Tracker::new(TrackerConfig {
        progress: true,
        ..TrackerConfig::default()
    });
    let mut told = Vec::new();
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut |output| {
        told.push(output);
    });
    let pulling = made.event(
        "a",
        "Pulling",
        "spec.containers{app}",
        "Pulling image \"i\"",
        (1, 1),
        1,
    );
    tracker.event(&pulling, &mut |output| told.push(output));
    tracker.pod(
        &made.status(json!({}), &READY),
        Arrival::Live,
        Some(at(2)),
        &mut |output| told.push(output),
    );
    tracker.pod(&made.pod(), Arrival::Live, Some(at(3)), &mut |output| {
        told.push(output);
    });
    tracker.advance(at(9), &mut |output| told.push(output));
    assert_eq!(kinds(&told), ["progress", "progress", "startup"]);
}

#[test]
fn a_shutdown_tells_what_is_settled_and_leaves_the_rest_to_the_next() {
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut told = Vec::new();
    let mut ready = Made::new(spec()).named(1);
    tracker.pod(
        &ready.status(json!({}), &READY),
        Arrival::Live,
        Some(at(2)),
        &mut |output| told.push(output),
    );
    let mut open = Made::new(spec()).named(2);
    tracker.pod(&open.pod(), Arrival::Live, Some(at(2)), &mut |output| {
        told.push(output);
    });
    tracker.shut_down(&mut |output| told.push(output));
    assert_eq!(kinds(&told), ["startup"]);
    let Output::Startup(record) = &told[0] else {
        panic!()
    };
    assert_eq!(record.pod.summary.identity.uid.to_string(), ready.uid);
}

#[test]
fn nothing_grows_without_a_bound() {
    let mut tracker = Tracker::new(TrackerConfig {
        linger: None,
        most_pods: 20,
        most_ended: 5,
        most_early: 7,
        ..TrackerConfig::default()
    });
    let mut told = Vec::new();
    for number in 0..1_000 {
        let mut made = Made::new(spec()).named(number);
        let stray = Made::new(spec()).named(5_000 + number);
        let event = stray.event(
            "a",
            "Pulling",
            "spec.containers{app}",
            "Pulling image \"i\"",
            (1, 1),
            1,
        );
        tracker.event(&event, &mut |output| told.push(output));
        tracker.deleted(
            &made.pod(),
            Arrival::Live,
            Some(at(number)),
            &mut |output| told.push(output),
        );
        assert!(tracker.len() <= 6);
    }
    assert_eq!(tracker.counts().early_dropped, 1_000 - 7);
    for number in 2_000..2_100 {
        let mut made = Made::new(spec()).named(number);
        tracker.pod(
            &made.pod(),
            Arrival::Live,
            Some(at(number)),
            &mut |output| told.push(output),
        );
    }
    assert_eq!((tracker.len(), tracker.counts().refused), (20, 100 - 15));
    tracker.finish(&mut |output| told.push(output));
    let lives = told
        .iter()
        .filter(|output| matches!(output, Output::Life(_)));
    assert_eq!(lives.count(), 1_000 + 15);
}

#[test]
fn time_moves_by_what_is_seen_too() {
    let mut tracker = Tracker::new(TrackerConfig {
        linger: Some(Duration::from_secs(1)),
        ..TrackerConfig::default()
    });
    let mut told = Vec::new();
    let mut one = Made::new(spec()).named(1);
    tracker.pod(
        &one.status(json!({}), &READY),
        Arrival::Live,
        Some(at(2)),
        &mut |output| told.push(output),
    );
    let mut two = Made::new(spec()).named(2);
    tracker.pod(&two.pod(), Arrival::Live, Some(at(9)), &mut |output| {
        told.push(output);
    });
    assert_eq!(kinds(&told), ["startup"]);
}

//! The records that a tracker emits, and its limits.

use std::time::Duration;

use kubevitals_transitions::{Arrival, Checkpoint, Existing, Output, Tracker, TrackerConfig};
use serde_json::json;

use crate::support::{PodBuilder, at, running, status};

fn spec() -> serde_json::Value {
    json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]})
}

fn kinds(outputs: &[Output]) -> Vec<&'static str> {
    outputs
        .iter()
        .map(|output| match output {
            Output::Startup(_) => "startup",
            Output::Lifecycle(_) => "lifecycle",
            Output::Progress(_) => "progress",
            Output::ImagePull(..) => "pull",
        })
        .collect()
}

const READY: [&str; 2] = ["ContainersReady=True@2", "Ready=True@2"];

#[test]
fn starts_and_lifecycles_are_emitted_after_the_linger_time() {
    let mut made = PodBuilder::new(spec());
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut outputs = Vec::new();
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut |output| {
        outputs.push(output);
    });
    let fields =
        json!({"phase": "Running", "containerStatuses": [status("app", running(2), true, true)]});
    tracker.pod(
        &made.status(fields, &READY),
        Arrival::Live,
        Some(at(2)),
        &mut |output| outputs.push(output),
    );
    tracker.advance(at(4), &mut |output| outputs.push(output));
    assert!(outputs.is_empty(), "{outputs:?}");
    // A pull whose end arrives late is still part of it.
    let pulled = made.event(
        "a",
        "Pulled",
        "spec.containers{app}",
        "Container image \"i\" already present on machine",
        (1, 1),
        1,
    );
    tracker.event(&pulled, &mut |output| outputs.push(output));
    tracker.advance(at(5), &mut |output| outputs.push(output));
    assert_eq!(kinds(&outputs), ["pull", "startup"]);
    let Output::Startup(record) = &outputs[1] else {
        panic!()
    };
    assert!(record.is_complete() && record.facts.of("app").unwrap().pull.done.is_some());

    made.deleting(40, 0);
    tracker.deleted(&made.pod(), Arrival::Live, Some(at(40)), &mut |output| {
        outputs.push(output);
    });
    assert_eq!((kinds(&outputs).len(), tracker.len()), (2, 1));
    tracker.advance(at(43), &mut |output| outputs.push(output));
    assert_eq!(kinds(&outputs), ["pull", "startup", "lifecycle"]);
    assert!(tracker.is_empty());

    // Later input starts no other lifecycle.
    tracker.pod(
        &made.pod(),
        Arrival::Relisted,
        Some(at(44)),
        &mut |output| outputs.push(output),
    );
    tracker.event(&pulled, &mut |output| outputs.push(output));
    assert!(tracker.is_empty());
    assert_eq!(
        (tracker.counts().repeated, tracker.counts().events_late),
        (1, 1)
    );
}

#[test]
fn a_pod_deleted_before_it_is_ready_is_emitted_once() {
    let mut made = PodBuilder::new(spec());
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut outputs = Vec::new();
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut |output| {
        outputs.push(output);
    });
    let failed = made.status(json!({"phase": "Failed"}), &[]);
    tracker.pod(&failed, Arrival::Live, Some(at(1)), &mut |output| {
        outputs.push(output);
    });
    tracker.deleted(&made.pod(), Arrival::Live, Some(at(2)), &mut |output| {
        outputs.push(output);
    });
    tracker.advance(at(60), &mut |output| outputs.push(output));
    assert_eq!(kinds(&outputs), ["startup", "lifecycle"]);
}

#[test]
fn of_existing_pods_only_those_still_starting_are_emitted() {
    let listed = |existing: Existing, is_ready: bool| {
        let mut made = PodBuilder::new(spec());
        let conditions: &[&str] = if is_ready { &READY } else { &["Ready=False@1"] };
        let fields = json!({"startTime": "2026-11-15T20:12:01Z"});
        let pod = made.status(fields, conditions);
        let mut tracker = Tracker::new(TrackerConfig {
            existing,
            ..TrackerConfig::default()
        });
        let mut outputs = Vec::new();
        tracker.pod(&pod, Arrival::Listed, Some(at(50)), &mut |output| {
            outputs.push(output);
        });
        tracker.pod(
            &made.status(json!({}), &READY),
            Arrival::Live,
            Some(at(51)),
            &mut |output| outputs.push(output),
        );
        tracker.advance(at(60), &mut |output| outputs.push(output));
        made.deleting(70, 0);
        tracker.deleted(&made.pod(), Arrival::Live, Some(at(70)), &mut |output| {
            outputs.push(output);
        });
        tracker.advance(at(80), &mut |output| outputs.push(output));
        for output in &outputs {
            let (Output::Startup(record) | Output::Lifecycle(record)) = output else {
                panic!()
            };
            assert!(record.reconstructed);
        }
        kinds(&outputs)
    };
    let unsettled = Existing::Unsettled { since: None };
    assert_eq!(listed(unsettled, false), ["startup", "lifecycle"]);
    assert_eq!(listed(unsettled, true), ["lifecycle"]);
    assert_eq!(listed(Existing::All, true), ["startup", "lifecycle"]);
    // Another replica emitted up to then; the pod ready at second 2 is emitted again in
    // case of doubt.
    let since = |version, second| Existing::Unsettled {
        since: Some(Checkpoint {
            event_version: None,
            version,
            time: at(second),
        }),
    };
    assert_eq!(listed(since(100, 1), true), ["startup", "lifecycle"]);
    assert_eq!(listed(since(100, 7), true), ["startup", "lifecycle"]);
    assert_eq!(listed(since(100, 8), true), ["lifecycle"]);
    assert_eq!(listed(since(101, 1), true), ["lifecycle"]);
}

#[test]
fn a_pod_that_lost_readiness_is_not_starting() {
    let outputs = |existing: Existing| {
        let mut made = PodBuilder::new(spec());
        let fields = json!({"startTime": "2026-11-15T20:12:01Z", "phase": "Running",
            "containerStatuses": [status("app", running(2), false, true)]});
        let pod = made.status(fields, &["Ready=False@30", "ContainersReady=False@30"]);
        let mut tracker = Tracker::new(TrackerConfig {
            existing,
            ..TrackerConfig::default()
        });
        let mut outputs = Vec::new();
        let mut out = |output| outputs.push(output);
        tracker.pod(&pod, Arrival::Listed, Some(at(50)), &mut out);
        let again = made.status(json!({}), &["Ready=True@51", "ContainersReady=True@51"]);
        tracker.pod(&again, Arrival::Live, Some(at(51)), &mut out);
        tracker.advance(at(60), &mut out);
        outputs
    };
    assert!(outputs(Existing::Unsettled { since: None }).is_empty());
    let outputs = outputs(Existing::All);
    let [Output::Startup(record)] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert!(record.was_ready_before && record.is_unseen() && !record.is_complete());
    assert_eq!(record.milestones.ready, None);
    assert_eq!(record.containers[0].running.unwrap().api, Some(at(2)));
}

#[test]
fn progress_is_emitted_until_a_pod_is_ready() {
    let mut made = PodBuilder::new(spec());
    let mut tracker = Tracker::new(TrackerConfig {
        progress: true,
        ..TrackerConfig::default()
    });
    let mut outputs = Vec::new();
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut |output| {
        outputs.push(output);
    });
    let pulling = made.event(
        "a",
        "Pulling",
        "spec.containers{app}",
        "Pulling image \"i\"",
        (1, 1),
        1,
    );
    tracker.event(&pulling, &mut |output| outputs.push(output));
    tracker.pod(
        &made.status(json!({}), &READY),
        Arrival::Live,
        Some(at(2)),
        &mut |output| outputs.push(output),
    );
    tracker.pod(&made.pod(), Arrival::Live, Some(at(3)), &mut |output| {
        outputs.push(output);
    });
    tracker.advance(at(9), &mut |output| outputs.push(output));
    assert_eq!(kinds(&outputs), ["progress", "progress", "startup"]);
}

#[test]
fn a_shutdown_emits_settled_records_and_leaves_the_rest() {
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut outputs = Vec::new();
    let mut ready = PodBuilder::new(spec()).named(1);
    tracker.pod(
        &ready.status(json!({}), &READY),
        Arrival::Live,
        Some(at(2)),
        &mut |output| outputs.push(output),
    );
    let mut open = PodBuilder::new(spec()).named(2);
    tracker.pod(&open.pod(), Arrival::Live, Some(at(2)), &mut |output| {
        outputs.push(output);
    });
    tracker.shut_down(&mut |output| outputs.push(output));
    assert_eq!(kinds(&outputs), ["startup"]);
    let Output::Startup(record) = &outputs[0] else {
        panic!()
    };
    assert_eq!(record.pod.summary.identity.uid.to_string(), ready.uid);
}

#[test]
fn every_queue_is_bounded() {
    let mut tracker = Tracker::new(TrackerConfig {
        linger: None,
        max_pods: 20,
        max_ended: 5,
        max_early: 7,
        ..TrackerConfig::default()
    });
    let mut outputs = Vec::new();
    for number in 0..1_000 {
        let mut made = PodBuilder::new(spec()).named(number);
        let stray = PodBuilder::new(spec()).named(5_000 + number);
        let event = stray.event(
            "a",
            "Pulling",
            "spec.containers{app}",
            "Pulling image \"i\"",
            (1, 1),
            1,
        );
        tracker.event(&event, &mut |output| outputs.push(output));
        tracker.deleted(
            &made.pod(),
            Arrival::Live,
            Some(at(number)),
            &mut |output| outputs.push(output),
        );
        assert!(tracker.len() <= 6);
    }
    assert_eq!(tracker.counts().early_dropped, 1_000 - 7);
    for number in 2_000..2_100 {
        let mut made = PodBuilder::new(spec()).named(number);
        tracker.pod(
            &made.pod(),
            Arrival::Live,
            Some(at(number)),
            &mut |output| outputs.push(output),
        );
    }
    assert_eq!((tracker.len(), tracker.counts().rejected), (20, 100 - 15));
    tracker.finish(&mut |output| outputs.push(output));
    let lifecycles = outputs
        .iter()
        .filter(|output| matches!(output, Output::Lifecycle(_)));
    assert_eq!(lifecycles.count(), 1_000 + 15);
}

#[test]
fn observed_states_advance_the_clock() {
    let mut tracker = Tracker::new(TrackerConfig {
        linger: Some(Duration::from_secs(1)),
        ..TrackerConfig::default()
    });
    let mut outputs = Vec::new();
    let mut one = PodBuilder::new(spec()).named(1);
    tracker.pod(
        &one.status(json!({}), &READY),
        Arrival::Live,
        Some(at(2)),
        &mut |output| outputs.push(output),
    );
    let mut two = PodBuilder::new(spec()).named(2);
    tracker.pod(&two.pod(), Arrival::Live, Some(at(9)), &mut |output| {
        outputs.push(output);
    });
    assert_eq!(kinds(&outputs), ["startup"]);
}

/// After a restore of etcd, new pods counted as emitted by another replica until their versions
/// passed the old checkpoint, and new states of known pods as repeated.
#[test]
fn versions_that_went_back_hide_no_pod() {
    let spec = json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]});
    let ready = ["ContainersReady=True@2", "Ready=True@2"];
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    let mut known = PodBuilder::new(spec.clone()).named(1);
    known.at_version(10_000);
    tracker.pod(&known.pod(), Arrival::Live, Some(at(0)), &mut out);
    tracker.apply_checkpoint("10001@2026-11-15T20:12:00Z".parse().unwrap());
    tracker.forget_versions();
    known.at_version(50);
    let state = known.status(json!({}), &ready);
    tracker.pod(&state, Arrival::Relisted, Some(at(3)), &mut out);
    let mut new = PodBuilder::new(spec).named(2);
    let state = new.status(json!({}), &ready);
    tracker.pod(&state, Arrival::Live, Some(at(3)), &mut out);
    tracker.advance(at(20), &mut out);
    let counts = tracker.counts();
    assert_eq!((counts.repeated, counts.leader_emitted), (0, 0));
    assert_eq!(outputs.len(), 2, "{outputs:?}");
}

//! Clocks of three hosts, and pods that are older than their observer.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Pod, Timestamp};
use kubevitals_transitions::{Arrival, Phase, PodRecord};
use serde_json::json;

use crate::support::{PodBuilder, at, patient, running, status};

/// A time of the observer: half a second after a second, shifted by the error of its clock.
fn seen(second: u32, error: i64) -> Timestamp {
    let millis = at(second).unix_millis() + 500 + error * 1_000;
    Timestamp::from_unix_millis(millis)
}

fn states(node_ahead: i32) -> [(u32, Arc<Pod>); 3] {
    let node = |second: u32| second.checked_add_signed(node_ahead).unwrap();
    let mut made = PodBuilder::new(json!({"nodeName": "n1", "containers": [
        {"name": "app", "image": "i", "startupProbe": {}}]}));
    made.created_at(100);
    let created = made.status(json!({}), &["PodScheduled=True@101"]);
    let mut fields = json!({"phase": "Running", "startTime": crate::support::stamp(node(101)),
        "containerStatuses": [status("app", running(node(103)), false, false)]});
    let sandbox = format!("PodReadyToStartContainers=True@{}", node(102));
    let conditions = ["PodScheduled=True@101", &sandbox];
    let started = made.status(fields.clone(), &conditions);
    fields["containerStatuses"] = json!([status("app", running(node(103)), true, true)]);
    let ready = format!("Ready=True@{}", node(107));
    let all = format!("ContainersReady=True@{}", node(107));
    let conditions = ["PodScheduled=True@101", &sandbox, &all, &ready];
    let done = made.status(fields, &conditions);
    [(101, created), (103, started), (107, done)]
}

fn record(states: &[(u32, Arc<Pod>)], observer: i64) -> Arc<PodRecord> {
    let mut tracker = patient();
    for (second, pod) in states {
        tracker.pod(
            pod,
            Arrival::Live,
            Some(seen(*second, observer)),
            &mut |_| {},
        );
    }
    let mut records = Vec::new();
    tracker.finish(&mut |output| records.push(output));
    match records.pop().unwrap() {
        kubevitals_transitions::Output::Lifecycle(record) => record,
        other => panic!("{other:?}"),
    }
}

/// The API's times were trusted: a kubelet whose clock is 60 s ahead made a start of 7 s one of
/// 67 s.
#[test]
fn the_clock_of_a_node_does_not_change_durations() {
    for ahead in [0, 60, -3, -60] {
        let record = record(&states(ahead), 0);
        assert_eq!(record.is_skewed(), ahead != 0, "{ahead}");
        let total = record.total().unwrap().as_secs_f64();
        assert!((6.0..=8.0).contains(&total), "{ahead}: {total}");
        for segment in record.critical_path() {
            assert!(
                segment.took() <= Duration::from_secs(6),
                "{ahead}: {segment:?}"
            );
        }
    }
}

/// A startup probe passes by the observer's clock and a container runs by the node's.
#[test]
fn the_clock_of_the_observer_does_not_change_durations() {
    for error in [0, 30, -30] {
        let record = record(&states(0), error);
        assert!(!record.is_skewed(), "{error}");
        let probe: u64 = record
            .critical_path()
            .iter()
            .filter(|segment| segment.phase == Phase::StartupProbe)
            .map(|segment| segment.took().as_secs())
            .sum();
        assert!((3..=5).contains(&probe), "{error}: {probe}");
    }
}

/// A pod without a start time in a list counted as seen from its creation.
#[test]
fn a_listed_pod_that_waits_is_not_seen_from_its_creation() {
    let mut made = PodBuilder::new(json!({"containers": [{"name": "app", "image": "i"}],
        "schedulingGates": [{"name": "example.com/quota"}]}));
    let gated = made.status(json!({}), &["PodScheduled=False@0/SchedulingGated"]);
    for (arrival, second, reconstructed) in [
        (Arrival::Listed, 10_800, true),
        (Arrival::Relisted, 10_800, true),
        (Arrival::Listed, 1, false),
        (Arrival::Live, 10_800, false),
    ] {
        let mut tracker = patient();
        tracker.pod(&gated, arrival, Some(seen(second, 0)), &mut |_| {});
        let record = tracker.records().next().unwrap();
        assert_eq!(record.reconstructed, reconstructed, "{arrival:?} {second}");
        let observed = record.milestones.gated.unwrap().observed;
        assert_eq!(observed.is_none(), reconstructed, "{arrival:?} {second}");
    }
}

/// Steps before a restart of the role had the time of the restart.
#[test]
fn steps_before_the_first_state_of_an_old_pod_have_no_observed_time() {
    let [_, _, (_, ready)] = states(0);
    let mut tracker = patient();
    tracker.pod(&ready, Arrival::Listed, Some(seen(200, 0)), &mut |_| {});
    let record = tracker.records().next().unwrap();
    let app = &record.containers[0];
    assert!(record.reconstructed);
    assert_eq!(app.running.unwrap().observed, None);
    // The API has no time for it.
    assert_eq!(app.started.unwrap().best(), None);
    assert_eq!(record.milestones.ready.unwrap().observed, None);
}

/// Only the first state of a stream without times of receipt counted.
#[test]
fn the_last_time_seen_comes_from_the_states_where_nothing_was_observed() {
    let [(_, created), (_, started), _] = states(0);
    let mut tracker = patient();
    for pod in [&created, &started] {
        tracker.pod(pod, Arrival::Live, None, &mut |_| {});
    }
    let record = tracker.records().next().unwrap();
    assert_eq!(record.latest, Some(at(103)));
}

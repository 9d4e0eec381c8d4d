//! Records of image pulls: when the pull ends, and once.

use kubevitals_model::Event;
use kubevitals_transitions::{
    Arrival, BlockerKind, Existing, Output, PullTarget, Tracker, TrackerConfig,
};
use serde_json::{Value, json};

use crate::support::{PodBuilder, at, lifecycles, recorded, running, stamp, status, waiting};

const PATH: &str = "spec.containers{app}";
const PULLED: &str =
    "Successfully pulled image \"i\" in 4s (5s including waiting). Image size: 7 bytes.";
const PRESENT: &str = "Container image \"i\" already present on machine";

fn spec() -> Value {
    json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}, {"name": "helper", "image": "j"}]})
}

fn tracker() -> Tracker {
    Tracker::new(TrackerConfig::default())
}

fn pulled(made: &PodBuilder, path: &str, message: &str, second: u32, version: u64) -> Event {
    let name = format!("{path}.{version}");
    let mut event = made.event(&name, "Pulled", path, message, (second, second), 1);
    event.identity.resource_version = version.to_string().as_str().into();
    event
}

fn ready(made: &mut PodBuilder) -> std::sync::Arc<kubevitals_model::Pod> {
    let statuses = ["app", "helper"].map(|name| status(name, running(9), true, true));
    let fields = json!({"phase": "Running", "containerStatuses": statuses});
    made.status(fields, &["ContainersReady=True@9", "Ready=True@9"])
}

/// The kind of each output, with the container of a pull.
fn kinds(outputs: &[Output]) -> Vec<String> {
    let kind = |output: &Output| match output {
        Output::Startup(_) => "startup".to_owned(),
        Output::Lifecycle(_) => "lifecycle".to_owned(),
        Output::Progress(_) => "progress".to_owned(),
        Output::ImagePull(_, PullTarget::Container(name)) => format!("pull of {name}"),
        Output::ImagePull(_, PullTarget::Volume(image)) => format!("pull of volume {image}"),
    };
    outputs.iter().map(kind).collect()
}

#[test]
fn a_pull_is_emitted_when_it_ends_and_once() {
    let (mut tracker, mut made) = (tracker(), PodBuilder::new(spec()));
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut out);
    let app = pulled(&made, PATH, PULLED, 6, 10);
    tracker.event(&app, &mut out);
    tracker.event(&app, &mut out);
    tracker.event_listed(&app, at(7), &mut out);
    tracker.event(&pulled(&made, PATH, PRESENT, 8, 11), &mut out);
    let helper = "spec.containers{helper}";
    tracker.event(&pulled(&made, helper, PRESENT, 8, 12), &mut out);
    tracker.event(
        &pulled(&made, "spec.ephemeralContainers{debug}", PRESENT, 8, 13),
        &mut out,
    );
    tracker.pod(&ready(&mut made), Arrival::Live, Some(at(9)), &mut out);
    tracker.advance(at(20), &mut out);
    tracker.deleted(&made.pod(), Arrival::Live, Some(at(30)), &mut out);
    tracker.advance(at(40), &mut out);
    assert_eq!(
        kinds(&outputs),
        ["pull of app", "pull of helper", "startup", "lifecycle"]
    );
}

#[test]
fn a_pull_known_before_its_pod_is_emitted_with_the_pod() {
    let (mut tracker, mut made) = (tracker(), PodBuilder::new(spec()));
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    tracker.event(&pulled(&made, PATH, PULLED, 6, 10), &mut out);
    tracker.pod(&made.pod(), Arrival::Live, Some(at(7)), &mut out);
    assert_eq!(kinds(&outputs), ["pull of app"]);
}

#[test]
fn a_recording_has_each_pull_before_the_start_of_its_pod() {
    let (pods, events) = recorded();
    let outputs = lifecycles(pods.iter().chain(&events));
    let (mut pulls, mut started) = (Vec::new(), Vec::new());
    for output in &outputs {
        match output {
            Output::ImagePull(record, target) => {
                let uid = record.pod.summary.identity.uid.clone();
                assert!(!started.contains(&uid));
                assert!(record.facts.pull(target).unwrap().done.is_some());
                pulls.push((uid, format!("{target:?}")));
            }
            Output::Startup(record) => started.push(record.pod.summary.identity.uid.clone()),
            _ => {}
        }
    }
    let all = pulls.len();
    pulls.sort();
    pulls.dedup();
    assert!(all > 10 && pulls.len() == all, "{all}");
}

/// The leader and a standby see one stream each; the leader ends after some of it.
fn hand_over(inputs: &[(usize, usize)], leader_sees: usize) -> Vec<String> {
    let (mut leader, mut standby) = (tracker(), tracker());
    standby.stand_by();
    let mut made: Vec<PodBuilder> = (0..3).map(|n| PodBuilder::new(spec()).named(n)).collect();
    let states: Vec<_> = (0..)
        .zip(&mut made)
        .map(|(number, made)| {
            made.at_version(100 + number);
            made.pod()
        })
        .collect();
    let events: Vec<Event> = (0..)
        .zip(&made)
        .map(|(number, made)| pulled(made, PATH, PULLED, 6, 500 + number))
        .collect();
    let (mut by_leader, mut by_standby) = (Vec::new(), Vec::new());
    let feed = |tracker: &mut Tracker, outputs: &mut Vec<Output>, input: (usize, usize)| {
        let mut out = |output| outputs.push(output);
        match input {
            (0, number) => tracker.pod(&states[number], Arrival::Live, Some(at(7)), &mut out),
            (_, number) => tracker.event(&events[number], &mut out),
        }
    };
    for input in &inputs[..leader_sees] {
        feed(&mut leader, &mut by_leader, *input);
    }
    // The standby has its own order of the two watches: all pods, then all events.
    let mut ordered = inputs.to_vec();
    ordered.sort_unstable();
    for input in ordered {
        feed(&mut standby, &mut by_standby, input);
    }
    if let Some(checkpoint) = leader.checkpoint() {
        let text = checkpoint.to_string();
        standby.apply_checkpoint(text.parse().unwrap());
    }
    assert!(by_standby.is_empty());
    standby.lead(&mut |output| by_standby.push(output));
    let uids = by_leader
        .iter()
        .chain(&by_standby)
        .map(|output| match output {
            Output::ImagePull(record, _) => record.pod.summary.identity.uid.to_string(),
            other => panic!("{other:?}"),
        });
    let mut uids: Vec<String> = uids.collect();
    uids.sort();
    uids
}

#[test]
fn a_hand_over_leaves_neither_a_gap_nor_a_duplicate_of_pulls() {
    // 0 is a pod and 1 its event; an event may come before its pod.
    let inputs = [(0, 0), (1, 0), (1, 1), (0, 1), (1, 2), (0, 2)];
    for leader_sees in 0..=inputs.len() {
        let pulls = hand_over(&inputs, leader_sees);
        let mut distinct = pulls.clone();
        distinct.dedup();
        assert_eq!((pulls.len(), distinct.len()), (3, 3), "after {leader_sees}");
    }
}

#[test]
fn a_restart_repeats_no_pull() {
    let mut made = PodBuilder::new(spec());
    let (state, event) = (made.pod(), pulled(&made, PATH, PULLED, 6, 500));
    let mut first = tracker();
    first.pod(&state, Arrival::Live, Some(at(1)), &mut drop);
    let mut outputs = Vec::new();
    first.event(&event, &mut |output| outputs.push(output));
    assert_eq!(kinds(&outputs), ["pull of app"]);
    let later = pulled(&made, "spec.containers{helper}", PRESENT, 30, 501);
    for (since, expected) in [
        (first.checkpoint(), &["pull of helper"][..]),
        (None, &["pull of helper"][..]),
    ] {
        let mut second = Tracker::new(TrackerConfig {
            existing: Existing::Unsettled { since },
            ..TrackerConfig::default()
        });
        let mut outputs = Vec::new();
        let mut out = |output| outputs.push(output);
        second.resync([&state], Arrival::Listed, Some(at(20)), &mut out);
        second.event_listed(&event, at(20), &mut out);
        second.event(&later, &mut out);
        assert_eq!(kinds(&outputs), expected, "{since:?}");
    }
}

#[test]
fn an_image_volume_has_a_pull_of_its_own() {
    let (mut tracker, mut made) = (tracker(), PodBuilder::new(spec()));
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut out);
    let message = "Pulling image \"registry/model:1\"";
    let pulling = made.event("a", "Pulling", "", message, (1, 1), 1);
    tracker.event(&pulling, &mut out);
    let created =
        ["app", "helper"].map(|name| status(name, waiting("ContainerCreating"), false, false));
    let fields = json!({"startTime": stamp(1), "containerStatuses": created});
    let conditions = ["PodScheduled=True@0", "PodReadyToStartContainers=True@1"];
    tracker.pod(
        &made.status(fields, &conditions),
        Arrival::Live,
        Some(at(2)),
        &mut out,
    );
    let record = tracker.get(&made.uid.as_str().into()).unwrap();
    assert_eq!(record.blocker().unwrap().kind, BlockerKind::ImagePull);
    let message = "Successfully pulled image \"registry/model:1\" in 4s (5s including waiting). Image size: 7 bytes.";
    tracker.event(&pulled(&made, "", message, 6, 10), &mut out);
    assert_eq!(kinds(&outputs), ["pull of volume registry/model:1"]);
    let Output::ImagePull(record, target) = &outputs[0] else {
        panic!();
    };
    let pull = record.facts.pull(target).unwrap();
    assert_eq!(pull.began, Some(at(1)));
    assert_eq!(pull.done.as_ref().unwrap().bytes, Some(7));
}

#[test]
fn combined_pulls_are_not_attributed_to_a_container() {
    let (mut tracker, mut made) = (tracker(), PodBuilder::new(spec()));
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut out);
    let combined = format!("(combined from similar events): {PULLED}");
    tracker.event(&pulled(&made, PATH, &combined, 6, 10), &mut out);
    assert!(outputs.is_empty());
    let record = tracker.get(&made.uid.as_str().into()).unwrap();
    assert!(record.pulls().next().is_none());
}

#[test]
fn a_pod_that_leaves_the_selector_is_not_deleted() {
    let mut tracker = Tracker::new(TrackerConfig {
        has_selector: true,
        ..TrackerConfig::default()
    });
    let (mut left, mut gone) = (
        PodBuilder::new(spec()).named(1),
        PodBuilder::new(spec()).named(2),
    );
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    for made in [&mut left, &mut gone] {
        tracker.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut out);
    }
    tracker.deleted(&left.pod(), Arrival::Live, Some(at(1)), &mut out);
    gone.deleting(1, 0);
    tracker.deleted(&gone.pod(), Arrival::Live, Some(at(1)), &mut out);
    tracker.advance(at(20), &mut out);
    assert_eq!(kinds(&outputs), ["lifecycle", "startup", "lifecycle"]);
    let ends = outputs.iter().filter_map(|output| match output {
        Output::Lifecycle(record) => Some(record.end.as_str()),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), ["unselected", "deleted"]);
    assert_eq!(tracker.starting(), 0);
}

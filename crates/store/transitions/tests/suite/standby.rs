//! Several replicas that track the same pods, and lists after gaps.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use kubevitals_model::{Pod, Uid};
use kubevitals_transitions::{
    Arrival, Checkpoint, End, Existing, Facts, Output, Tracker, TrackerConfig,
};
use kubevitals_watch::EventType;
use proptest::prelude::*;
use serde_json::json;

use crate::support::{PodBuilder, StreamItem, at, recorded};

const READY: [&str; 2] = ["ContainersReady=True@2", "Ready=True@2"];

static PODS: LazyLock<Vec<StreamItem>> = LazyLock::new(|| recorded().0);

fn spec() -> serde_json::Value {
    json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]})
}

fn tracker() -> Tracker {
    Tracker::new(TrackerConfig::default())
}

fn startups(outputs: &[Output]) -> Vec<Uid> {
    outputs
        .iter()
        .filter_map(|output| match output {
            Output::Startup(record) => Some(record.pod.summary.identity.uid.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_list_ends_missing_pods_and_applies_the_others() {
    let mut tracker = tracker();
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    let (mut stays, mut goes, mut comes) = (
        PodBuilder::new(spec()).named(1),
        PodBuilder::new(spec()).named(2),
        PodBuilder::new(spec()).named(3),
    );
    tracker.resync(
        [&stays.pod(), &goes.pod()],
        Arrival::Listed,
        Some(at(0)),
        &mut out,
    );
    // It became ready in a gap of the watch.
    let ready = stays.status(json!({}), &READY);
    tracker.resync(
        [&ready, &comes.pod()],
        Arrival::Relisted,
        Some(at(9)),
        &mut out,
    );
    assert_eq!(tracker.counts().vanished, 1);
    assert_eq!(tracker.len(), 3, "the missing one waits for late events");
    tracker.advance(at(20), &mut out);
    let kinds: Vec<_> = outputs
        .iter()
        .map(|output| match output {
            Output::Startup(record) => ("startup", record),
            Output::Lifecycle(record) => ("lifecycle", record),
            Output::Progress(record) => ("progress", record),
            Output::ImagePull(record, _) => ("pull", record),
        })
        .map(|(kind, record)| {
            let uid = record.pod.summary.identity.uid.to_string();
            (kind, uid.ends_with('1'), record.end)
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("startup", true, End::Open),
            ("startup", false, End::Vanished),
            ("lifecycle", false, End::Vanished)
        ]
    );
    assert_eq!(tracker.len(), 2);
    // The same list again changes nothing.
    tracker.resync(
        [&ready, &comes.pod()],
        Arrival::Relisted,
        Some(at(30)),
        &mut |_| panic!(),
    );
}

#[test]
fn an_old_listed_event_is_applied_to_known_pods_only() {
    let mut tracker = tracker();
    let mut known = PodBuilder::new(spec()).named(1);
    let stray = PodBuilder::new(spec()).named(2);
    tracker.pod(&known.pod(), Arrival::Listed, Some(at(100)), &mut |_| {});
    let pulling = |made: &PodBuilder, second| {
        let (path, message) = ("spec.containers{app}", "Pulling image \"i\"");
        made.event("a", "Pulling", path, message, (second, second), 1)
    };
    for (made, second, early, stale) in [
        (&known, 1, 0, 0),
        (&stray, 39, 0, 1),
        (&stray, 40, 1, 1),
        (&stray, 99, 1, 1),
    ] {
        tracker.event_listed(&pulling(made, second), at(100), &mut |_| {});
        let seen = (tracker.early(), tracker.counts().events_stale);
        assert_eq!(seen, (early, stale), "{second}");
    }
    // As it happens, it is news however late its clock is.
    tracker.event(&pulling(&stray, 1), &mut |_| {});
    assert_eq!(tracker.counts().events_stale, 1);
    let record = tracker.get(&known.uid.as_str().into()).unwrap();
    assert_eq!(record.facts.of("app").unwrap().pull.began, Some(at(1)));
}

#[test]
fn the_field_selector_excludes_no_relevant_reason() {
    let selector = Facts::field_selector();
    let mut terms = selector.split(',');
    assert_eq!(terms.next(), Some("involvedObject.kind=Pod"));
    let (sources, reasons): (Vec<&str>, Vec<&str>) =
        terms.partition(|term| term.starts_with("source!="));
    // The scheduler writes nothing that a pod does not have.
    assert_eq!(sources, ["source!=default-scheduler"]);
    for term in reasons {
        let reason = term.strip_prefix("reason!=").unwrap();
        let event =
            PodBuilder::new(spec()).event("a", reason, "spec.containers{app}", "", (1, 1), 1);
        assert!(!Facts::is_relevant(&event), "{reason}");
    }
    let pulled =
        PodBuilder::new(spec()).event("a", "Pulled", "spec.containers{app}", "", (1, 1), 1);
    assert!(Facts::is_relevant(&pulled));
    // Karpenter's is read, that of a scheduler of another name is not.
    for (message, is_relevant) in [
        ("Failed to schedule pod, incompatible with nodepool", true),
        ("0/3 nodes are available: 3 Insufficient cpu.", false),
    ] {
        let made = PodBuilder::new(spec());
        let event = made.event("a", "FailedScheduling", "", message, (1, 1), 1);
        assert_eq!(Facts::is_relevant(&event), is_relevant, "{message}");
    }
}

#[test]
fn a_new_leader_emits_what_the_last_one_did_not() {
    let (mut leader, mut standby) = (tracker(), tracker());
    standby.stand_by();
    let (mut by_leader, mut by_standby) = (Vec::new(), Vec::new());
    let mut pods: Vec<PodBuilder> = (0..10)
        .map(|number| PodBuilder::new(spec()).named(number))
        .collect();
    for (number, made) in (0..).zip(&mut pods) {
        // Versions of different pods differ, as those of a server do.
        let mut state = made.status(json!({}), &READY);
        for _ in 0..number {
            state = made.status(json!({}), &READY);
        }
        let now = Some(at(10 * (number + 1)));
        leader.pod(&state, Arrival::Live, now, &mut |output| {
            by_leader.push(output);
        });
        standby.pod(&state, Arrival::Live, now, &mut |output| {
            by_standby.push(output);
        });
    }
    assert_eq!((by_leader.len(), by_standby.len()), (9, 0));
    assert_eq!(standby.queued(), 10);
    assert_eq!(standby.starting(), 10);
    let until = leader.checkpoint().unwrap();
    assert_eq!(
        until,
        Checkpoint {
            version: 109,
            event_version: None,
            time: at(100)
        }
    );

    standby.apply_checkpoint(until);
    assert_eq!((standby.queued(), standby.counts().leader_emitted), (1, 9));
    standby.advance(at(200), &mut |output| by_standby.push(output));
    standby.shut_down(&mut |output| by_standby.push(output));
    assert!(by_standby.is_empty(), "the leader emits it");
    standby.lead(&mut |output| by_standby.push(output));
    let mut all = startups(&by_leader);
    all.extend(startups(&by_standby));
    all.sort();
    all.dedup();
    assert_eq!((all.len(), by_standby.len()), (10, 1));
    assert_eq!(standby.checkpoint().unwrap().version, 110);
}

#[test]
fn a_leader_behind_its_predecessor_repeats_nothing() {
    let mut successor = tracker();
    let mut outputs = Vec::new();
    successor.apply_checkpoint(Checkpoint {
        version: 105,
        event_version: None,
        time: at(50),
    });
    successor.lead(&mut |output| outputs.push(output));
    let mut made = PodBuilder::new(spec());
    for _ in 0..9 {
        let state = made.status(json!({}), &READY);
        successor.pod(&state, Arrival::Live, Some(at(40)), &mut |output| {
            outputs.push(output);
        });
    }
    made.deleting(60, 0);
    successor.deleted(&made.pod(), Arrival::Live, Some(at(60)), &mut |output| {
        outputs.push(output);
    });
    successor.advance(at(90), &mut |output| outputs.push(output));
    assert!(
        startups(&outputs).is_empty(),
        "version 101 was ready: {outputs:?}"
    );
    assert!(
        matches!(&outputs[..], [Output::Lifecycle(_)]),
        "{outputs:?}"
    );
    assert_eq!(successor.starting(), 0);
}

#[test]
fn an_unordered_list_does_not_advance_the_checkpoint() {
    let mut leader = tracker();
    let mut one = PodBuilder::new(spec()).named(1);
    leader.pod(&one.pod(), Arrival::Live, Some(at(0)), &mut |_| {});
    let known = leader.checkpoint().unwrap().version;
    let mut later = PodBuilder::new(spec()).named(2);
    for _ in 0..20 {
        later.pod();
    }
    let late = later.pod();
    // After a gap: the one with the later version comes first, and the other is still in the queue.
    leader.pod(&late, Arrival::Relisted, Some(at(1)), &mut |_| {});
    assert_eq!(leader.checkpoint().unwrap().version, known);
    let ready = one.status(json!({}), &READY);
    leader.pod(&ready, Arrival::Relisted, Some(at(1)), &mut |_| {});
    leader.advance(at(60), &mut |_| {});
    assert_eq!(leader.checkpoint().unwrap().version, known);
    // What happens afterwards comes after all of the list.
    let live = later.pod();
    leader.pod(&live, Arrival::Live, Some(at(61)), &mut |_| {});
    let version = live.summary.identity.resource_version.as_number();
    assert_eq!(Some(leader.checkpoint().unwrap().version), version);
    // A list that is taken in as a whole leaves nothing out.
    leader.resync(
        [&later.pod(), &one.pod()],
        Arrival::Relisted,
        Some(at(62)),
        &mut |_| {},
    );
    assert_eq!(
        Some(leader.checkpoint().unwrap().version),
        version.map(|version| version + 1)
    );
}

#[test]
fn the_queue_of_a_standby_without_a_leader_is_bounded() {
    let mut standby = Tracker::new(TrackerConfig {
        max_ended: 5,
        ..TrackerConfig::default()
    });
    standby.stand_by();
    for number in 0..100 {
        let mut made = PodBuilder::new(spec()).named(number);
        let mut out = |_| panic!("a standby emits nothing");
        standby.pod(
            &made.status(json!({}), &READY),
            Arrival::Live,
            Some(at(number)),
            &mut out,
        );
        standby.deleted(&made.pod(), Arrival::Live, Some(at(number)), &mut out);
        assert!(standby.len() <= 6 && standby.queued() <= 12);
    }
    assert!(standby.counts().standby_dropped > 0);
}

#[test]
fn only_the_leader_emits_progress() {
    let config = TrackerConfig {
        progress: true,
        ..TrackerConfig::default()
    };
    let mut standby = Tracker::new(config);
    standby.stand_by();
    let mut made = PodBuilder::new(spec());
    standby.pod(&made.pod(), Arrival::Live, Some(at(0)), &mut |_| panic!());
    let mut outputs = 0;
    standby.lead(&mut |_| outputs += 1);
    standby.pod(&made.pod(), Arrival::Live, Some(at(1)), &mut |_| {
        outputs += 1;
    });
    assert_eq!(outputs, 1);
}

/// Feeds the item of the stream at an index.
fn feed(tracker: &mut Tracker, index: usize, outputs: &mut Vec<Output>) {
    let now = Some(at(u32::try_from(index).unwrap() * 2));
    let mut out = |output| outputs.push(output);
    match &PODS[index] {
        StreamItem::Pod(EventType::Deleted, pod, _) => {
            tracker.deleted(pod, Arrival::Live, now, &mut out);
        }
        StreamItem::Pod(_, pod, _) => tracker.pod(pod, Arrival::Live, now, &mut out),
        StreamItem::Event(_) => panic!("only pods are fed"),
    }
}

fn existing(since: Option<Checkpoint>) -> Tracker {
    Tracker::new(TrackerConfig {
        existing: Existing::Unsettled { since },
        ..TrackerConfig::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Two replicas see one stream, the second somewhat behind or ahead. At any moment the first
    /// shuts down, or crashes with a checkpoint older than its last record. After a shutdown each
    /// start is emitted once; after a crash none is missing, and only records after the checkpoint
    /// may be emitted twice.
    #[test]
    fn two_replicas_emit_every_start(
        handover in 0_usize..153, behind in 0_usize..20, stale in 0_usize..10, crashes in any::<bool>(),
    ) {
        let mut alone = tracker();
        let mut expected = Vec::new();
        for index in 0..PODS.len() {
            feed(&mut alone, index, &mut expected);
        }
        alone.shut_down(&mut |output| expected.push(output));

        let (mut first, mut second) = (tracker(), tracker());
        second.stand_by();
        let (mut by_first, mut by_second) = (Vec::new(), Vec::new());
        let mut until = None;
        for index in 0..handover {
            feed(&mut first, index, &mut by_first);
            if index + stale < handover {
                until = first.checkpoint();
            }
            if index >= behind {
                feed(&mut second, index - behind, &mut by_second);
            }
        }
        let emitted_before = by_first.len();
        if !crashes {
            first.shut_down(&mut |output| by_first.push(output));
            until = first.checkpoint();
        }
        if let Some(until) = until {
            second.apply_checkpoint(until);
        }
        second.lead(&mut |output| by_second.push(output));
        for index in handover.saturating_sub(behind)..PODS.len() {
            feed(&mut second, index, &mut by_second);
        }
        second.shut_down(&mut |output| by_second.push(output));

        let mut counts: BTreeMap<Uid, usize> = BTreeMap::new();
        for uid in startups(&by_first).into_iter().chain(startups(&by_second)) {
            *counts.entry(uid).or_default() += 1;
        }
        let mut wanted = startups(&expected);
        wanted.sort();
        prop_assert_eq!(counts.keys().cloned().collect::<Vec<_>>(), wanted);
        let repeated = counts.values().filter(|count| **count > 1).count();
        if crashes {
            prop_assert!(repeated <= emitted_before.min(2 * stale + 1));
        } else {
            prop_assert_eq!(repeated, 0);
        }
    }

    /// A replica that starts from a checkpoint and a list emits what the last leader did not.
    #[test]
    fn a_start_from_a_checkpoint_misses_no_existing_pod(handover in 1_usize..153) {
        let mut first = tracker();
        let mut by_first = Vec::new();
        let mut there: BTreeMap<Uid, Arc<Pod>> = BTreeMap::new();
        for index in 0..handover {
            feed(&mut first, index, &mut by_first);
            if let StreamItem::Pod(event, pod, _) = &PODS[index] {
                let uid = pod.summary.identity.uid.clone();
                if *event == EventType::Deleted { there.remove(&uid); } else { there.insert(uid, Arc::clone(pod)); }
            }
        }
        let until = first.checkpoint();
        let now = at(u32::try_from(handover).unwrap() * 2);
        let mut second = existing(until);
        let mut by_second = Vec::new();
        second.resync(there.values(), Arrival::Listed, Some(now), &mut |output| by_second.push(output));
        second.shut_down(&mut |output| by_second.push(output));
        first.shut_down(&mut |output| by_first.push(output));
        let outputs: Vec<Uid> = startups(&by_first).into_iter().chain(startups(&by_second)).collect();
        for (uid, pod) in &there {
            let record = first.get(uid).unwrap();
            let times = outputs.iter().filter(|one| *one == uid).count();
            // What the first had not emitted at its checkpoint, it emits afterwards here.
            prop_assert!(!record.is_settled() || (1..=2).contains(&times), "{}: {}", pod.summary.identity, times);
        }
    }
}

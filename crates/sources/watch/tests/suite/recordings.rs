//! Recordings of a real cluster, read here and by the types that `kube` reads it with.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self, Time};
use k8s_openapi::jiff;
use kubevitals_model::{
    AsPodSummary, Condition, ContainerSpec, ContainerState, ContainerStatus, Event, Identity,
    Labels, Node, ObjectMeta, PartialObjectMeta, Pod, PodSummary, Timestamp,
};
use kubevitals_watch::{
    Decoder, Kind, ObjectEvent, Update, WatchEvent, decode_event, decode_object,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::fake::{Fake, Fault, pass, within};

const PODS: &str = include_str!("../fixtures/pods.watch.jsonl");
const EVENTS: &str = include_str!("../fixtures/events.watch.jsonl");
const NODE: &str = include_str!("../fixtures/node.json");

/// Reads every line slim, and the object of every line as `kube` would.
fn both<K: Kind, T: serde::de::DeserializeOwned>(lines: &str) -> Vec<(K, T)> {
    let decoder = Decoder::default();
    lines
        .lines()
        .map(|line| {
            let slim = match decode_event(line.as_bytes(), &decoder).unwrap() {
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) => object,
                other => panic!("{other:?}"),
            };
            let mut line: Value = serde_json::from_str(line).unwrap();
            (slim, serde_json::from_value(line["object"].take()).unwrap())
        })
        .collect()
}

fn text(slim: Option<&Arc<str>>) -> Option<&str> {
    slim.map(|text| &**text)
}

/// An empty string and none mean the same.
fn opt(typed: Option<&String>) -> Option<&str> {
    typed.map(String::as_str).filter(|text| !text.is_empty())
}

fn time(typed: Option<&Time>) -> Option<Timestamp> {
    typed.map(|Time(time)| millis(*time))
}

fn millis(time: jiff::Timestamp) -> Timestamp {
    Timestamp::from_unix_millis(time.as_millisecond())
}

fn check_labels(slim: &Labels, typed: Option<&std::collections::BTreeMap<String, String>>) {
    let typed = typed.into_iter().flatten();
    let typed: Vec<(&str, &str)> = typed
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(slim.iter().collect::<Vec<_>>(), typed);
}

fn check_identity(slim: &Identity, typed: &v1::ObjectMeta) {
    assert_eq!(&*slim.name, typed.name.as_deref().unwrap());
    assert_eq!(
        &*slim.namespace,
        typed.namespace.as_deref().unwrap_or_default(),
    );
    assert_eq!(slim.uid.to_string(), typed.uid.clone().unwrap());
    assert_eq!(
        slim.resource_version.to_string(),
        typed.resource_version.clone().unwrap(),
    );
}

fn check_meta(slim: &ObjectMeta, typed: &v1::ObjectMeta) {
    assert_eq!(slim.generation, typed.generation.unwrap_or(0));
    assert_eq!(slim.created, time(typed.creation_timestamp.as_ref()));
    assert_eq!(slim.deleted, time(typed.deletion_timestamp.as_ref()));
    assert_eq!(
        slim.deletion_grace.map(i64::from),
        typed.deletion_grace_period_seconds,
    );
    let owners = typed.owner_references.as_deref().unwrap_or_default();
    assert_eq!(slim.owners.len(), owners.len());
    for (slim, typed) in slim.owners.iter().zip(owners) {
        assert_eq!(
            (
                &*slim.api_version,
                &*slim.kind,
                &*slim.name,
                slim.uid.to_string(),
                slim.controller,
            ),
            (
                typed.api_version.as_str(),
                typed.kind.as_str(),
                typed.name.as_str(),
                typed.uid.clone(),
                typed.controller.unwrap_or(false),
            ),
        );
    }
}

fn check_condition(
    slim: &Condition,
    kind: &str,
    status: &str,
    reason: Option<&String>,
    message: Option<&String>,
    last: Option<&Time>,
) {
    assert_eq!((&*slim.kind, slim.status.as_str()), (kind, status));
    assert_eq!(
        (text(slim.reason.as_ref()), text(slim.message.as_ref())),
        (opt(reason), opt(message)),
    );
    assert_eq!(slim.last_transition, time(last));
}

fn check_specs(slim: &[ContainerSpec], typed: &[core::Container]) {
    assert_eq!(slim.len(), typed.len());
    for (slim, typed) in slim.iter().zip(typed) {
        assert_eq!(
            (&*slim.name, text(slim.image.as_ref())),
            (typed.name.as_str(), opt(typed.image.as_ref())),
        );
        assert_eq!(
            slim.restarts_always,
            typed.restart_policy.as_deref() == Some("Always"),
        );
        assert_eq!(
            (slim.has_startup_probe, slim.has_readiness_probe),
            (
                typed.startup_probe.is_some(),
                typed.readiness_probe.is_some()
            ),
        );
    }
}

fn check_state(slim: &ContainerState, typed: Option<&core::ContainerState>) {
    let empty = core::ContainerState::default();
    let typed = typed.unwrap_or(&empty);
    match slim {
        ContainerState::Unset => assert_eq!(typed, &empty),
        ContainerState::Waiting { reason, message } => {
            let typed = typed.waiting.as_ref().unwrap();
            assert_eq!(text(reason.as_ref()), opt(typed.reason.as_ref()));
            assert_eq!(text(message.as_ref()), opt(typed.message.as_ref()));
        }
        ContainerState::Running { started_at } => {
            assert_eq!(
                *started_at,
                time(typed.running.as_ref().unwrap().started_at.as_ref()),
            );
        }
        ContainerState::Terminated(slim) => {
            let typed = typed.terminated.as_ref().unwrap();
            assert_eq!(
                (slim.exit_code, slim.signal),
                (typed.exit_code, typed.signal),
            );
            assert_eq!(text(slim.reason.as_ref()), opt(typed.reason.as_ref()));
            assert_eq!(text(slim.message.as_ref()), opt(typed.message.as_ref()));
            assert_eq!(slim.started_at, time(typed.started_at.as_ref()));
            assert_eq!(slim.finished_at, time(typed.finished_at.as_ref()));
        }
    }
}

fn check_statuses(slim: &[ContainerStatus], typed: Option<&Vec<core::ContainerStatus>>) {
    let typed = typed.map_or(&[][..], Vec::as_slice);
    assert_eq!(slim.len(), typed.len());
    for (slim, typed) in slim.iter().zip(typed) {
        assert_eq!(&*slim.name, typed.name.as_str());
        assert_eq!(text(slim.image.as_ref()), opt(Some(&typed.image)));
        assert_eq!((slim.ready, slim.started), (typed.ready, typed.started));
        assert_eq!(slim.restart_count, typed.restart_count);
        check_state(&slim.state, typed.state.as_ref());
        check_state(&slim.last_state, typed.last_state.as_ref());
    }
}

fn check_brief(slim: &PodSummary, typed: &core::Pod) {
    check_identity(&slim.identity, &typed.metadata);
    check_labels(&slim.labels, typed.metadata.labels.as_ref());
    assert_eq!(
        text(slim.node.as_ref()),
        opt(typed.spec.as_ref().unwrap().node_name.as_ref()),
    );
    assert_eq!(
        slim.phase.as_str(),
        typed.status.as_ref().unwrap().phase.as_deref().unwrap(),
    );
}

#[test]
fn every_field_of_every_pod_is_as_typed() {
    let pods = both::<Pod, core::Pod>(PODS);
    assert_eq!(pods.len(), 153);
    for (slim, typed) in &pods {
        check_brief(slim.summary(), typed);
        check_meta(&slim.meta, &typed.metadata);
        let (spec, status) = (typed.spec.as_ref().unwrap(), typed.status.as_ref().unwrap());
        check_specs(&slim.containers, &spec.containers);
        check_specs(
            &slim.init_containers,
            spec.init_containers.as_deref().unwrap_or_default(),
        );
        assert!(spec.scheduling_gates.is_none() && slim.scheduling_gates.is_empty());
        assert!(spec.readiness_gates.is_none() && slim.readiness_gates.is_empty());
        assert_eq!(
            text(slim.priority_class.as_ref()),
            opt(spec.priority_class_name.as_ref()),
        );
        assert_eq!(
            text(slim.runtime_class.as_ref()),
            opt(spec.runtime_class_name.as_ref()),
        );
        assert_eq!(slim.host_network, spec.host_network.unwrap_or(false));
        let policy = spec.restart_policy.as_deref().unwrap_or_default();
        assert_eq!(
            slim.restart_policy,
            kubevitals_model::RestartPolicy::from(policy)
        );
        assert!(slim.stateless);
        let conditions = status.conditions.as_deref().unwrap_or_default();
        assert_eq!(slim.conditions.len(), conditions.len());
        for (slim, typed) in slim.conditions.iter().zip(conditions) {
            check_condition(
                slim,
                &typed.type_,
                &typed.status,
                typed.reason.as_ref(),
                typed.message.as_ref(),
                typed.last_transition_time.as_ref(),
            );
        }
        check_statuses(&slim.container_statuses, status.container_statuses.as_ref());
        check_statuses(
            &slim.init_container_statuses,
            status.init_container_statuses.as_ref(),
        );
        check_statuses(
            &slim.ephemeral_container_statuses,
            status.ephemeral_container_statuses.as_ref(),
        );
        assert_eq!(text(slim.reason.as_ref()), opt(status.reason.as_ref()));
        assert_eq!(text(slim.message.as_ref()), opt(status.message.as_ref()));
        assert_eq!(
            text(slim.qos_class.as_ref()),
            opt(status.qos_class.as_ref()),
        );
        assert_eq!(text(slim.resize.as_ref()), opt(status.resize.as_ref()));
        assert_eq!(slim.started, time(status.start_time.as_ref()));
        assert_eq!(text(slim.pod_ip.as_ref()), opt(status.pod_ip.as_ref()));
        assert_eq!(text(slim.host_ip.as_ref()), opt(status.host_ip.as_ref()));
    }
    // The recording has what the comparison is worth something for.
    let has = |what: fn(&Pod) -> bool| assert!(pods.iter().any(|(pod, _)| what(pod)));
    has(|pod| pod.meta.deleted.is_some());
    has(|pod| {
        pod.init_containers
            .iter()
            .any(|container| container.restarts_always)
    });
    has(|pod| {
        pod.container_statuses
            .iter()
            .any(|one| one.restart_count > 0)
    });
    has(|pod| {
        pod.container_statuses
            .iter()
            .any(|one| one.last_state != ContainerState::Unset)
    });
    has(|pod| {
        pod.conditions
            .iter()
            .any(|one| one.reason.as_deref() == Some("Unschedulable"))
    });
}

#[test]
fn pod_summaries_and_metadata_are_as_typed() {
    for (slim, typed) in both::<PodSummary, core::Pod>(PODS) {
        check_brief(&slim, &typed);
    }
    for (slim, typed) in both::<PartialObjectMeta, core::Pod>(PODS) {
        check_identity(&slim.identity, &typed.metadata);
        check_labels(&slim.labels, typed.metadata.labels.as_ref());
        check_meta(&slim.meta, &typed.metadata);
        assert!(slim.meta.annotations.is_empty());
    }
}

#[test]
fn every_field_of_every_event_is_as_typed() {
    let events = both::<Event, core::Event>(EVENTS);
    assert_eq!(events.len(), 197);
    for (slim, typed) in &events {
        check_identity(&slim.identity, &typed.metadata);
        assert_eq!(
            slim.created,
            time(typed.metadata.creation_timestamp.as_ref()),
        );
        let (regarding, object) = (&slim.regarding, &typed.involved_object);
        assert_eq!(&*regarding.kind, object.kind.as_deref().unwrap());
        assert_eq!(
            &*regarding.namespace,
            object.namespace.as_deref().unwrap_or_default(),
        );
        assert_eq!(&*regarding.name, object.name.as_deref().unwrap());
        assert_eq!(
            regarding.uid.to_string(),
            object.uid.clone().unwrap_or_default(),
        );
        assert_eq!(
            text(regarding.field_path.as_ref()),
            opt(object.field_path.as_ref()),
        );
        assert_eq!(text(slim.reason.as_ref()), opt(typed.reason.as_ref()));
        assert_eq!(text(slim.message.as_ref()), opt(typed.message.as_ref()));
        assert_eq!(text(slim.kind.as_ref()), opt(typed.type_.as_ref()));
        assert_eq!(slim.count, typed.count.unwrap_or(0));
        assert_eq!(slim.first, time(typed.first_timestamp.as_ref()));
        assert_eq!(slim.last, time(typed.last_timestamp.as_ref()));
        assert_eq!(
            slim.time,
            typed.event_time.as_ref().map(|time| millis(time.0)),
        );
        assert_eq!(
            slim.series.map(|series| series.count),
            typed.series.as_ref().and_then(|one| one.count),
        );
        let source = typed.source.clone().unwrap_or_default();
        let component = opt(typed.reporting_component.as_ref()).or(opt(source.component.as_ref()));
        assert_eq!(text(slim.component.as_ref()), component);
        let instance = opt(typed.reporting_instance.as_ref()).or(opt(source.host.as_ref()));
        assert_eq!(text(slim.instance.as_ref()), instance);
        assert!(slim.happened().is_some());
        assert!(slim.occurrences() >= 1);
    }
    assert!(events.iter().any(|(event, _)| event.time.is_some()));
    assert!(events.iter().any(|(event, _)| event.count > 1));
}

#[test]
fn every_field_of_the_node_is_as_typed() {
    let slim: Node = decode_object(NODE.as_bytes(), &Decoder::default()).unwrap();
    let typed: core::Node = serde_json::from_str(NODE).unwrap();
    let (spec, status) = (typed.spec.unwrap(), typed.status.unwrap());
    check_identity(&slim.identity, &typed.metadata);
    check_labels(&slim.labels, typed.metadata.labels.as_ref());
    check_meta(&slim.meta, &typed.metadata);
    assert_eq!(slim.unschedulable, spec.unschedulable.unwrap_or(false));
    assert_eq!(slim.taints.len(), spec.taints.unwrap_or_default().len());
    let addresses = status.addresses.unwrap();
    assert_eq!(slim.addresses.len(), addresses.len());
    for (slim, typed) in slim.addresses.iter().zip(&addresses) {
        assert_eq!(
            (&*slim.kind, &*slim.address),
            (typed.type_.as_str(), typed.address.as_str()),
        );
    }
    assert_eq!(
        slim.kubelet_port.map(i32::from),
        Some(
            status
                .daemon_endpoints
                .unwrap()
                .kubelet_endpoint
                .unwrap()
                .port,
        ),
    );
    assert_eq!(
        text(slim.kubelet_version.as_ref()),
        opt(Some(&status.node_info.unwrap().kubelet_version)),
    );
    let conditions = status.conditions.unwrap();
    assert_eq!(slim.conditions.len(), conditions.len());
    for (slim, typed) in slim.conditions.iter().zip(&conditions) {
        check_condition(
            slim,
            &typed.type_,
            &typed.status,
            typed.reason.as_ref(),
            typed.message.as_ref(),
            typed.last_transition_time.as_ref(),
        );
    }
    for (slim, typed) in [
        (&slim.capacity, status.capacity),
        (&slim.allocatable, status.allocatable),
    ] {
        let typed = typed
            .unwrap()
            .into_iter()
            .map(|(key, value)| (key, value.0))
            .collect();
        check_labels(slim, Some(&typed));
    }
}

/// The changes that a subscriber receives when a server sends these bytes in these chunks.
async fn changes_of(recording: &str, cuts: &[usize]) -> Vec<String> {
    let fake = Fake::new();
    let pods = fake.pods();
    let mut subscription = pods.subscribe_with(10_000);
    assert!(matches!(
        within("an update", subscription.next()).await,
        Some(Update::Resync(_))
    ));
    fake.drop_watches();
    fake.lock()
        .faults
        .push_back(Fault::Chunks(cut(recording, cuts)));
    pass(1).await;
    let mut changes = Vec::new();
    while let Some(Update::Change(change)) = subscription.try_next() {
        changes.push(match change.event {
            ObjectEvent::Added(pod) => format!("added {pod:?}"),
            ObjectEvent::Modified { before, now } => format!("modified {before:?} to {now:?}"),
            ObjectEvent::Deleted(pod) => format!("deleted {pod:?}"),
        });
    }
    changes
}

fn cut(text: &str, cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % text.len()).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|pair| text.as_bytes()[pair[0]..pair[1]].to_vec())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_the_recording_decodes_alike(cuts in prop::collection::vec(any::<usize>(), 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (whole, split) = runtime.block_on(async { (changes_of(PODS, &[]).await, changes_of(PODS, &cuts).await) });
        prop_assert_eq!(whole.len(), 153);
        prop_assert_eq!(whole, split);
    }
}

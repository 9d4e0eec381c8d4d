//! Kinds and fields that the recordings do not have.

use k8s_openapi::api::apps::v1 as apps;
use kubevitals_model::{
    DaemonSet, Deployment, Event, Labels, Node, Pod, ReplicaSet, Workload, WorkloadSelector,
};
use kubevitals_watch::{Decoder, Kind, decode_object};
use serde_json::{Value, json};

fn read<K: Kind>(object: &Value) -> K {
    let decoder = Decoder::default().keep_annotations(["components.gke.io/component-name"]);
    decode_object(object.to_string().as_bytes(), &decoder).unwrap()
}

fn workload(status: &Value) -> Value {
    json!({
        "metadata": {
            "name": "dns", "namespace": "kube-system", "uid": "1", "resourceVersion": "9", "generation": 3,
            "labels": {"k8s-app": "dns"}, "managedFields": [{"fieldsV1": {"f:spec": {}}}]
        },
        "spec": {
            "replicas": 4, "paused": true,
            "selector": {
                "matchLabels": {"app": "dns"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]
            },
            "template": {
                "metadata": {
                    "labels": {"app": "dns", "tier": "a"},
                    "annotations": {"components.gke.io/component-name": "dns", "checksum": "1"}
                },
                "spec": {"containers": [{"name": "dns", "image": "dns:1"}]}
            }
        },
        "status": status
    })
}

fn check(workload: &Workload) {
    assert_eq!(workload.identity.to_string(), "kube-system/dns");
    assert_eq!(
        workload.template_annotations.iter().collect::<Vec<_>>(),
        [("components.gke.io/component-name", "dns")]
    );
    assert_eq!(workload.template_image.as_deref(), Some("dns:1"));
    assert!(workload.selector.matches(&workload.template_labels));
    assert!(!workload.selector.matches(&workload.labels));
    assert!(!workload.is_observed());
    assert_eq!(workload.conditions.len(), 1);
}

#[test]
fn daemon_sets_are_as_typed() {
    let object = workload(&json!({
        "currentNumberScheduled": 1, "desiredNumberScheduled": 2, "numberAvailable": 3, "numberMisscheduled": 4,
        "numberReady": 5, "numberUnavailable": 6, "updatedNumberScheduled": 7, "observedGeneration": 2,
        "conditions": [{"type": "X", "status": "True"}]
    }));
    let slim: DaemonSet = read(&object);
    let typed = serde_json::from_value::<apps::DaemonSet>(object)
        .unwrap()
        .status
        .unwrap();
    check(&slim.workload);
    assert_eq!(
        (slim.current, slim.desired, slim.misscheduled, slim.ready),
        (
            typed.current_number_scheduled,
            typed.desired_number_scheduled,
            typed.number_misscheduled,
            typed.number_ready
        )
    );
    assert_eq!(
        (
            Some(slim.available),
            Some(slim.unavailable),
            Some(slim.updated)
        ),
        (
            typed.number_available,
            typed.number_unavailable,
            typed.updated_number_scheduled
        )
    );
    assert_eq!(
        Some(slim.workload.observed_generation),
        typed.observed_generation
    );
}

#[test]
fn deployments_and_replica_sets_are_as_typed() {
    let object = workload(&json!({
        "replicas": 1, "updatedReplicas": 2, "readyReplicas": 3, "availableReplicas": 4, "unavailableReplicas": 5,
        "conditions": [{"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"}]
    }));
    let slim: Deployment = read(&object);
    let typed: apps::Deployment = serde_json::from_value(object.clone()).unwrap();
    check(&slim.workload);
    let (spec, status) = (typed.spec, typed.status.unwrap());
    assert_eq!(
        (Some(slim.desired), Some(slim.paused)),
        (spec.replicas, spec.paused)
    );
    assert_eq!(
        [
            Some(slim.replicas),
            Some(slim.updated),
            Some(slim.ready),
            Some(slim.available),
            Some(slim.unavailable)
        ],
        [
            status.replicas,
            status.updated_replicas,
            status.ready_replicas,
            status.available_replicas,
            status.unavailable_replicas
        ]
    );

    let slim: ReplicaSet = read(&object);
    let status = serde_json::from_value::<apps::ReplicaSet>(object)
        .unwrap()
        .status
        .unwrap();
    check(&slim.workload);
    assert_eq!(
        (
            slim.desired,
            slim.replicas,
            Some(slim.ready),
            Some(slim.available)
        ),
        (
            4,
            status.replicas,
            status.ready_replicas,
            status.available_replicas
        )
    );
    let bare: ReplicaSet = read(&json!({"metadata": {"name": "a"}}));
    assert_eq!((bare.desired, bare.replicas), (1, 0));
}

#[test]
fn selectors_match_as_in_the_api() {
    let selector = |operator: &str, values: &[&str]| -> WorkloadSelector {
        let expression = json!({"key": "tier", "operator": operator, "values": values});
        let object = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchExpressions": [expression]}}});
        read::<ReplicaSet>(&object).workload.selector
    };
    let labels = |labels: Value| -> Labels {
        read::<Node>(&json!({"metadata": {"name": "a", "labels": labels}})).labels
    };
    let (front, other, none) = (
        labels(json!({"tier": "front"})),
        labels(json!({"tier": "x"})),
        labels(json!({})),
    );
    for (operator, values, expected) in [
        ("In", &["front", "back"][..], [true, false, false]),
        ("NotIn", &["front"], [false, true, true]),
        ("Exists", &[], [true, true, false]),
        ("DoesNotExist", &[], [false, false, true]),
        ("Surprises", &[], [false, false, false]),
    ] {
        let selector = selector(operator, values);
        assert_eq!(
            [&front, &other, &none].map(|labels| selector.matches(labels)),
            expected,
            "{operator}"
        );
    }
    assert!(!WorkloadSelector::default().matches(&none));
}

#[test]
fn gates_and_volumes_of_pods_are_read() {
    let pod = |volumes: Value| -> Pod {
        read(&json!({"metadata": {"name": "a"}, "spec": {
            "schedulingGates": [{"name": "quota"}], "readinessGates": [{"conditionType": "lb"}],
            "hostNetwork": true, "restartPolicy": "OnFailure", "volumes": volumes}, "status": {"phase": "Pondering", "resize": "Proposed"}}))
    };
    let stateless = pod(
        json!([{"name": "t", "projected": {}}, {"name": "e", "emptyDir": {}},
        {"name": "d", "downwardAPI": {}}, {"name": "c", "configMap": {}}, {"name": "s", "secret": {}}]),
    );
    assert!(stateless.stateless && stateless.host_network);
    assert_eq!(
        stateless.restart_policy,
        kubevitals_model::RestartPolicy::OnFailure
    );
    assert_eq!(&*stateless.scheduling_gates[0], "quota");
    assert_eq!(&*stateless.readiness_gates[0], "lb");
    assert_eq!(stateless.resize.as_deref(), Some("Proposed"));
    assert_eq!(stateless.summary.phase.as_str(), "Unknown");
    assert!(
        !pod(json!([{"name": "e", "emptyDir": {}}, {"name": "p", "persistentVolumeClaim": {}}]))
            .stateless
    );
}

#[test]
fn events_of_the_newer_client_are_read() {
    let event: Event = read(&json!({
        "metadata": {"name": "e", "creationTimestamp": "2026-11-15T20:12:10Z"},
        "involvedObject": {"kind": "Pod", "name": "p", "uid": "not-a-uuid"},
        "eventTime": "2026-11-15T20:12:10.123456Z", "reportingComponent": "default-scheduler",
        "series": {"count": 4, "lastObservedTime": "2026-11-15T20:13:00.5Z"}
    }));
    assert_eq!(event.occurrences(), 4);
    assert_eq!(event.time.unwrap().to_string(), "2026-11-15T20:12:10.123Z");
    assert_eq!(
        event.happened().unwrap().to_string(),
        "2026-11-15T20:13:00.500Z"
    );
    assert_eq!(event.regarding.uid.to_string(), "not-a-uuid");
}

#[test]
fn taints_and_odd_ports_of_nodes_are_read() {
    let node = |port: i64| -> Node {
        read(
            &json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true,
            "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
            "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}),
        )
    };
    assert_eq!(node(10_250).kubelet_port, Some(10_250));
    assert_eq!(&*node(1).taints[0].effect, "NoSchedule");
    for port in [0, -1, 70_000] {
        assert_eq!(node(port).kubelet_port, None);
    }
}

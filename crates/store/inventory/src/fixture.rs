//! Objects for tests, healthy unless a test changes them.

use std::sync::Arc;

use kubevitals_model::{
    Condition, ContainerSpec, ContainerState, ContainerStatus, DaemonSet, Deployment, Identity,
    Labels, Node, ObjectMeta, OwnerReference, Pod, PodPhase, PodSummary, RestartPolicy,
    Termination, Timestamp, Workload, WorkloadSelector,
};

pub(crate) const POOL: &str = "cloud.google.com/gke-nodepool";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// Seconds after an epoch of the tests.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(seconds * 1_000)
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let mut pairs: Vec<(Arc<str>, Arc<str>)> = pairs
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    pairs.sort();
    Labels::from_sorted(pairs.into())
}

pub(crate) fn identity(namespace: &str, name: &str) -> Identity {
    Identity {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-{namespace}-{name}").as_str().into(),
        resource_version: "1".into(),
    }
}

pub(crate) fn meta() -> ObjectMeta {
    ObjectMeta {
        generation: 1,
        created: Some(at(0)),
        deleted: None,
        deletion_grace: None,
        annotations: Labels::default(),
        owners: [].into(),
    }
}

pub(crate) fn condition(kind: &str, status: &str) -> Condition {
    Condition {
        kind: kind.into(),
        status: status.into(),
        reason: None,
        message: None,
        last_transition: Some(at(0)),
    }
}

pub(crate) fn node(name: &str) -> Node {
    Node {
        identity: identity("", name),
        labels: labels(&[(POOL, "pool"), (ZONE, "zone-a")]),
        meta: meta(),
        provider_id: None,
        unschedulable: false,
        taints: [].into(),
        addresses: [].into(),
        kubelet_port: Some(10_250),
        kubelet_version: None,
        conditions: [
            condition("Ready", "True"),
            condition("MemoryPressure", "False"),
        ]
        .into(),
        capacity: Labels::default(),
        allocatable: Labels::default(),
    }
}

pub(crate) fn owner(kind: &str, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".into(),
        kind: kind.into(),
        name: name.into(),
        uid: name.into(),
        controller: true,
    }
}

/// A ready pod of `kube-system` on a node.
pub(crate) fn pod(name: &str, pairs: &[(&str, &str)]) -> Pod {
    Pod {
        summary: PodSummary {
            identity: identity("kube-system", name),
            labels: labels(pairs),
            node: Some("a".into()),
            phase: PodPhase::Running,
        },
        meta: ObjectMeta {
            owners: [owner("DaemonSet", "set")].into(),
            ..meta()
        },
        static_uid: None,
        containers: [ContainerSpec {
            name: "main".into(),
            image: Some("registry.example.com:5000/team/agent:v1.2".into()),
            restarts_always: false,
            has_startup_probe: false,
            has_readiness_probe: false,
        }]
        .into(),
        init_containers: [].into(),
        scheduling_gates: [].into(),
        readiness_gates: [].into(),
        priority_class: None,
        runtime_class: None,
        host_network: false,
        restart_policy: RestartPolicy::Always,
        stateless: true,
        conditions: [condition("Ready", "True")].into(),
        container_statuses: [container(0)].into(),
        init_container_statuses: [].into(),
        ephemeral_container_statuses: [].into(),
        reason: None,
        message: None,
        qos_class: None,
        resize: None,
        started: Some(at(100)),
        pod_ip: Some("10.0.0.1".into()),
        host_ip: Some("192.0.2.1".into()),
    }
}

/// The container `main` after some restarts, the last by an error.
pub(crate) fn container(restarts: i32) -> ContainerStatus {
    let last_state = if restarts == 0 {
        ContainerState::Unset
    } else {
        terminated("Error", 1)
    };
    ContainerStatus {
        name: "main".into(),
        image: None,
        ready: true,
        started: Some(true),
        restart_count: restarts,
        state: ContainerState::Running {
            started_at: Some(at(100)),
        },
        last_state,
    }
}

pub(crate) fn terminated(reason: &str, exit_code: i32) -> ContainerState {
    ContainerState::Terminated(Box::new(Termination {
        exit_code,
        signal: None,
        reason: Some(reason.into()),
        message: None,
        started_at: None,
        finished_at: Some(at(150)),
    }))
}

fn workload(name: &str, template_labels: &[(&str, &str)]) -> Workload {
    Workload {
        identity: identity("kube-system", name),
        labels: Labels::default(),
        meta: meta(),
        selector: WorkloadSelector::default(),
        template_labels: labels(template_labels),
        template_annotations: Labels::default(),
        template_image: Some("registry.example.com:5000/team/agent:v1.2".into()),
        observed_generation: 1,
        conditions: [].into(),
    }
}

pub(crate) fn daemon_set(name: &str, pairs: &[(&str, &str)], desired: i32) -> DaemonSet {
    DaemonSet {
        workload: workload(name, pairs),
        desired,
        current: desired,
        misscheduled: 0,
        ready: desired,
        updated: desired,
        available: desired,
        unavailable: 0,
    }
}

pub(crate) fn deployment(name: &str, pairs: &[(&str, &str)], desired: i32) -> Deployment {
    Deployment {
        workload: workload(name, pairs),
        paused: false,
        desired,
        replicas: desired,
        updated: desired,
        ready: desired,
        available: desired,
        unavailable: 0,
    }
}

//! Pods whose cause is known before they start.

use kubevitals_e2e::Registry;
use serde_json::{Value, json};

use crate::transitions::{container, pod, spec, workload};

/// Runs until it is killed: the first process of a container ignores SIGTERM.
const IDLE: &str = "exec sleep 3600";

/// Fails twice before it goes on.
const TWO_CRASHES: &str = "if [ -e /data/two ]; then touch /tmp/ok; exec sleep 3600; fi; \
     if [ -e /data/one ]; then touch /data/two; else touch /data/one; fi; sleep 4; exit 3";

/// Seconds that slow steps take: much longer than all other steps on a busy machine.
const SLOW: u32 = 9;

/// A probe of a file that the container makes when it is ready.
fn probe() -> Value {
    json!({"exec": {"command": ["test", "-e", "/tmp/ok"]}, "periodSeconds": 1, "failureThreshold": 60})
}

/// A probe that fails. A container whose end is the point has it too: without one it would be
/// chance whether it is seen ready before.
fn failing(threshold: u32) -> Value {
    json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": threshold})
}

fn with(mut container: Value, fields: Value) -> Value {
    if let (Some(container), Value::Object(fields)) = (container.as_object_mut(), fields) {
        container.extend(fields);
    }
    container
}

fn of_registry(name: &str, image: &str) -> Value {
    with(
        container(name, IDLE),
        json!({"image": image, "imagePullPolicy": "IfNotPresent"}),
    )
}

fn one(name: &str, only: Value) -> Value {
    pod(name, &spec(&Value::Array(vec![only]), &small()))
}

/// Fields without which a recording is smaller.
fn small() -> Value {
    json!({"automountServiceAccountToken": false, "enableServiceLinks": false})
}

fn and_small(fields: Value) -> Value {
    with(small(), fields)
}

/// Pods of one image that is pulled.
pub(super) fn pulled(name: &str, image: &str) -> Value {
    one(name, of_registry("app", image))
}

/// A pod of two containers, each with an image that is pulled.
pub(super) fn two_pulled(name: &str, app: &str, agent: &str) -> Value {
    let containers = json!([of_registry("app", app), of_registry("agent", agent)]);
    pod(name, &spec(&containers, &small()))
}

/// A pod whose init container has an image that is pulled.
pub(super) fn init_pulled(name: &str, image: &str) -> Value {
    let init = with(
        container("prepare", "true"),
        json!({"image": image, "imagePullPolicy": "IfNotPresent"}),
    );
    let fields = and_small(json!({"initContainers": [init]}));
    pod(name, &spec(&json!([container("app", IDLE)]), &fields))
}

/// A pod with an image that the registry does not have.
pub(super) fn missing_image(registry: &Registry) -> Value {
    pulled("missing-image", &registry.reference("missing"))
}

/// Pods that crash, or that the kubelet kills, before they are ready.
pub(super) fn crashing() -> Vec<Value> {
    let data = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let volumes = json!({"volumes": [{"name": "data", "emptyDir": {}}]});
    let two_crashes = with(
        with(container("app", TWO_CRASHES), data.clone()),
        json!({"readinessProbe": probe()}),
    );
    let failing_init = with(
        container("migrate", &TWO_CRASHES.replace("exec sleep 3600", "exit 0")),
        data,
    );
    let oom_killed = with(
        container("app", "exec tail /dev/zero"),
        json!({"resources": {"limits": {"memory": "32Mi"}}, "readinessProbe": failing(60)}),
    );
    let exits_with_0 = with(
        container(
            "app",
            "trap 'exit 0' TERM; while :; do sleep 1 & wait; done",
        ),
        json!({"startupProbe": failing(2)}),
    );
    let killed = with(container("app", IDLE), json!({"startupProbe": failing(2)}));
    let not_alive = with(
        container("app", IDLE),
        json!({"livenessProbe": failing(2), "readinessProbe": failing(60)}),
    );
    vec![
        pod(
            "two-crashes",
            &spec(&json!([two_crashes]), &and_small(volumes.clone())),
        ),
        pod(
            "failing-init",
            &spec(
                &json!([container("app", IDLE)]),
                &and_small(with(volumes, json!({"initContainers": [failing_init]}))),
            ),
        ),
        one("oom-killed", oom_killed),
        pod(
            "startup-exits-0",
            &spec(
                &json!([exits_with_0]),
                &and_small(json!({"terminationGracePeriodSeconds": 5})),
            ),
        ),
        one("startup-killed", killed),
        one("not-alive", not_alive),
    ]
}

/// Pods that take their time without a failure, and ones that cannot start at all.
pub(super) fn waiting() -> Vec<Value> {
    let late = format!("sleep {SLOW}; touch /tmp/ok; {IDLE}");
    let helper = with(
        container("helper", "true"),
        json!({"readinessProbe": failing(60)}),
    );
    let main = container("main", &format!("sleep {SLOW}"));
    let sidecar = with(
        container("proxy", &late),
        json!({"restartPolicy": "Always", "readinessProbe": probe()}),
    );
    let huge = with(
        container("app", IDLE),
        json!({"resources": {"requests": {"cpu": "1000"}}}),
    );
    let configured = with(
        container("app", IDLE),
        json!({"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}),
    );
    vec![
        one(
            "slow-startup",
            with(container("app", &late), json!({"startupProbe": probe()})),
        ),
        one(
            "slow-readiness",
            with(container("app", &late), json!({"readinessProbe": probe()})),
        ),
        pod(
            "slow-sidecar",
            &spec(
                &json!([container("app", IDLE)]),
                &and_small(json!({"initContainers": [sidecar]})),
            ),
        ),
        pod(
            "slow-init",
            &spec(
                &json!([container("app", IDLE)]),
                &and_small(
                    json!({"initContainers": [container("prepare", &format!("sleep {SLOW}"))]}),
                ),
            ),
        ),
        workload(
            "Job",
            "batch/v1",
            "helper-completes",
            &spec(
                &json!([helper, main]),
                &and_small(json!({"restartPolicy": "Never"})),
            ),
            &json!({"backoffLimit": 0}),
        ),
        pod(
            "late-volume",
            &spec(
                &json!([configured]),
                &and_small(
                    json!({"volumes": [{"name": "settings", "configMap": {"name": "settings"}}]}),
                ),
            ),
        ),
        one("no-room", huge),
    ]
}

/// A pod that a node refuses: nobody has checked whether it has room.
pub(super) fn refused(node: &str) -> Value {
    let huge = with(
        container("app", IDLE),
        json!({"resources": {"requests": {"cpu": "1000"}}}),
    );
    pod(
        "refused",
        &spec(&json!([huge]), &and_small(json!({"nodeName": node}))),
    )
}

/// The volume that a pod waits for.
pub(super) fn late_volume() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}})
}

use std::sync::Arc;

use kubevitals_virtual_node::runtime::{RuntimeFuture, ServiceToken, TokenRequest};
use serde_json::json;

use super::*;

struct Inputs;

impl PodInputs for Inputs {
    fn config_map(&self, _: &str, name: &str) -> RuntimeFuture<'_, Option<Arc<ConfigMap>>> {
        let map = (name == "map").then(|| {
            let value = json!({"data": {"A": "from-map", "b.c": "dotted"}});
            Arc::new(serde_json::from_value(value).expect("a ConfigMap"))
        });
        Box::pin(async move { Ok(map) })
    }

    fn secret(&self, _: &str, name: &str) -> RuntimeFuture<'_, Option<Arc<Secret>>> {
        let secret = (name == "secret").then(|| {
            let value = json!({"data": {"A": "ZnJvbS1zZWNyZXQ=", "nul": "YQBi"}});
            Arc::new(serde_json::from_value(value).expect("a Secret"))
        });
        Box::pin(async move { Ok(secret) })
    }

    fn service_account_token(&self, _: TokenRequest) -> RuntimeFuture<'_, ServiceToken> {
        Box::pin(std::future::pending())
    }

    fn service_environment(&self, _: &str) -> RuntimeFuture<'_, Vec<(String, String)>> {
        let pairs = [
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ("WEB_PORT", "80"),
            ("A", "service"),
        ];
        let pairs = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        Box::pin(async move { Ok(pairs) })
    }
}

async fn build(container: serde_json::Value, links: bool) -> Result<Variables, ProcessError> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web"}},
        "spec": {"enableServiceLinks": links, "containers": [container]},
    }))
    .expect("a pod");
    let config = ProcessConfig::new("/nowhere", Vec::new(), "node-1");
    let container = pod.spec.as_ref().expect("a spec").containers[0].clone();
    variables(&pod, &container, &Inputs, &config, Vec::new()).await
}

#[tokio::test]
async fn sources_override_each_other_in_the_kubelets_order() {
    let found = build(
        json!({
            "name": "c",
            "envFrom": [
                {"configMapRef": {"name": "map"}},
                {"prefix": "P_", "secretRef": {"name": "secret", "optional": true}},
                {"configMapRef": {"name": "absent", "optional": true}},
            ],
            "env": [
                {"name": "FIRST", "value": "$(A)-$(WEB_PORT)-$(LATER)-$$(A)"},
                {"name": "LATER", "value": "x"},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
                {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "b.c"}}},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "A"}}},
                {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "no", "optional": true}}},
            ],
            "resources": {"limits": {"cpu": "250m"}, "requests": {"memory": "64Mi"}},
        }),
        true,
    )
    .await;
    // A secret with a NUL cannot be an environment variable, and says so.
    assert!(matches!(found, Err(ProcessError::Config(message)) if message.contains("NUL")));
    let found = build(
        json!({
            "name": "c",
            "envFrom": [{"configMapRef": {"name": "map"}}, {"configMapRef": {"name": "absent", "optional": true}}],
            "env": [
                {"name": "FIRST", "value": "$(A)-$(WEB_PORT)-$(LATER)-$$(A)"},
                {"name": "LATER", "value": "x"},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
                {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "b.c"}}},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "A"}}},
                {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "no", "optional": true}}},
            ],
            "resources": {"limits": {"cpu": "250m"}, "requests": {"memory": "64Mi"}},
        }),
        true,
    )
    .await
    .expect("variables");
    for (name, value) in [
        ("A", "from-map"),
        ("b.c", "dotted"),
        ("FIRST", "from-map-80-$(LATER)-$(A)"),
        ("NAME", "p"),
        ("LABEL", "web"),
        ("NODE", "node-1"),
        ("CPU", "250"),
        ("CORES", "1"),
        ("MIB", "64"),
        ("KEY", "dotted"),
        ("SECRET", "from-secret"),
        ("WEB_PORT", "80"),
        ("HOSTNAME", "p"),
        ("PATH", DEFAULT_PATH),
    ] {
        assert_eq!(found.get(name), Some(value), "{name}");
    }
    assert_eq!(found.get("MAYBE"), None);
}

#[tokio::test]
async fn what_is_missing_and_not_optional_is_an_error_with_its_name() {
    let one = |source: serde_json::Value| json!({"name": "c", "env": [{"name": "X", "valueFrom": source}]});
    for (container, expected) in [
        (
            one(json!({"configMapKeyRef": {"name": "absent", "key": "k"}})),
            "configmap \"absent\" not found",
        ),
        (
            one(json!({"configMapKeyRef": {"name": "map", "key": "k"}})),
            "couldn't find key k in ConfigMap ns/map",
        ),
        (
            one(json!({"secretKeyRef": {"name": "secret", "key": "k"}})),
            "couldn't find key k in Secret ns/secret",
        ),
        (
            json!({"name": "c", "envFrom": [{"secretRef": {"name": "absent"}}]}),
            "secret \"absent\" not found",
        ),
    ] {
        match build(container, true).await {
            Err(ProcessError::Config(message)) => assert_eq!(message, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn without_service_links_only_the_api_server_is_named() {
    let found = build(json!({"name": "c"}), false).await.expect("variables");
    assert_eq!(found.get("KUBERNETES_SERVICE_HOST"), Some("10.0.0.1"));
    assert_eq!(found.get("WEB_PORT"), None);
}

#[test]
fn users_and_groups_come_from_the_container_first() {
    let pod: Pod = serde_json::from_value(json!({"spec": {
        "securityContext": {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]},
        "containers": [{"name": "a"}, {"name": "b", "securityContext": {"runAsUser": 9}}],
    }}))
    .expect("a pod");
    let containers = &pod.spec.as_ref().expect("a spec").containers;
    let of = |index: usize| Identity::of(&pod, &containers[index]);
    assert_eq!(
        (of(0).uid, of(0).gid, of(0).groups),
        (Some(1), Some(2), Some(vec![4, 3]))
    );
    assert_eq!((of(1).uid, of(1).gid), (Some(9), Some(2)));
}

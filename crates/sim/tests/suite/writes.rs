//! Create, update, patch and delete.

use http::Method;
use kubevitals_sim::api::{SimApi, SimApiConfig};
use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};

use crate::support::{add_pods, admin, pod, sim};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn map(name: &str, value: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": value}})
}

#[tokio::test]
async fn objects_are_created_once() {
    let sim = sim().await;
    let client = admin(&sim);
    let created = client.post(MAPS, &map("a", "1")).await;
    assert_eq!(created.code, 201);
    let created = created.json();
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(
        created["metadata"]["resourceVersion"],
        sim.resource_version().to_string()
    );
    let again = client.post(MAPS, &map("a", "1")).await;
    assert_eq!(
        again.status(),
        (
            409,
            "AlreadyExists".to_owned(),
            "configmaps \"a\" already exists".to_owned()
        )
    );
    let generated = client
        .post(MAPS, &json!({"metadata": {"generateName": "x-"}}))
        .await
        .json();
    let name = generated["metadata"]["name"].as_str().unwrap();
    assert_eq!((name.len(), name.starts_with("x-")), (7, true));
    let nowhere = client
        .post("/api/v1/namespaces/none/configmaps", &map("a", "1"))
        .await;
    assert_eq!(nowhere.status().2, "namespaces \"none\" not found");
    for (object, code) in [
        (json!({"metadata": {}}), 422),
        (map("Not A Name", "1"), 422),
        (
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}}),
            400,
        ),
        (
            json!({"metadata": {"name": "x", "namespace": "other"}}),
            400,
        ),
        (json!([]), 400),
        (json!({"metadata": "text"}), 400),
    ] {
        assert_eq!(client.post(MAPS, &object).await.code, code, "{object}");
    }
    sim.shutdown().await;
}

#[tokio::test]
async fn an_update_of_an_old_version_conflicts() {
    let sim = sim().await;
    let client = admin(&sim);
    let first = client.post(MAPS, &map("a", "1")).await.json();
    let path = format!("{MAPS}/a");
    let mut second = first.clone();
    second["data"]["k"] = json!("2");
    let updated = client.put(&path, &second).await;
    assert_eq!(updated.code, 200);
    assert_eq!(updated.json()["metadata"]["uid"], first["metadata"]["uid"]);
    let stale = client.put(&path, &first).await;
    assert_eq!(
        (stale.code.as_u16(), stale.status().1.as_str()),
        (409, "Conflict")
    );
    assert!(
        stale
            .status()
            .2
            .contains("the object has been modified; please apply your changes")
    );
    assert_eq!(client.put(&path, &map("a", "3")).await.code, 200);
    assert_eq!(client.put(&path, &map("b", "3")).await.code, 400);
    assert_eq!(
        client
            .put(&format!("{MAPS}/none"), &map("none", "3"))
            .await
            .code,
        404
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn patches_change_only_the_named_fields() {
    let sim = sim().await;
    add_pods(&sim, &["a"]);
    let client = admin(&sim);
    let path = "/api/v1/namespaces/default/pods/a";
    let patch =
        json!({"metadata": {"labels": {"app": null, "x": "y"}}, "status": {"phase": "Failed"}});
    let merged = client.patch(MERGE, path, &patch).await.json();
    assert_eq!(merged["metadata"]["labels"], json!({"x": "y"}));
    // The status is writable through its subresource only.
    assert_eq!(merged["status"]["phase"], "Running");
    let patch = json!({"spec": {"nodeName": "n9"}, "status": {"phase": "Failed"}});
    let status = client
        .patch(MERGE, &format!("{path}/status"), &patch)
        .await
        .json();
    assert_eq!(
        (&status["status"]["phase"], &status["spec"]["nodeName"]),
        (&json!("Failed"), &json!("n1"))
    );
    let json_patch = json!([{"op": "test", "path": "/metadata/labels/x", "value": "no"}]);
    let rejected = client
        .patch("application/json-patch+json", path, &json_patch)
        .await;
    assert_eq!(rejected.code, 422);
    let strategic = "application/strategic-merge-patch+json";
    let plain = client
        .patch(
            strategic,
            path,
            &json!({"metadata": {"labels": {"z": "1"}}}),
        )
        .await;
    assert_eq!(plain.code, 200);
    let lists = client
        .patch(strategic, path, &json!({"spec": {"tolerations": []}}))
        .await;
    assert_eq!(
        (lists.code.as_u16(), lists.status().1.as_str()),
        (415, "UnsupportedMediaType")
    );
    for odd in [json!({"metadata": "text"}), json!({"spec": 5})] {
        assert_eq!(client.patch(MERGE, path, &odd).await.code, 400, "{odd}");
    }
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"x": "z"}}});
    assert_eq!(client.patch(MERGE, path, &stale).await.code, 409);
    sim.shutdown().await;
}

#[tokio::test]
async fn deletions_check_preconditions() {
    let sim = sim().await;
    add_pods(&sim, &["a"]);
    let client = admin(&sim);
    let path = "/api/v1/namespaces/default/pods/a";
    let options = |uid: &str| json!({"preconditions": {"uid": uid}}).to_string();
    let wrong = client
        .send(
            Method::DELETE,
            path,
            Some(("application/json", options("other"))),
        )
        .await;
    assert_eq!(wrong.code, 409);
    let gone = client.delete(path).await;
    assert_eq!(
        (gone.code.as_u16(), gone.json()["kind"].as_str()),
        (200, Some("Pod"))
    );
    assert_eq!(client.delete(path).await.code, 404);
    client.post(MAPS, &map("a", "1")).await;
    let status = client.delete(&format!("{MAPS}/a")).await.json();
    assert_eq!(
        (&status["status"], &status["details"]["kind"]),
        (&json!("Success"), &json!("configmaps"))
    );
    assert_eq!(client.delete(MAPS).await.status().0, 405);
    assert_eq!(
        client
            .post(&format!("{MAPS}?dryRun=All"), &map("b", "1"))
            .await
            .code,
        400
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn a_pod_terminates_gracefully() {
    let config = SimApiConfig {
        graceful_pod_deletion: true,
        ..SimApiConfig::default()
    };
    let sim = SimApi::start(config).await.unwrap();
    add_pods(&sim, &["a"]);
    let client = admin(&sim);
    let path = "/api/v1/namespaces/default/pods/a";
    let leaving = client
        .delete(&format!("{path}?gracePeriodSeconds=7"))
        .await
        .json();
    assert!(leaving["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 7);
    assert_eq!(sim.count(Resource::Pods), 1);
    assert_eq!(
        client
            .delete(&format!("{path}?gracePeriodSeconds=0"))
            .await
            .code,
        200
    );
    assert_eq!(sim.count(Resource::Pods), 0);
    sim.shutdown().await;
}

#[tokio::test]
async fn finalizers_delay_deletion() {
    let sim = sim().await;
    let client = admin(&sim);
    let mut object = map("a", "1");
    object["metadata"]["finalizers"] = json!(["example.org/hold"]);
    client.post(MAPS, &object).await;
    let path = format!("{MAPS}/a");
    client.delete(&path).await;
    assert!(client.json(&path).await["metadata"]["deletionTimestamp"].is_string());
    let freed = client
        .patch(MERGE, &path, &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(freed.code, 200);
    assert_eq!(client.get(&path).await.code, 404);
    sim.shutdown().await;
}

#[tokio::test]
async fn pods_are_bound_and_evicted() {
    let sim = sim().await;
    let client = admin(&sim);
    let mut unbound = pod("a", "");
    unbound["spec"].as_object_mut().unwrap().remove("nodeName");
    client
        .post("/api/v1/namespaces/default/pods", &unbound)
        .await;
    let path = "/api/v1/namespaces/default/pods/a";
    let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(
        client.post(&format!("{path}/binding"), &binding).await.code,
        201
    );
    let bound = client.json(path).await;
    assert_eq!(
        (
            &bound["spec"]["nodeName"],
            &bound["status"]["conditions"][0]["type"]
        ),
        (&json!("n1"), &json!("PodScheduled"))
    );
    assert_eq!(
        client.post(&format!("{path}/binding"), &binding).await.code,
        409
    );
    let eviction =
        json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "a"}});
    assert_eq!(
        client
            .post(&format!("{path}/eviction"), &eviction)
            .await
            .code,
        201
    );
    assert_eq!(client.get(path).await.code, 404);
    sim.shutdown().await;
}

#[tokio::test]
async fn bound_pods_get_the_topology_labels_of_their_node() {
    let sim = sim().await;
    let labels = json!({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"});
    let mut node_labels = labels.clone();
    node_labels["kubernetes.io/hostname"] = json!("n1");
    sim.writer()
        .create(
            Resource::Nodes,
            json!({"metadata": {"name": "n1", "labels": node_labels}}),
        )
        .unwrap();
    let client = admin(&sim);
    let pods = "/api/v1/namespaces/default/pods";
    let mut unbound = pod("a", "");
    unbound["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "stale"});
    client.post(pods, &unbound).await;
    let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}});
    client.post(&format!("{pods}/a/binding"), &binding).await;
    client.post(pods, &pod("b", "n1")).await;
    for name in ["a", "b"] {
        let bound = client.json(&format!("{pods}/{name}")).await;
        for (key, value) in labels.as_object().unwrap() {
            assert_eq!(bound["metadata"]["labels"][key], *value, "{name}");
        }
        assert!(bound["metadata"]["labels"]["kubernetes.io/hostname"].is_null());
    }
    client.post(pods, &pod("c", "unknown")).await;
    let bound = client.json(&format!("{pods}/c")).await;
    assert!(bound["metadata"]["labels"]["topology.kubernetes.io/zone"].is_null());
    sim.shutdown().await;
}

#[tokio::test]
async fn leases_and_node_status_are_applied() {
    let sim = sim().await;
    sim.writer()
        .create(Resource::Nodes, json!({"metadata": {"name": "n"}}))
        .unwrap();
    let client = admin(&sim);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
    let apply = |holder: &str| {
        json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "n"},
               "spec": {"holderIdentity": holder, "leaseDurationSeconds": 40}})
    };
    let created = client
        .patch(APPLY, &format!("{lease}?fieldManager=a"), &apply("a"))
        .await;
    assert_eq!(created.code, 201, "{:?}", created.body);
    let before = sim.resource_version();
    assert_eq!(
        client
            .patch(APPLY, &format!("{lease}?fieldManager=a"), &apply("a"))
            .await
            .code,
        200
    );
    assert_eq!(
        sim.resource_version(),
        before,
        "applying the same again is no change"
    );
    let conflict = client
        .patch(APPLY, &format!("{lease}?fieldManager=b"), &apply("b"))
        .await;
    assert_eq!(conflict.code, 409);
    let cause = &conflict.json()["details"]["causes"][0];
    assert_eq!(
        *cause,
        json!({"reason": "FieldManagerConflict", "field": ".spec.holderIdentity",
                              "message": "conflict with \"a\" using coordination.k8s.io/v1"})
    );
    let forced = client
        .patch(
            APPLY,
            &format!("{lease}?fieldManager=b&force=true"),
            &apply("b"),
        )
        .await;
    assert_eq!(forced.json()["spec"]["holderIdentity"], "b");
    assert_eq!(client.patch(APPLY, lease, &apply("b")).await.code, 422);
    let status = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"},
                        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let node = client
        .patch(APPLY, "/api/v1/nodes/n/status?fieldManager=vk", &status)
        .await;
    assert_eq!(node.json()["status"]["conditions"][0]["status"], "True");
    let services = "/api/v1/namespaces/default/services/kubernetes?fieldManager=x";
    assert_eq!(
        client
            .patch(
                APPLY,
                services,
                &json!({"metadata": {"name": "kubernetes"}})
            )
            .await
            .code,
        415
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn an_applied_configuration_can_name_the_version_that_it_applies_to() {
    let sim = sim().await;
    let client = admin(&sim);
    let created = client.post(MAPS, &map("a", "1")).await.json();
    let path = format!("{MAPS}/a?fieldManager=m&force=true");
    let mut applied = map("a", "2");
    applied["metadata"]["resourceVersion"] = json!("1");
    let stale = client.patch(APPLY, &path, &applied).await;
    assert_eq!(stale.status().0, 409);
    applied["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    let fresh = client.patch(APPLY, &path, &applied).await;
    assert_eq!(
        (fresh.code.as_u16(), &fresh.json()["data"]["k"]),
        (200, &json!("2"))
    );
}

#[tokio::test]
async fn a_second_deletion_can_shorten_the_grace_of_a_pod() {
    let config = SimApiConfig {
        graceful_pod_deletion: true,
        ..SimApiConfig::default()
    };
    let sim = SimApi::start(config).await.unwrap();
    add_pods(&sim, &["p"]);
    let client = admin(&sim);
    let path = "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=";
    let grace = || {
        let pod = sim.object(Resource::Pods, Some("default"), "p").unwrap();
        pod["metadata"]["deletionGracePeriodSeconds"].clone()
    };
    for (asked, kept) in [(20, 20), (30, 20), (5, 5)] {
        let path = format!("{path}{asked}");
        assert_eq!(client.delete(&path).await.code, 200);
        assert_eq!(grace(), json!(kept));
    }
}

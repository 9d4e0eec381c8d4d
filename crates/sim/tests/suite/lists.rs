//! Getting and listing.

use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};

use crate::support::{add_pods, admin, pod, sim};

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_list_has_items_without_kinds() {
    let sim = sim().await;
    add_pods(&sim, &["b", "a"]);
    let list = admin(&sim).json("/api/v1/pods").await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PodList"), &json!("v1"))
    );
    assert_eq!(
        list["metadata"],
        json!({"resourceVersion": sim.resource_version().to_string()})
    );
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(list["items"][0].get("kind"), None);
    let one = admin(&sim).json("/api/v1/namespaces/default/pods/a").await;
    assert_eq!(one["kind"], "Pod");
    let empty = admin(&sim)
        .json("/apis/apps/v1/namespaces/default/deployments")
        .await;
    assert_eq!(empty["items"], json!([]));
    sim.shutdown().await;
}

#[tokio::test]
async fn not_found_errors_name_the_object() {
    let sim = sim().await;
    let client = admin(&sim);
    let response = client.get("/api/v1/namespaces/default/pods/x").await;
    assert_eq!(
        response.status(),
        (
            404,
            "NotFound".to_owned(),
            "pods \"x\" not found".to_owned()
        )
    );
    assert_eq!(
        response.json()["details"],
        json!({"name": "x", "kind": "pods"})
    );
    assert_eq!(response.headers["content-type"], "application/json");
    let response = client
        .get("/apis/coordination.k8s.io/v1/namespaces/default/leases/x")
        .await;
    assert_eq!(
        response.status().2,
        "leases.coordination.k8s.io \"x\" not found"
    );
    for path in [
        "/api/v1/widgets",
        "/apis/apps/v2/deployments",
        "/nothing",
        "/api/v1/namespaces/default/nodes",
    ] {
        let response = client.get(path).await;
        assert_eq!(
            response.status().2,
            "the server could not find the requested resource",
            "{path}"
        );
    }
    sim.shutdown().await;
}

#[tokio::test]
async fn selectors_select() {
    let sim = sim().await;
    add_pods(&sim, &["a", "b"]);
    sim.writer().create(Resource::Pods, pod("c", "n2")).unwrap();
    let client = admin(&sim);
    let list = client
        .json("/api/v1/pods?labelSelector=app%20in%20(a,c)&fieldSelector=spec.nodeName=n1")
        .await;
    assert_eq!(names(&list), ["a"]);
    let bad = client.get("/api/v1/pods?labelSelector=a,").await;
    assert_eq!(bad.status().0, 400);
    let bad = client
        .get("/api/v1/pods?fieldSelector=spec.colour%3Dred")
        .await;
    assert_eq!(bad.status().2, "field label not supported: spec.colour");
    sim.shutdown().await;
}

#[tokio::test]
async fn pages_are_of_one_version() {
    let sim = sim().await;
    add_pods(&sim, &["a", "b", "c", "d", "e"]);
    let client = admin(&sim);
    let first = client.json("/api/v1/pods?limit=2").await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let version = first["metadata"]["resourceVersion"].clone();
    sim.writer()
        .delete(Resource::Pods, Some("default"), "c")
        .unwrap();
    add_pods(&sim, &["cc"]);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = client
        .json(&format!("/api/v1/pods?limit=2&continue={token}"))
        .await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], version);
    // After the version has expired, the client gets an error and may continue inconsistently.
    sim.expire_history();
    let response = client
        .get(&format!("/api/v1/pods?limit=2&continue={token}"))
        .await;
    assert_eq!(
        (response.code.as_u16(), response.status().1.as_str()),
        (410, "Expired")
    );
    let token = response.json()["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    let rest = client.json(&format!("/api/v1/pods?continue={token}")).await;
    assert_eq!(names(&rest), ["cc", "d", "e"]);
    assert_eq!(
        client
            .get("/api/v1/pods?continue=nonsense")
            .await
            .status()
            .0,
        400
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn resource_versions_select_the_state_of_a_list() {
    let sim = sim().await;
    add_pods(&sim, &["a"]);
    let then = sim.resource_version();
    add_pods(&sim, &["b"]);
    let client = admin(&sim);
    let list = |query: String| {
        let client = client.clone();
        async move { client.get(&format!("/api/v1/pods?{query}")).await }
    };
    assert_eq!(
        names(&list("resourceVersion=0".to_owned()).await.json()),
        ["a", "b"]
    );
    assert_eq!(
        names(&list(format!("resourceVersion={then}")).await.json()),
        ["a", "b"]
    );
    let exact = list(format!("resourceVersion={then}&resourceVersionMatch=Exact")).await;
    assert_eq!(names(&exact.json()), ["a"]);
    assert_eq!(
        names(&list(format!("resourceVersion={then}&limit=5")).await.json()),
        ["a"]
    );
    let future = list("resourceVersion=999999".to_owned()).await;
    assert_eq!(future.code, 504);
    assert!(
        future
            .status()
            .2
            .starts_with("Timeout: Too large resource version: 999999, current: ")
    );
    assert_eq!(future.headers["retry-after"], "1");
    assert_eq!(list("resourceVersion=x".to_owned()).await.code, 400);
    let invalid = list("resourceVersionMatch=Exact".to_owned()).await;
    assert_eq!(
        invalid.status().2,
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    );
    sim.expire_history();
    let expired = list(format!("resourceVersion={then}&resourceVersionMatch=Exact")).await;
    assert_eq!(
        expired.status().2,
        format!("too old resource version: {then} ({})", then + 1)
    );
    sim.shutdown().await;
}

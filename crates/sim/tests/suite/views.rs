//! Representations of objects, and discovery.

use serde_json::{Value, json};

use crate::support::{add_pods, admin, sim};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

#[tokio::test]
async fn tables_have_a_cell_for_each_column() {
    let sim = sim().await;
    add_pods(&sim, &["a", "b"]);
    let client = admin(&sim).with("accept", TABLE);
    let table = client.json("/api/v1/pods?limit=1").await;
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    let columns: Vec<&Value> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["name"])
        .collect();
    assert_eq!(
        columns[..4],
        [
            &json!("Name"),
            &json!("Ready"),
            &json!("Status"),
            &json!("Restarts")
        ]
    );
    assert_eq!(
        table["rows"][0]["cells"].as_array().unwrap().len(),
        columns.len()
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["metadata"]["remainingItemCount"], 1);
    let bare = client
        .json("/api/v1/namespaces/default/pods/a?includeObject=None")
        .await;
    assert_eq!(bare["rows"][0]["object"], Value::Null);
    sim.shutdown().await;
}

#[tokio::test]
async fn a_watch_of_tables_sends_columns_once() {
    let sim = sim().await;
    add_pods(&sim, &["a", "b"]);
    let mut events = admin(&sim)
        .with("accept", TABLE)
        .watch("/api/v1/pods?watch=1&allowWatchBookmarks=1")
        .await;
    let first = events.next().await.unwrap();
    assert!(first["object"]["columnDefinitions"].is_array());
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    assert_eq!(
        events.next().await.unwrap()["object"]["columnDefinitions"],
        Value::Null
    );
    sim.send_bookmarks();
    let bookmark = events.next().await.unwrap();
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["kind"]),
        (&json!("BOOKMARK"), &json!("Table"))
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn partial_object_metadata_has_metadata_only() {
    let sim = sim().await;
    add_pods(&sim, &["a"]);
    let client = admin(&sim).with("accept", PARTIAL);
    let list = client.json("/api/v1/pods").await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (
            &json!("PartialObjectMetadataList"),
            &json!("meta.k8s.io/v1")
        )
    );
    let item = list["items"][0].as_object().unwrap();
    assert_eq!(
        item.keys().collect::<Vec<_>>(),
        ["apiVersion", "kind", "metadata"]
    );
    assert_eq!(item["metadata"]["labels"], json!({"app": "a"}));
    let event = client
        .watch("/api/v1/pods?watch=1")
        .await
        .next()
        .await
        .unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    sim.shutdown().await;
}

#[tokio::test]
async fn only_json_is_acceptable() {
    let sim = sim().await;
    let protobuf = "application/vnd.kubernetes.protobuf";
    let response = admin(&sim)
        .with("accept", protobuf)
        .get("/api/v1/pods")
        .await;
    assert_eq!(
        (response.code.as_u16(), response.status().1.as_str()),
        (406, "NotAcceptable")
    );
    let either = format!("{protobuf},application/json");
    let response = admin(&sim).with("accept", either).get("/api/v1/pods").await;
    assert_eq!(response.headers["content-type"], "application/json");
    sim.shutdown().await;
}

#[tokio::test]
async fn both_forms_of_discovery_agree() {
    let sim = sim().await;
    let client = admin(&sim);
    let aggregated = admin(&sim).with(
        "accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
    );
    let core = aggregated.get("/api").await;
    assert_eq!(
        core.headers["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let documents = [core.json(), aggregated.json("/apis").await];
    let mut groups = Vec::new();
    for group in documents
        .iter()
        .flat_map(|document| document["items"].as_array().unwrap())
    {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        groups.push(name.to_owned());
        let path = if name.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{name}/v1")
        };
        let legacy = client.json(&path).await;
        let legacy: Vec<&str> = legacy["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|resource| resource["name"].as_str().unwrap())
            .filter(|name| !name.contains('/'))
            .collect();
        let nested: Vec<&str> = group["versions"][0]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|resource| resource["resource"].as_str().unwrap())
            .collect();
        assert_eq!(nested, legacy, "{name}");
    }
    let legacy = client.json("/apis").await;
    let legacy: Vec<&Value> = legacy["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["name"])
        .collect();
    assert_eq!(
        legacy,
        groups
            .iter()
            .skip(1)
            .map(|name| json!(name))
            .collect::<Vec<_>>()
            .iter()
            .collect::<Vec<_>>()
    );
    assert_eq!(client.json("/version").await["gitVersion"], "v1.37.1");
    assert_eq!(client.get("/readyz").await.body, "ok");
    sim.shutdown().await;
}

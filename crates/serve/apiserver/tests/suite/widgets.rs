//! Objects, lists and watches in every representation.

use std::io::Read as _;

use flate2::read::GzDecoder;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::client::{Client, Received};
use crate::support::{Running, widgets, within};

const V1: &str = "/apis/example.dev/v1";

#[tokio::test]
async fn an_object_is_served_in_every_representation() {
    let server = Running::start().await;
    let path = format!("{V1}/namespaces/ns-3/widgets/widget-3");
    for client in [Client::reader(&server), Client::reader(&server).http1()] {
        let response = client.get(&path).await;
        assert_eq!(
            (response.code.as_u16(), response.header("content-type")),
            (200, "application/json")
        );
        assert_eq!(response.json()["metadata"]["name"], "widget-3");
        assert_eq!(response.header("cache-control"), "no-cache, private");
    }
    let reader = Client::reader(&server);
    let yaml = reader.clone().accept("application/yaml").get(&path).await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert_eq!(
        yaml.text(),
        "apiVersion: example.dev/v1\nkind: Widget\nmetadata:\n  labels:\n    parity: odd\n  name: widget-3\n  \
         namespace: ns-3\nweight: 3\n"
    );
    let protobuf = reader
        .clone()
        .accept("application/vnd.kubernetes.protobuf")
        .get(&path)
        .await;
    assert_eq!(
        protobuf.header("content-type"),
        "application/vnd.kubernetes.protobuf"
    );
    assert!(
        protobuf
            .body
            .starts_with(b"k8s\0\x0a\x18\x0a\x0eexample.dev/v1\x12\x06Widget")
    );
    let pretty = reader.clone().with("user-agent", "curl/8").get(&path).await;
    assert!(
        pretty
            .text()
            .starts_with("{\n  \"apiVersion\": \"example.dev/v1\",\n"),
        "{}",
        pretty.text()
    );
    let plain = reader
        .clone()
        .with("user-agent", "curl/8")
        .get(&format!("{path}?pretty=0"))
        .await;
    assert!(!plain.text().contains('\n'));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = reader
        .clone()
        .accept(table)
        .get(&format!("{path}?includeObject=Object"))
        .await
        .json();
    assert_eq!(
        (&table["kind"], &table["rows"][0]["include"]),
        (&json!("Table"), &json!("Object"))
    );
    server.stop().await;
}

#[tokio::test]
async fn selectors_filter_lists() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    let count = async |query: &str| {
        let response = reader.get(&format!("{V1}/{query}")).await;
        assert_eq!(response.code, 200, "{query}: {:?}", response.body);
        response.json()["items"].as_array().unwrap().len()
    };
    assert_eq!(count("widgets").await, 25);
    assert_eq!(count("widgets/").await, 25);
    assert_eq!(count("namespaces/ns-4/widgets").await, 1);
    assert_eq!(count("widgets?labelSelector=parity%3Dodd").await, 12);
    assert_eq!(
        count("widgets?fieldSelector=metadata.name%3Dwidget-9").await,
        1
    );
    assert_eq!(
        count("widgets?limit=2&continue=x&resourceVersion=0").await,
        25
    );
    let beta = reader.get("/apis/example.dev/v1beta1/widgets").await.json();
    assert_eq!(beta["apiVersion"], "example.dev/v1beta1");
    let error = reader
        .error(&format!("{V1}/widgets?fieldSelector=spec.x%3D1"))
        .await;
    assert_eq!(
        error,
        (
            400,
            String::from(
                "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        )
    );
    server.stop().await;
}

#[tokio::test]
async fn large_lists_are_compressed_on_request() {
    let server = Running::with(|config| config.groups = vec![widgets(5_000)]).await;
    let reader = Client::reader(&server);
    let plain = reader.get(&format!("{V1}/widgets")).await;
    assert!(plain.body.len() > 128 * 1024);
    assert_eq!(plain.header("content-encoding"), "");
    let packed = reader
        .clone()
        .with("accept-encoding", "gzip")
        .get(&format!("{V1}/widgets"))
        .await;
    assert_eq!(
        (packed.header("content-encoding"), packed.header("vary")),
        ("gzip", "Accept-Encoding")
    );
    assert!(packed.body.len() * 5 < plain.body.len());
    let mut text = Vec::new();
    GzDecoder::new(&packed.body[..])
        .read_to_end(&mut text)
        .unwrap();
    assert_eq!(text, plain.body);
    let small = reader
        .with("accept-encoding", "deflate, gzip")
        .get(&format!("{V1}/namespaces/ns-1/widgets"))
        .await;
    assert_eq!(small.header("content-encoding"), "");
    assert_ne!(small.header("content-length"), "");
    server.stop().await;
}

#[tokio::test]
async fn oversized_yaml_is_rejected() {
    let server = Running::with(|config| config.limits.yaml_bytes = 2_000).await;
    let reader = Client::reader(&server).accept("application/yaml");
    let response = reader.get(&format!("{V1}/widgets")).await;
    assert_eq!(response.code, 406);
    assert!(
        response.text().contains("request application/json"),
        "{}",
        response.text()
    );
    assert_eq!(
        reader
            .get(&format!("{V1}/namespaces/ns-1/widgets"))
            .await
            .code,
        200
    );
    server.stop().await;
}

async fn first_bytes(client: &Client, path: &str, min: usize) -> (String, Vec<u8>) {
    let mut open = client.connect().await;
    let response = open.send(client.request(Method::GET, path)).await.unwrap();
    assert_eq!(response.status(), 200);
    let kind = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while bytes.len() < min {
        let frame = within("a frame of the watch", body.frame()).await;
        let frame = frame.unwrap().unwrap();
        bytes.extend_from_slice(frame.data_ref().unwrap());
    }
    (kind, bytes)
}

#[tokio::test]
async fn watches_stream_changes() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    let path = format!("{V1}/namespaces/ns-3/widgets?watch=1&allowWatchBookmarks=true");
    let (kind, line) = first_bytes(&reader, &path, 10).await;
    assert_eq!(kind, "application/json");
    let event: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["weight"]),
        (&json!("ADDED"), &json!(3))
    );
    let protobuf = reader
        .clone()
        .accept("application/vnd.kubernetes.protobuf;stream=watch");
    let (kind, frame) = first_bytes(&protobuf, &path, 10).await;
    assert_eq!(kind, "application/vnd.kubernetes.protobuf;stream=watch");
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
    assert_eq!(usize::try_from(length).unwrap(), frame.len() - 4);
    assert!(frame[4..].starts_with(b"\x0a\x05ADDED"));
    // It ends after its timeout.
    let response = reader
        .get(&format!(
            "{V1}/namespaces/ns-3/widgets?watch=true&timeoutSeconds=1"
        ))
        .await;
    assert_eq!(response.text().lines().count(), 1);
    let (code, message) = reader
        .error(&format!("{V1}/widgets?watch=1&resourceVersion=1"))
        .await;
    assert_eq!(
        (code, message.as_str()),
        (410, "too old resource version: 1 (7)")
    );
    let (code, message) = reader.error(&format!("{V1}/gadgets?watch=1")).await;
    assert_eq!(
        (code, message.as_str()),
        (
            405,
            "watch is not supported on resources of kind \"gadgets.example.dev\""
        )
    );
    server.stop().await;
}

#[tokio::test]
async fn missing_objects_have_the_errors_of_kubernetes() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    for path in [
        "foo",
        "widgets/x",
        "namespaces/a/widgets/b/status",
        "namespaces/a/gadgets",
        "namespaces/a",
        "namespaces",
        "watch/widgets",
    ] {
        let (code, message) = reader.error(&format!("{V1}/{path}")).await;
        assert_eq!(
            (code, message.as_str()),
            (404, "the server could not find the requested resource"),
            "{path}"
        );
    }
    let response = reader.get(&format!("{V1}/namespaces/a/widgets/b")).await;
    assert_eq!(
        response.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
            "message": "widgets \"b\" not found: it was never made",
            "details": {"name": "b", "group": "example.dev", "kind": "widgets"},
        })
    );
    for method in [
        Method::POST,
        Method::DELETE,
        Method::PUT,
        Method::PATCH,
        Method::OPTIONS,
        Method::HEAD,
    ] {
        let response = reader.send(method.clone(), &format!("{V1}/widgets")).await;
        assert_eq!(
            (response.code.as_u16(), response.header("allow")),
            (405, "GET"),
            "{method}"
        );
    }
    let head = reader.clone().http1().send(Method::HEAD, "/version").await;
    assert_eq!((head.code.as_u16(), head.body.len()), (405, 0));
    let (code, message) = reader
        .clone()
        .accept("text/html")
        .error(&format!("{V1}/widgets"))
        .await;
    assert_eq!(code, 406);
    assert!(
        message.starts_with("406: Not Acceptable\n\nAvailable representations: application/json, "),
        "{message}"
    );
    let protobuf = reader
        .accept("application/vnd.kubernetes.protobuf")
        .get(&format!("{V1}/foo"))
        .await;
    assert_eq!(
        protobuf.header("content-type"),
        "application/vnd.kubernetes.protobuf"
    );
    assert!(
        protobuf
            .body
            .starts_with(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status")
    );
    server.stop().await;
}

#[tokio::test]
async fn a_panic_affects_its_own_request_only() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    let mut open = reader.connect().await;
    let request = reader.request(Method::GET, &format!("{V1}/namespaces/a/widgets/bug"));
    let response = Received::read(open.send(request).await.unwrap()).await;
    assert_eq!(
        (response.code.as_u16(), &response.json()["reason"]),
        (500, &json!("InternalError"))
    );
    let request = reader.request(Method::GET, &format!("{V1}/namespaces/ns-1/widgets"));
    assert_eq!(
        open.send(request).await.unwrap().status(),
        200,
        "on the same connection"
    );
    server.stop().await;
}

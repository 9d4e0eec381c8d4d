//! Discovery, OpenAPI, health and metrics.

use std::fmt::Write as _;

use http::Method;
use kubevitals_telemetry::{Probe, Status};
use serde_json::{Value, json};

use crate::client::Client;
use crate::support::Running;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[tokio::test]
async fn discovery_documents_are_those_of_kubernetes() {
    let server = Running::start().await;
    let reader = Client::reader(&server).with("user-agent", "curl/8");
    let mut documents = String::new();
    for path in [
        "/apis",
        "/apis/example.dev",
        "/apis/example.dev/v1beta1",
        "/version",
    ] {
        let response = reader.get(path).await;
        assert_eq!(response.code, 200, "{path}");
        writeln!(documents, "--- {path}\n{}", response.text()).unwrap();
        assert_eq!(
            reader.get(&format!("{path}/")).await.body,
            response.body,
            "{path}/"
        );
        assert_eq!(reader.send(Method::POST, path).await.code, 405);
    }
    let response = reader.clone().accept(AGGREGATED).get("/apis").await;
    assert_eq!(response.header("content-type"), AGGREGATED);
    writeln!(documents, "--- aggregated\n{}", response.text()).unwrap();
    let yaml = reader
        .clone()
        .accept("application/yaml")
        .get("/apis/example.dev/v1")
        .await;
    write!(documents, "--- yaml\n{}", yaml.text()).unwrap();
    insta::assert_snapshot!(documents);
    server.stop().await;
}

#[tokio::test]
async fn etags_avoid_repeated_transfers() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    let cases = [
        ("/apis", AGGREGATED),
        ("/openapi/v2", "application/json"),
        ("/openapi/v3", ""),
        ("/openapi/v3/apis/example.dev/v1", "application/json"),
    ];
    for (path, accept) in cases {
        let reader = reader.clone().accept(accept);
        let response = reader.get(path).await;
        assert_eq!(response.code, 200, "{path}");
        let tag = response.header("etag");
        assert!(tag.len() > 60, "{path}: {tag}");
        let again = reader.clone().with("if-none-match", tag).get(path).await;
        assert_eq!((again.code.as_u16(), again.body.len()), (304, 0), "{path}");
        let other = reader.with("if-none-match", "\"other\"").get(path).await;
        assert_eq!(other.code, 200, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn schemas_are_described() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    let root = reader.get("/openapi/v3").await.json();
    let url = root["paths"]["apis/example.dev/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let response = reader.get(&url).await;
    assert!(response.header("cache-control").contains("immutable"));
    insta::assert_snapshot!("openapi_v3", pretty(&response.json()));
    let stale = reader.get("/openapi/v3/apis/example.dev/v1?hash=OLD").await;
    assert_eq!(
        (stale.code.as_u16(), stale.header("location")),
        (301, url.as_str())
    );
    let second = reader.get("/openapi/v2").await.json();
    insta::assert_snapshot!("openapi_v2", pretty(&second["definitions"]));
    assert_eq!(
        second["paths"]["/apis/example.dev/v1/namespaces/{namespace}/widgets"]["get"]["responses"]
            ["200"]["schema"],
        json!({"$ref": "#/definitions/dev.example.v1.WidgetList"})
    );
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    assert_eq!(
        reader
            .clone()
            .accept(protobuf)
            .get("/openapi/v2")
            .await
            .code,
        406
    );
    let old = reader
        .clone()
        .accept(&format!("{protobuf},application/json"))
        .get("/openapi/v2")
        .await;
    assert_eq!(old.header("content-type"), "application/json");
    assert_eq!(reader.get("/openapi/v3/apis/other/v1").await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn unknown_paths_return_the_index() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    for (path, code) in [
        ("/", 200),
        ("/index.html", 200),
        ("/foo", 404),
        ("/apis/foo", 404),
        ("/livez/nope", 404),
    ] {
        let response = reader.get(path).await;
        assert_eq!(response.code, code, "{path}");
        let paths = response.json()["paths"].clone();
        assert!(
            paths
                .as_array()
                .unwrap()
                .contains(&json!("/apis/example.dev/v1")),
            "{paths}"
        );
        assert!(
            paths
                .as_array()
                .unwrap()
                .contains(&json!("/readyz/shutdown")),
            "{paths}"
        );
    }
    let (code, _) = reader.error("/apis/example.dev/v9").await;
    assert_eq!(code, 404);
    server.stop().await;
}

#[tokio::test]
async fn health_reports_are_those_of_kubernetes() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    let cell = server
        .health
        .cell("disk", Probe::READINESS, Status::Ok)
        .unwrap();
    assert_eq!(reader.get("/livez").await.text(), "ok");
    assert_eq!(
        reader.get("/livez?verbose").await.text(),
        "[+]ping ok\n[+]log ok\nlivez check passed\n"
    );
    assert_eq!(
        reader
            .get("/readyz?verbose&exclude=log&exclude=nope")
            .await
            .text(),
        "[+]ping ok\n[+]log excluded: ok\n[+]disk ok\n[+]shutdown ok\n\
         warn: some health checks cannot be excluded: no matches for \"nope\"\nreadyz check passed\n"
    );
    assert_eq!(reader.get("/readyz/disk").await.text(), "ok");
    cell.set_failing("full");
    let response = reader.get("/readyz").await;
    assert_eq!(
        (response.code.as_u16(), response.header("content-type")),
        (500, "text/plain; charset=utf-8")
    );
    assert!(
        response
            .text()
            .contains("[-]disk failed: reason withheld\n"),
        "{}",
        response.text()
    );
    assert_eq!(reader.get("/readyz/disk").await.code, 500);
    assert_eq!(reader.get("/livez").await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn requests_are_counted_by_kind() {
    let server = Running::start().await;
    let reader = Client::reader(&server);
    reader.get("/apis/example.dev/v1/widgets").await;
    reader
        .get("/apis/example.dev/v1/namespaces/ns-1/widgets")
        .await;
    reader
        .get("/apis/example.dev/v1/namespaces/ns-1/widgets/widget-1")
        .await;
    reader
        .get("/apis/example.dev/v1/namespaces/ns-1/widgets/none")
        .await;
    reader.get("/apis/some.group/v1/things/secret-name").await;
    let scraper = Client::of(&server).bearer("token-of-scraper");
    let response = scraper.get("/metrics").await;
    assert_eq!(
        response.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = response.text();
    for line in [
        "apiserver_request_duration_seconds_bucket{component=\"apiserver\",dry_run=\"\",group=\"example.dev\",resource=\"widgets\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\",le=\"60\"} 1",
        "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"example.dev\",resource=\"widgets\",scope=\"namespace\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 1",
        "apiserver_request_total{code=\"404\",component=\"apiserver\",dry_run=\"\",group=\"example.dev\",resource=\"widgets\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"} 1",
        "kubevitals_apiserver_reviews_total{result=\"miss\",review=\"access\"} 6",
        "kubevitals_apiserver_authentications_total{method=\"token\"} 6",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(
        !text.contains("some.group") && !text.contains("secret-name"),
        "names from requests are not labels"
    );
    assert_eq!(Client::of(&server).get("/metrics").await.code, 403);
    assert!(!server.registry.families().unwrap().is_empty());
    server.stop().await;
}

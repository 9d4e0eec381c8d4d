//! Byte equality with the Go code of Kubernetes (`e2e/vectors/metrics-api`).

use kubevitals_apiserver::{Encoding, IncludeObject, Representation, Shape, StatusError};
use kubevitals_model::{Bytes, Labels, NodeName, Uid};

use crate::support::*;

macro_rules! vector {
    ($name:literal) => {
        include_bytes!(concat!("../vectors/", $name)).as_slice()
    };
}

fn in_table(include: IncludeObject) -> Representation {
    Representation {
        encoding: Encoding::Json,
        shape: Shape::Table {
            version: "v1",
            include,
        },
    }
}

fn metadata_only(encoding: Encoding) -> Representation {
    Representation {
        encoding,
        shape: Shape::Metadata { version: "v1" },
    }
}

/// Returns an API with the objects of the vectors.
fn published() -> Harness {
    let api = Harness::new();
    let mut full = usage(5_000_000, 1000, 1_763_254_219, 60_500);
    full.swap = Some(Bytes::new(24));
    full.ephemeral_storage = Some(Bytes::new(3 << 20));
    let odd = labels(&[
        ("app", "web"),
        ("pod-template-hash", "7d4b9c6f5"),
        ("odd/<&>", "a\"b\\c\u{2028}\té<\u{1}\u{8}\u{c}"),
    ]);
    let pods = [
        pod(
            "a",
            "one",
            labels(&[]),
            vec![container(
                "main",
                usage(4_710_169, 12_533_760, 1_763_254_220, 14_964),
            )],
        ),
        pod(
            "a",
            "two",
            odd,
            vec![
                container("main", usage(12_345_000, 24, 1_763_254_219, 60_500)),
                container("sidecar", full),
            ],
        ),
        pod(
            "b",
            "one",
            labels(&[("app", "")]),
            vec![
                container("c", usage(0, 0, -5, 1)),
                container("d", usage(2_000_000_000, 1 << 40, -4, 2)),
            ],
        ),
    ];
    let own = usage(1_234_567_891, 8 << 30, 1_763_254_221, 10_000);
    let node_labels = labels(&[("kubernetes.io/hostname", "node-1")]);
    publish_labelled(&api, "node-1", &node_labels, Some(own), &pods);
    api
}

#[track_caller]
fn same(ours: &[u8], vector: &[u8]) {
    assert_eq!(
        String::from_utf8_lossy(ours),
        String::from_utf8_lossy(vector)
    );
    assert_eq!(ours, vector);
}

#[test]
fn objects_equal_those_of_go() {
    let api = published();
    let two = ("a", "two");
    let node = ("", "node-1");
    same(&get(&api, "pods", two, JSON).unwrap(), vector!("pod.json"));
    same(
        &get(&api, "pods", two, PROTOBUF).unwrap(),
        vector!("pod.pb"),
    );
    same(
        &get(&api, "nodes", node, JSON).unwrap(),
        vector!("node.json"),
    );
    same(
        &get(&api, "nodes", node, PROTOBUF).unwrap(),
        vector!("node.pb"),
    );
    let partial = get(&api, "pods", two, metadata_only(Encoding::Json)).unwrap();
    same(&partial, vector!("partial-pod.json"));
    let partial = get(&api, "pods", two, metadata_only(Encoding::Protobuf)).unwrap();
    same(&partial, vector!("partial-pod.pb"));
}

#[test]
fn lists_equal_those_of_go() {
    let api = published();
    same(&all(JSON).list(&api, "pods"), vector!("pods.json"));
    same(&all(PROTOBUF).list(&api, "pods"), vector!("pods.pb"));
    same(&all(JSON).list(&api, "nodes"), vector!("nodes.json"));
    same(&all(PROTOBUF).list(&api, "nodes"), vector!("nodes.pb"));
    let none = all(JSON).within("c");
    same(&none.list(&api, "pods"), vector!("pods-none.json"));
    let none = all(PROTOBUF).within("c");
    same(&none.list(&api, "pods"), vector!("pods-none.pb"));
    let partial = all(metadata_only(Encoding::Json)).list(&api, "pods");
    same(&partial, vector!("partial-pods.json"));
    let partial = all(metadata_only(Encoding::Protobuf)).list(&api, "pods");
    same(&partial, vector!("partial-pods.pb"));
}

#[test]
fn tables_equal_those_of_metrics_server() {
    let api = published();
    let table = |include| all(in_table(include)).list(&api, "pods");
    same(&table(IncludeObject::Metadata), vector!("table-pods.json"));
    same(
        &table(IncludeObject::Object),
        vector!("table-pods-object.json"),
    );
    same(&table(IncludeObject::None), vector!("table-pods-bare.json"));
    let none = all(in_table(IncludeObject::None)).within("c");
    same(&none.list(&api, "pods"), vector!("table-pods-none.json"));
}

#[test]
fn a_table_of_one_object_has_its_columns() {
    let api = published();
    let representation = in_table(IncludeObject::None);
    let table = get(&api, "pods", ("a", "two"), representation).unwrap();
    insta::assert_snapshot!(String::from_utf8(table).unwrap(), @r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"Name of the resource","priority":0},{"name":"cpu","type":"string","format":"quantity","description":"","priority":0},{"name":"ephemeral-storage","type":"string","format":"quantity","description":"","priority":0},{"name":"memory","type":"string","format":"quantity","description":"","priority":0},{"name":"swap","type":"string","format":"quantity","description":"","priority":0},{"name":"Window","type":"string","format":"duration","description":"","priority":0}],"rows":[{"cells":["two","17345u","3Mi","1Ki","24","1m0.5s"],"object":null}]}"#);
}

#[test]
fn a_table_has_no_protobuf_encoding() {
    let representation = Representation {
        encoding: Encoding::Protobuf,
        ..in_table(IncludeObject::None)
    };
    let refused = all(representation).open(&published(), "pods");
    assert!(matches!(refused, Err(StatusError::BadRequest { .. })));
}

#[test]
fn both_versions_differ_only_in_their_name() {
    let api = published();
    let list = |version, representation| {
        let mut query = all(representation);
        query.version = version;
        query.list(&api, "pods")
    };
    let text = |version| String::from_utf8(list(version, JSON)).unwrap();
    let beta = text("v1beta1");
    assert_eq!(
        text("v1"),
        beta.replace("metrics.k8s.io/v1beta1", "metrics.k8s.io/v1")
    );
    assert_eq!(
        open_envelope(&list("v1", PROTOBUF)),
        open_envelope(&list("v1beta1", PROTOBUF))
    );
}

#[tokio::test(start_paused = true)]
async fn event_frames_equal_those_of_go() {
    let api = published();
    for (representation, vector) in [
        (JSON, vector!("event.json")),
        (PROTOBUF, vector!("event.pb")),
    ] {
        let query = all(representation).labelled("app=web");
        let mut watch = query.watch(&api, "pods", "", None).unwrap();
        same(&next(&mut watch).await.unwrap(), vector);
    }
}

#[test]
fn generated_types_decode_partial_metadata() {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};

    let list = all(JSON).list(&published(), "pods");
    let mut list: serde_json::Value = serde_json::from_slice(&list).unwrap();
    let meta: ListMeta = serde_json::from_value(list["metadata"].take()).unwrap();
    assert_eq!(
        meta.resource_version.as_deref(),
        Some("3786559621896929281")
    );
    let item = &mut list["items"][1];
    let meta: ObjectMeta = serde_json::from_value(item["metadata"].take()).unwrap();
    assert_eq!(meta.name.as_deref(), Some("two"));
    assert_eq!(meta.labels.unwrap()["app"], "web");
    let memory: Quantity =
        serde_json::from_value(item["containers"][1]["usage"]["memory"].take()).unwrap();
    assert_eq!(memory.0, "1k");
}

/// Go decodes years of four digits: one pod with a later time made the list of all unreadable.
#[test]
fn times_beyond_the_year_9999_are_clamped_in_json() {
    for (seconds, text) in [
        (1 << 42, "9999-12-31T23:59:59Z"),
        (-(1 << 42), "0000-01-01T00:00:00Z"),
    ] {
        let api = Harness::new();
        let far = container("c", usage(1, 1, seconds, 15_000));
        let pods = [pod("a", "far", labels(&[]), vec![far])];
        publish(&api, "node-1", Some(usage(1, 1, seconds, 15_000)), &pods);
        for plural in ["pods", "nodes"] {
            let list = all(JSON).list(&api, plural);
            let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
            assert_eq!(list["items"][0]["timestamp"], text);
        }
        let object = get(&api, "pods", ("a", "far"), JSON).unwrap();
        let object: serde_json::Value = serde_json::from_slice(&object).unwrap();
        assert_eq!(object["timestamp"], text);
    }
}

#[test]
fn the_store_explains_why_an_object_is_not_found() {
    let api = published();
    let message = |plural, name| match get(&api, plural, name, JSON) {
        Err(StatusError::NotFound { message }) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(message("pods", ("a", "x")), "pods \"x\" not found");
    assert_eq!(message("nodes", ("", "x")), "nodes \"x\" not found");

    let name = NodeName::new("new");
    api.store
        .node_applied(&name, &Labels::default(), &Uid::from("1"));
    assert_eq!(
        message("nodes", ("", "new")),
        "nodemetrics.metrics.k8s.io \"new\" not found: node new has not been scraped yet"
    );
}

#[test]
fn the_schemas_describe_both_versions() {
    for resource in published().resources() {
        let info = resource.info();
        let schemas: serde_json::Value = serde_json::from_str(info.schemas).unwrap();
        let schemas = schemas.as_object().unwrap();
        for version in ["v1", "v1beta1"] {
            for kind in [info.kind, info.list_kind] {
                let name = format!("io.k8s.metrics.pkg.apis.metrics.{version}.{kind}");
                assert!(schemas.contains_key(&name), "{name}");
            }
        }
        for reference in info.schemas.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
    }
}

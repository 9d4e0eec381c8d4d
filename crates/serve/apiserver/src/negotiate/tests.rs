use super::*;

fn negotiate(accept: &str, wanted: Wanted) -> Result<(MediaType, Shape), String> {
    object(accept, wanted, Query::new(None))
        .map(|choice| (choice.media, choice.shape))
        .map_err(|failure| format!("{failure:?}"))
}

const TABLE: Shape = Shape::Table {
    version: "v1",
    include: IncludeObject::Metadata,
};

#[test]
fn the_first_served_representation_is_chosen() {
    let cases = [
        ("", MediaType::Json, Shape::Object),
        ("*/*", MediaType::Json, Shape::Object),
        ("application/*", MediaType::Json, Shape::Object),
        ("application/yaml", MediaType::Yaml, Shape::Object),
        (
            "application/vnd.kubernetes.protobuf, */*",
            MediaType::Protobuf,
            Shape::Object,
        ),
        (
            "application/vnd.kubernetes.protobuf,application/json",
            MediaType::Protobuf,
            Shape::Object,
        ),
        (
            "application/json;q=0.1,application/yaml;q=0.2",
            MediaType::Yaml,
            Shape::Object,
        ),
        (
            "text/html,application/xml;q=0.9,*/*;q=0.8",
            MediaType::Json,
            Shape::Object,
        ),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            MediaType::Json,
            TABLE,
        ),
        (
            "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
            MediaType::Json,
            Shape::Object,
        ),
        (
            "application/json;as=Foo;v=v1;g=meta.k8s.io,application/yaml",
            MediaType::Yaml,
            Shape::Object,
        ),
        (
            "application/cbor,application/json",
            MediaType::Json,
            Shape::Object,
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
            MediaType::Protobuf,
            Shape::Metadata { version: "v1beta1" },
        ),
    ];
    for (accept, media, shape) in cases {
        assert_eq!(
            negotiate(accept, Wanted::List),
            Ok((media, shape)),
            "{accept}"
        );
    }
}

#[test]
fn unacceptable_requests_get_the_messages_of_kubernetes() {
    let message = |accept, wanted| negotiate(accept, wanted).unwrap_err();
    assert!(message("text/html", Wanted::List).contains(
        "406: Not Acceptable\\n\\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf, application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    ));
    assert!(
        message("application/json;as=Foo;g=meta.k8s.io;v=v1", Wanted::List).contains(
            "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf"
        )
    );
    assert!(message("application/yaml", Wanted::Watch).contains("application/json;stream=watch"));
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert!(message(metadata, Wanted::List).contains("is a list"));
    assert!(negotiate(metadata, Wanted::Object).is_ok());
    assert!(negotiate(metadata, Wanted::Watch).is_ok());
}

#[test]
fn watches_accept_the_stream_parameter() {
    for accept in [
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf;stream=watch",
        "application/vnd.kubernetes.protobuf;type=watch",
        "application/vnd.kubernetes.protobuf;stream=watch,application/json",
    ] {
        assert!(negotiate(accept, Wanted::Watch).is_ok(), "{accept}");
    }
    assert!(negotiate("application/json;stream=other", Wanted::Watch).is_err());
}

#[test]
fn discovery_falls_back() {
    let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let v2beta1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let all = format!("{v2},{v2beta1},application/json");
    assert_eq!(
        discovery(&all),
        Ok(DiscoveryRepresentation::Aggregated("v2"))
    );
    let newer = all.replace("v=v2;", "v=v3;");
    assert_eq!(
        discovery(&newer),
        Ok(DiscoveryRepresentation::Aggregated("v2beta1"))
    );
    assert_eq!(
        discovery(""),
        Ok(DiscoveryRepresentation::Legacy(MediaType::Json))
    );
    assert_eq!(
        discovery("application/yaml"),
        Ok(DiscoveryRepresentation::Legacy(MediaType::Yaml))
    );
    assert!(discovery("text/html").is_err());
}

#[test]
fn errors_use_an_acceptable_media_type() {
    assert_eq!(
        media_of_error("application/vnd.kubernetes.protobuf"),
        MediaType::Protobuf
    );
    assert_eq!(media_of_error("text/html"), MediaType::Json);
    assert_eq!(
        media_of_error("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"),
        MediaType::Json
    );
}

#[test]
fn named_types_go_before_wildcards() {
    let order = |header| {
        let ranges = by_preference(header);
        let names = ranges
            .iter()
            .map(|range| format!("{}/{}", range.kind, range.subtype));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order("*/*, application/json;q=0.1"), "application/json */*");
    assert_eq!(order("a/b;q=0.1, c/d"), "c/d a/b");
    assert_eq!(order("a/*, a/b, *, c/d"), "a/b c/d a/* */*");
    assert_eq!(order("a/b;q=x, c/d;q=0.5, e/f;q=2"), "e/f c/d a/b");
    assert_eq!(order("nonsense, a/, a/b/c, ,a/b"), "a/b");
}

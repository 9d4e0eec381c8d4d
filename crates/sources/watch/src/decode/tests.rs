use super::*;
use kubevitals_model::{Node, PartialObjectMeta, Pod, PodSummary};

fn event<K: Kind>(line: &str) -> Result<WatchEvent<K>, DecodeError> {
    decode_event(line.as_bytes(), &Decoder::default())
}

#[test]
fn the_type_may_come_after_the_object() {
    let early = event::<PodSummary>(r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#);
    let late =
        event::<PodSummary>(r#"{"object":{"metadata":{"name":"a"}},"x":[1],"type":"ADDED"}"#);
    assert!(matches!(early, Ok(WatchEvent::Added(_))));
    assert_eq!(early.unwrap(), late.unwrap());
}

#[test]
fn bookmarks_and_errors_are_decoded_for_any_kind() {
    let mark = event::<Node>(
        r#"{"type":"BOOKMARK","object":{"kind":"Node","metadata":{"resourceVersion":"12",
        "annotations":{"k8s.io/initial-events-end":"true"}},"spec":{}}}"#,
    );
    let bookmark = Bookmark {
        resource_version: "12".into(),
        ends_initial_events: true,
    };
    assert_eq!(mark.unwrap(), WatchEvent::Bookmark(bookmark));

    let gone = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
    for line in [
        gone.to_owned(),
        format!(r#"{{"type":"ERROR","object":{gone}}}"#),
    ] {
        let Ok(WatchEvent::Error(status)) = event::<Node>(&line) else {
            panic!("{line}");
        };
        assert!(status.is_expired());
        assert_eq!(status.message, "too old");
    }
}

#[test]
fn an_object_that_cannot_be_decoded_is_named() {
    let error = event::<Pod>(
        r#"{"type":"DELETED","object":{"metadata":{"name":"a","namespace":"b"},"status":{"phase":7}}}"#,
    )
    .unwrap_err();
    assert!(!error.is_invalid_response());
    assert_eq!(
        error.to_string(),
        "failed to decode object b/a: invalid type: integer `7`, expected a string at byte 87"
    );
    let nameless = event::<Pod>(r#"{"type":"ADDED","object":{"metadata":{}}}"#).unwrap_err();
    assert!(
        nameless.to_string().contains("object has no metadata.name"),
        "{nameless}"
    );
}

#[test]
fn anything_but_an_event_is_an_invalid_response() {
    for line in [
        "",
        "{",
        "[]",
        "7",
        "{}",
        r#"{"type":"ADDED"}"#,
        "\u{1f}\u{8b}",
        r#"{"object":{}}"#,
        r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}} x"#,
    ] {
        let error = event::<PartialObjectMeta>(line).unwrap_err();
        assert!(error.is_invalid_response(), "{line}: {error}");
    }
    assert!(event::<PartialObjectMeta>(r#"{"type":"SURPRISE","object":{}}"#).is_err());
}

#[test]
fn a_page_loses_only_invalid_objects() {
    let page = decode_page::<PodSummary>(
        br#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"tok"},"items":[
        {"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":{"nodeName":[]}},{"metadata":{"name":"c"}}]}"#,
        &Decoder::default(),
    )
    .unwrap();
    let names: Vec<&str> = page.objects.iter().map(|pod| &*pod.identity.name).collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(page.unreadable.len(), 1);
    assert_eq!(
        (page.next.as_str(), page.resource_version.to_string()),
        ("tok", "9".to_owned())
    );

    let empty = br#"{"metadata":{"resourceVersion":"9"},"items":null}"#;
    let page = decode_page::<PodSummary>(empty, &Decoder::default()).unwrap();
    assert!(page.objects.is_empty() && page.next.is_empty());
    for wrong in [
        &b"[]"[..],
        b"{}",
        b"null",
        br#"{"metadata":{"resourceVersion":"9"},"items":7}"#,
    ] {
        assert!(decode_page::<PodSummary>(wrong, &Decoder::default()).is_err());
    }
}

#[test]
fn only_requested_annotations_are_kept() {
    let object = br#"{"metadata":{"name":"a","annotations":{"big":"...","wanted":"1"}}}"#;
    let decoder = Decoder::default().keep_annotations(["wanted", "absent"]);
    let kept: PartialObjectMeta = decode_object(object, &decoder).unwrap();
    assert_eq!(
        kept.meta.annotations.iter().collect::<Vec<_>>(),
        [("wanted", "1")]
    );
    let none: PartialObjectMeta = decode_object(object, &Decoder::default()).unwrap();
    assert!(none.meta.annotations.is_empty());
}

//! Watches: who follows one knows what a list would say.

use std::collections::BTreeMap;
use std::time::Duration;

use kubevitals_apiserver::{Body, Encoding, StatusError};
use kubevitals_metrics_api::Limits;
use kubevitals_usage::PodUsage;
use proptest::prelude::*;
use tokio::time::timeout;

use crate::model::{Model, steps};
use crate::support::*;

/// An event: its type, the object as text (empty where it is gone), its key, its version.
#[derive(Debug)]
struct Event {
    kind: String,
    key: String,
    text: String,
    version: u64,
}

/// The events of a piece.
fn events(piece: &[u8], encoding: Encoding) -> Vec<Event> {
    match encoding {
        Encoding::Json => piece
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| {
                let event: serde_json::Value = serde_json::from_slice(line).unwrap();
                let metadata = &event["object"]["metadata"];
                let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
                Event {
                    kind: text(&event["type"]),
                    key: format!(
                        "{}/{}",
                        text(&metadata["namespace"]),
                        text(&metadata["name"])
                    ),
                    text: event["object"].to_string(),
                    version: text(&metadata["resourceVersion"]).parse().unwrap_or(0),
                }
            })
            .collect(),
        Encoding::Protobuf => {
            let mut rest = piece;
            let mut events = Vec::new();
            while !rest.is_empty() {
                let (len, after) = rest.split_first_chunk::<4>().unwrap();
                let (frame, after) =
                    after.split_at(usize::try_from(u32::from_be_bytes(*len)).unwrap());
                rest = after;
                let frame = decode(frame);
                let raw = decode(&bytes_of(&frame, 2)[0]);
                let unknown = decode(bytes_of(&raw, 1)[0].strip_prefix(b"k8s\0").unwrap());
                let object = bytes_of(&unknown, 2)[0].clone();
                let meta = decode(&bytes_of(&decode(&object), 1)[0]);
                events.push(Event {
                    kind: text_of(&frame, 1),
                    key: format!("{}/{}", text_of(&meta, 3), text_of(&meta, 1)),
                    text: told(&object),
                    version: text_of(&meta, 6).parse().unwrap_or(0),
                });
            }
            events
        }
    }
}

/// What comes until nothing has for a second.
async fn drain(body: &mut Body, encoding: Encoding) -> Vec<Event> {
    let mut all = Vec::new();
    while let Ok(Some(piece)) = timeout(Duration::from_secs(1), next(body)).await {
        all.extend(events(&piece, encoding));
    }
    all
}

/// A client that keeps what it is told.
fn follow(known: &mut BTreeMap<String, String>, events: Vec<Event>) {
    for event in events {
        match event.kind.as_str() {
            "ADDED" | "MODIFIED" => {
                known.insert(event.key, event.text);
            }
            "DELETED" => {
                known.remove(&event.key);
            }
            "BOOKMARK" => {}
            other => panic!("{other}"),
        }
    }
}

fn one(name: &str, used: u64) -> PodUsage {
    pod(
        "a",
        name,
        labels(&[("app", "web")]),
        vec![container("c", usage(used, used, 5, 15_000))],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    /// Reading in between or not, and going on from the version of a list or of an event after a
    /// break, leads to the same knowledge as a list at the end.
    #[test]
    fn who_watches_knows_what_a_list_says(
        steps in steps(20),
        reads in prop::collection::vec(0..4u8, 20),
        selector in prop::sample::select(vec!["", "app=web", "!tier", "n"]),
        fields in prop::sample::select(vec!["", "spec.nodeName=node-1", "metadata.namespace=ns-1"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let api = Harness::with_limits(Limits { piece_bytes: 256, ..Limits::default() });
            let mut model = Model::default();
            let ask = all(PROTOBUF).labelled(selector).with_fields(fields);
            let mut known = BTreeMap::new();
            let mut watch = ask.watch(&api, "pods", "", None).unwrap();
            let mut version = 0;
            for (step, read) in steps.iter().zip(reads) {
                step.apply(&api, &mut model);
                if read == 0 {
                    continue;
                }
                // A break in the middle, once all that was there is told.
                let told = if read == 3 && version > 0 {
                    let piece = timeout(Duration::from_secs(1), next(&mut watch)).await;
                    piece.map_or_else(|_| Vec::new(), |piece| events(&piece.unwrap(), Encoding::Protobuf))
                } else {
                    drain(&mut watch, Encoding::Protobuf).await
                };
                prop_assert!(told.iter().all(|event| event.version > 0));
                // What was there at the beginning comes in the order of names, what changes later
                // in that of changes.
                if version > 0 {
                    prop_assert!(told.is_sorted_by_key(|event| event.version));
                }
                version = told.last().map_or(version, |event| event.version.max(version));
                follow(&mut known, told);
                if read >= 2 && version > 0 {
                    watch = ask.watch(&api, "pods", &version.to_string(), None).unwrap();
                }
            }
            follow(&mut known, drain(&mut watch, Encoding::Protobuf).await);
            prop_assert_eq!(known.into_values().collect::<Vec<_>>(), model.pods(&ask));
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_went_and_came_again_does_not_stay_with_a_reader_who_broke_off_in_between() {
    let api = Harness::with_limits(Limits {
        piece_bytes: 1,
        ..Limits::default()
    });
    let ask = all(PROTOBUF);
    let mut known = BTreeMap::new();
    let mut watch = ask.watch(&api, "pods", "", None).unwrap();
    publish(&api, "n", None, &[one("p", 1)]);
    follow(&mut known, drain(&mut watch, Encoding::Protobuf).await);
    publish(&api, "n", None, &[]);
    publish(&api, "n", None, &[one("q", 1)]);
    publish(&api, "n", None, &[one("p", 2), one("q", 1)]);
    let piece = next(&mut watch).await.unwrap();
    let told = events(&piece, Encoding::Protobuf);
    let version = told.last().unwrap().version.to_string();
    follow(&mut known, told);
    let mut watch = ask.watch(&api, "pods", &version, None).unwrap();
    publish(&api, "n", None, &[one("q", 1)]);
    follow(&mut known, drain(&mut watch, Encoding::Protobuf).await);
    assert_eq!(known.keys().collect::<Vec<_>>(), ["a/q"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_latest_of_each() {
    let api = Harness::new();
    let mut watch = all(PROTOBUF).watch(&api, "pods", "", None).unwrap();
    publish(&api, "n", None, &[one("p", 1)]);
    drain(&mut watch, Encoding::Protobuf).await;
    for used in 2..100 {
        publish(&api, "n", None, &[one("p", used)]);
    }
    let told = drain(&mut watch, Encoding::Protobuf).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].kind, "MODIFIED");
    assert!(told[0].text.contains("cpu:99n"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_measured_again_is_not_told_again() {
    let api = Harness::new();
    publish(
        &api,
        "n",
        Some(usage(1, 1, 5, 1)),
        &[one("p", 1), one("q", 1)],
    );
    let mut pods = all(JSON).watch(&api, "pods", "", None).unwrap();
    let mut nodes = all(JSON).watch(&api, "nodes", "", None).unwrap();
    assert_eq!(drain(&mut pods, Encoding::Json).await.len(), 2);
    assert_eq!(drain(&mut nodes, Encoding::Json).await.len(), 1);
    publish(
        &api,
        "n",
        Some(usage(1, 1, 5, 1)),
        &[one("p", 1), one("q", 2)],
    );
    let told = drain(&mut pods, Encoding::Json).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].kind.as_str(), told[0].key.as_str()),
        ("MODIFIED", "a/q")
    );
    assert_eq!(drain(&mut nodes, Encoding::Json).await.len(), 0);
    publish(&api, "n", None, &[one("p", 1)]);
    let told = drain(&mut nodes, Encoding::Json).await;
    assert_eq!(
        (told[0].kind.as_str(), told[0].key.as_str()),
        ("DELETED", "/n")
    );
    let told = drain(&mut pods, Encoding::Json).await;
    assert_eq!(told.len(), 1);
    assert!(
        told[0].text.contains("\"timestamp\":null,") || told[0].text.contains("null"),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_there_ends_with_a_bookmark_where_that_is_asked_for() {
    let api = Harness::new();
    publish(&api, "n", None, &[one("p", 1)]);
    for form in [JSON, PROTOBUF] {
        let mut watch = all(form).watch(&api, "pods", "", Some(true)).unwrap();
        let piece = next(&mut watch).await.unwrap();
        let told = events(&piece, form.encoding);
        let kinds: Vec<&str> = told.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["ADDED", "BOOKMARK"]);
        assert!(String::from_utf8_lossy(&piece).contains("k8s.io/initial-events-end"));
        assert_eq!(told[1].version, told[0].version);
        // Then one now and then, as long as nothing happens.
        let later = events(&next(&mut watch).await.unwrap(), form.encoding);
        assert_eq!(later[0].kind, "BOOKMARK");
        assert_eq!(later[0].version, told[0].version);
    }
    let mut watch = all(JSON).watch(&api, "pods", "", Some(false)).unwrap();
    publish(&api, "n", None, &[one("p", 2)]);
    assert_eq!(drain(&mut watch, Encoding::Json).await[0].kind, "MODIFIED");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_by_its_time() {
    let mut watch = all(JSON).watch(&Harness::new(), "pods", "", None).unwrap();
    let start = tokio::time::Instant::now();
    let mut bookmarks = 0;
    while next(&mut watch).await.is_some() {
        bookmarks += 1;
    }
    assert_eq!(start.elapsed().as_secs(), 3600);
    assert_eq!(bookmarks, 59);
}

#[tokio::test(start_paused = true)]
async fn a_version_whose_deletions_are_forgotten_has_expired() {
    let api = Harness::with_limits(Limits {
        deletions: 2,
        ..Limits::default()
    });
    publish(
        &api,
        "n",
        None,
        &[one("p", 1), one("q", 1), one("r", 1), one("s", 1)],
    );
    let (_, list) = opened(&all(PROTOBUF).list(&api, "pods"));
    let version = text_of(&decode(&bytes_of(&list, 1)[0]), 2);
    let ask = all(JSON);
    let mut lagging = ask.watch(&api, "pods", &version, None).unwrap();
    publish(&api, "n", None, &[one("r", 1), one("s", 1)]);
    let mut watch = ask.watch(&api, "pods", &version, None).unwrap();
    assert_eq!(drain(&mut watch, Encoding::Json).await.len(), 2);
    publish(&api, "n", None, &[one("s", 1)]);
    let refused = |version: &str| ask.watch(&api, "pods", version, None).unwrap_err();
    assert!(matches!(refused(&version), StatusError::Expired { .. }));
    assert!(matches!(refused("17"), StatusError::Expired { .. }));
    assert!(matches!(
        refused("9999999999999999"),
        StatusError::Expired { .. }
    ));
    assert!(matches!(refused("x"), StatusError::BadRequest { .. }));
    let told = next(&mut lagging).await.unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(
        (&told["type"], &told["object"]["code"]),
        (&"ERROR".into(), &410.into())
    );
    assert!(next(&mut lagging).await.is_none());
}

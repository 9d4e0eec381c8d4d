//! Watches: a client that applies all events has the state of a list.

use std::collections::BTreeMap;
use std::time::Duration;

use kubevitals_apiserver::{Body, Encoding, StatusError};
use kubevitals_metrics_api::Limits;
use kubevitals_usage::PodUsage;
use proptest::prelude::*;
use tokio::time::timeout;

use crate::model::{Model, steps};
use crate::support::*;

/// A watch event: its type, the key, the object as text (empty if deleted), the version.
#[derive(Debug)]
struct Event {
    kind: String,
    key: String,
    text: String,
    version: u64,
}

/// Decodes the events of a chunk.
fn events(chunk: &[u8], encoding: Encoding) -> Vec<Event> {
    match encoding {
        Encoding::Json => chunk
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
            let mut rest = chunk;
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
                    text: object_text(&object),
                    version: text_of(&meta, 6).parse().unwrap_or(0),
                });
            }
            events
        }
    }
}

/// Reads events until none has arrived for a second.
async fn drain(body: &mut Body, encoding: Encoding) -> Vec<Event> {
    let mut all = Vec::new();
    while let Ok(Some(chunk)) = timeout(Duration::from_secs(1), next(body)).await {
        all.extend(events(&chunk, encoding));
    }
    all
}

/// Applies events to the state of a client.
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

    /// Whether a client reads in between or not, and whether it resumes from the version of a list
    /// or of an event, in the end its state equals a list.
    #[test]
    fn the_state_of_a_watching_client_equals_a_list(
        steps in steps(20),
        reads in prop::collection::vec(0..4u8, 20),
        selector in prop::sample::select(vec!["", "app=web", "!tier", "n"]),
        fields in prop::sample::select(vec!["", "spec.nodeName=node-1", "metadata.namespace=ns-1"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let api = Harness::with_limits(Limits { chunk_bytes: 256, ..Limits::default() });
            let mut model = Model::default();
            let query = all(PROTOBUF).labelled(selector).with_fields(fields);
            let mut known = BTreeMap::new();
            let mut watch = query.watch(&api, "pods", "", None).unwrap();
            let mut version = 0;
            for (step, read) in steps.iter().zip(reads) {
                step.apply(&api, &mut model);
                if read == 0 {
                    continue;
                }
                // Interrupted in the middle, after the initial events.
                let received = if read == 3 && version > 0 {
                    let chunk = timeout(Duration::from_secs(1), next(&mut watch)).await;
                    chunk.map_or_else(|_| Vec::new(), |chunk| events(&chunk.unwrap(), Encoding::Protobuf))
                } else {
                    drain(&mut watch, Encoding::Protobuf).await
                };
                prop_assert!(received.iter().all(|event| event.version > 0));
                // Initial events are sorted by name, later ones by version.
                if version > 0 {
                    prop_assert!(received.is_sorted_by_key(|event| event.version));
                }
                version = received.last().map_or(version, |event| event.version.max(version));
                follow(&mut known, received);
                if read >= 2 && version > 0 {
                    watch = query.watch(&api, "pods", &version.to_string(), None).unwrap();
                }
            }
            follow(&mut known, drain(&mut watch, Encoding::Protobuf).await);
            prop_assert_eq!(known.into_values().collect::<Vec<_>>(), model.pods(&query));
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_watch_receives_the_deletion_of_a_pod_that_was_recreated() {
    let api = Harness::with_limits(Limits {
        chunk_bytes: 1,
        ..Limits::default()
    });
    let query = all(PROTOBUF);
    let mut known = BTreeMap::new();
    let mut watch = query.watch(&api, "pods", "", None).unwrap();
    publish(&api, "n", None, &[one("p", 1)]);
    follow(&mut known, drain(&mut watch, Encoding::Protobuf).await);
    publish(&api, "n", None, &[]);
    publish(&api, "n", None, &[one("q", 1)]);
    publish(&api, "n", None, &[one("p", 2), one("q", 1)]);
    let chunk = next(&mut watch).await.unwrap();
    let received = events(&chunk, Encoding::Protobuf);
    let version = received.last().unwrap().version.to_string();
    follow(&mut known, received);
    let mut watch = query.watch(&api, "pods", &version, None).unwrap();
    publish(&api, "n", None, &[one("q", 1)]);
    follow(&mut known, drain(&mut watch, Encoding::Protobuf).await);
    assert_eq!(known.keys().collect::<Vec<_>>(), ["a/q"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_receives_the_latest_state_of_each_object() {
    let api = Harness::new();
    let mut watch = all(PROTOBUF).watch(&api, "pods", "", None).unwrap();
    publish(&api, "n", None, &[one("p", 1)]);
    drain(&mut watch, Encoding::Protobuf).await;
    for used in 2..100 {
        publish(&api, "n", None, &[one("p", used)]);
    }
    let received = drain(&mut watch, Encoding::Protobuf).await;
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!(received[0].kind, "MODIFIED");
    assert!(received[0].text.contains("cpu:99n"), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_object_causes_no_event() {
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
    let received = drain(&mut pods, Encoding::Json).await;
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!(
        (received[0].kind.as_str(), received[0].key.as_str()),
        ("MODIFIED", "a/q")
    );
    assert_eq!(drain(&mut nodes, Encoding::Json).await.len(), 0);
    publish(&api, "n", None, &[one("p", 1)]);
    let received = drain(&mut nodes, Encoding::Json).await;
    assert_eq!(
        (received[0].kind.as_str(), received[0].key.as_str()),
        ("DELETED", "/n")
    );
    let received = drain(&mut pods, Encoding::Json).await;
    assert_eq!(received.len(), 1);
    assert!(
        received[0].text.contains("\"timestamp\":null,") || received[0].text.contains("null"),
        "{received:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark_if_requested() {
    let api = Harness::new();
    publish(&api, "n", None, &[one("p", 1)]);
    for representation in [JSON, PROTOBUF] {
        let mut watch = all(representation)
            .watch(&api, "pods", "", Some(true))
            .unwrap();
        let chunk = next(&mut watch).await.unwrap();
        let received = events(&chunk, representation.encoding);
        let kinds: Vec<&str> = received.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["ADDED", "BOOKMARK"]);
        assert!(String::from_utf8_lossy(&chunk).contains("k8s.io/initial-events-end"));
        assert_eq!(received[1].version, received[0].version);
        // Further bookmarks follow while nothing changes.
        let later = events(&next(&mut watch).await.unwrap(), representation.encoding);
        assert_eq!(later[0].kind, "BOOKMARK");
        assert_eq!(later[0].version, received[0].version);
    }
    let mut watch = all(JSON).watch(&api, "pods", "", Some(false)).unwrap();
    publish(&api, "n", None, &[one("p", 2)]);
    assert_eq!(drain(&mut watch, Encoding::Json).await[0].kind, "MODIFIED");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout() {
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
async fn a_version_older_than_the_kept_deletions_is_expired() {
    let api = Harness::with_limits(Limits {
        max_deletions: 2,
        ..Limits::default()
    });
    publish(
        &api,
        "n",
        None,
        &[one("p", 1), one("q", 1), one("r", 1), one("s", 1)],
    );
    let (_, list) = open_envelope(&all(PROTOBUF).list(&api, "pods"));
    let version = text_of(&decode(&bytes_of(&list, 1)[0]), 2);
    let query = all(JSON);
    let mut lagging = query.watch(&api, "pods", &version, None).unwrap();
    publish(&api, "n", None, &[one("r", 1), one("s", 1)]);
    let mut watch = query.watch(&api, "pods", &version, None).unwrap();
    assert_eq!(drain(&mut watch, Encoding::Json).await.len(), 2);
    publish(&api, "n", None, &[one("s", 1)]);
    let refused = |version: &str| query.watch(&api, "pods", version, None).unwrap_err();
    assert!(matches!(refused(&version), StatusError::Expired { .. }));
    assert!(matches!(refused("17"), StatusError::Expired { .. }));
    assert!(matches!(
        refused("9999999999999999"),
        StatusError::Expired { .. }
    ));
    assert!(matches!(refused("x"), StatusError::BadRequest { .. }));
    let received = next(&mut lagging).await.unwrap();
    let received: serde_json::Value = serde_json::from_slice(&received).unwrap();
    assert_eq!(
        (&received["type"], &received["object"]["code"]),
        (&"ERROR".into(), &410.into())
    );
    assert!(next(&mut lagging).await.is_none());
}

/// Replicas count their changes from the times at which they started, which are close to each
/// other: a version of one used to be valid at another, and deletions were missed.
#[tokio::test(start_paused = true)]
async fn a_version_of_another_replica_is_expired() {
    let apis = [1, 2].map(|replica| Harness::replica(Limits::default(), replica));
    let versions = apis.each_ref().map(|api| {
        publish(api, "n", None, &[one("p", 1), one("q", 1)]);
        let (_, list) = open_envelope(&all(PROTOBUF).list(api, "pods"));
        text_of(&decode(&bytes_of(&list, 1)[0]), 2)
    });
    publish(&apis[0], "n", None, &[one("q", 1)]);
    let resume =
        |api: usize, version: usize| all(JSON).watch(&apis[api], "pods", &versions[version], None);
    assert!(resume(0, 0).is_ok() && resume(1, 1).is_ok());
    for (api, version) in [(0, 1), (1, 0)] {
        assert!(matches!(
            resume(api, version),
            Err(StatusError::Expired { .. })
        ));
    }
}

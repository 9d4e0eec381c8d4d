use kubevitals_model::SteppedClock;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn store(limits: HistoryLimits) -> Store {
    let clock = SteppedClock::new(Timestamp::from_unix_millis(1_700_000_000_000)).clock();
    Store::new(limits, clock, 1)
}

fn pod(name: &str, phase: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"phase": phase}},
           "status": {"phase": phase}})
}

fn names(store: &Store, at: Option<u64>) -> Result<Vec<(String, u64)>, Expired> {
    let page = store.snapshot(&Query::all(Resource::Pods), at, None, 0)?;
    Ok(page
        .records
        .iter()
        .map(|r| (r.name().to_owned(), r.version()))
        .collect())
}

#[test]
fn objects_are_stamped_and_keep_their_identity() {
    let store = store(HistoryLimits::default());
    store.create(Resource::Pods, pod("a", "Pending")).unwrap();
    let info = resources::info(Resource::Pods);
    let first = store.get(Resource::Pods, "default/a").unwrap().value(info);
    assert_eq!(
        first["metadata"]["creationTimestamp"],
        "2023-11-14T22:13:20Z"
    );
    assert_eq!(first["metadata"]["uid"].as_str().unwrap().len(), 36);
    store.replace(Resource::Pods, pod("a", "Running")).unwrap();
    let second = store.get(Resource::Pods, "default/a").unwrap().value(info);
    assert_eq!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(second["metadata"]["resourceVersion"], "2");
}

#[test]
fn writing_the_same_again_changes_nothing() {
    let store = store(HistoryLimits::default());
    let first = store.create(Resource::Pods, pod("a", "Running")).unwrap();
    assert_eq!(
        store.replace(Resource::Pods, pod("a", "Running")),
        Ok(first)
    );
    assert_eq!(store.version(), first);
}

fn text(name: &str, label: &str) -> ObjectText {
    let mut text = ObjectText::default();
    text.begin("default", name);
    text.members()
        .text("creationTimestamp", "2026-01-01T00:00:00Z")
        .object("labels", |members| {
            members.text("tier", label);
        })
        .text("name", name)
        .text("namespace", "default")
        .text("uid", "u");
    text.end_metadata();
    text.members().object("status", |members| {
        members.text("phase", "Running");
    });
    text.end();
    text.label("tier", label);
    for field in ["", "", "", "", "false", "Running", "", ""] {
        text.field(field);
    }
    text
}

#[test]
fn text_and_tree_store_the_same_object() {
    let store = store(HistoryLimits::default());
    let first = store.create_text(Resource::Pods, &text("a", "front"));
    let first = first.unwrap();
    let tree = json!({
        "metadata": {"name": "a", "namespace": "default", "uid": "u", "labels": {"tier": "front"},
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"phase": "Running"},
    });
    assert_eq!(store.replace(Resource::Pods, tree), Ok(first));
    let record = store.get(Resource::Pods, "default/a").unwrap();
    assert_eq!(record.label("tier"), Some("front"));
    assert_eq!((record.field(4), record.field(5)), ("false", "Running"));
    let second = store.replace_text(Resource::Pods, &text("a", "back"));
    assert_eq!(second, Ok(first + 1));
}

#[test]
fn invalid_text_is_rejected() {
    let store = store(HistoryLimits::default());
    store
        .create_text(Resource::Pods, &text("a", "front"))
        .unwrap();
    let again = store.create_text(Resource::Pods, &text("a", "front"));
    assert!(matches!(again, Err(WriteError::AlreadyExists { .. })));
    let absent = store.replace_text(Resource::Pods, &text("b", "front"));
    assert!(matches!(absent, Err(WriteError::NotFound { .. })));
    for flawed in [text("", "x"), text("a/b", "x"), text("b", "\0")] {
        let rejected = store.create_text(Resource::Pods, &flawed);
        assert!(matches!(rejected, Err(WriteError::Invalid { .. })));
    }
    let blank = store.create_text(Resource::Pods, &ObjectText::default());
    assert!(matches!(blank, Err(WriteError::Invalid { .. })));
    assert_eq!(store.count(Resource::Pods), 1);
}

#[test]
fn writes_with_failed_preconditions_are_rejected() {
    let store = store(HistoryLimits::default());
    store.create(Resource::Pods, pod("a", "Running")).unwrap();
    let again = store.create(Resource::Pods, pod("a", "Running"));
    assert!(matches!(again, Err(WriteError::AlreadyExists { .. })));
    let missing = store.replace(Resource::Pods, pod("b", "Running"));
    assert!(matches!(missing, Err(WriteError::NotFound { .. })));
    let gone = store.delete(Resource::Pods, Some("default"), "b");
    assert!(matches!(gone, Err(WriteError::NotFound { .. })));
    let node = store.create(Resource::Nodes, pod("n", "Running"));
    assert!(matches!(node, Err(WriteError::Invalid { .. })));
    let object = pod("a", "Failed").as_object().unwrap().clone();
    let stale = store.put(Resource::Pods, object, Precondition::Version(99));
    assert!(matches!(stale, Err(WriteError::Conflict { .. })));
}

#[test]
fn dropped_versions_are_expired() {
    let limits = HistoryLimits {
        changes: 2,
        bytes: usize::MAX,
    };
    let store = store(limits);
    for name in ["a", "b", "c", "d"] {
        store.create(Resource::Pods, pod(name, "Running")).unwrap();
    }
    assert_eq!(store.changes(Resource::Pods, 2, 10).unwrap().0.len(), 2);
    let expired = Expired {
        requested: 1,
        oldest: 2,
    };
    assert_eq!(store.changes(Resource::Pods, 1, 10).unwrap_err(), expired);
    assert_eq!(names(&store, Some(1)), Err(expired));
    store.compact();
    assert!(store.changes(Resource::Pods, 3, 10).is_err());
    assert!(store.changes(Resource::Pods, 4, 10).unwrap().0.is_empty());
}

#[test]
fn the_log_is_bounded_in_bytes() {
    let store = store(HistoryLimits {
        changes: usize::MAX,
        bytes: 2000,
    });
    for round in 0..100 {
        store
            .create(Resource::Pods, pod(&format!("p{round}"), "Running"))
            .unwrap();
    }
    assert!(store.changes(Resource::Pods, 0, 10).is_err());
    let kept = (0..100)
        .find(|v| store.changes(Resource::Pods, *v, 100).is_ok())
        .unwrap();
    assert!((90..100).contains(&kept), "{kept}");
}

#[test]
fn a_namespace_is_a_range_of_keys() {
    let store = store(HistoryLimits::default());
    for (namespace, name) in [
        ("a", "x"),
        ("a-b", "x"),
        ("a0", "x"),
        ("b", "x"),
        ("a", "y"),
    ] {
        let object = json!({"metadata": {"name": name, "namespace": namespace}});
        store.create(Resource::Pods, object).unwrap();
    }
    let query = Query {
        namespace: Some("a".to_owned()),
        ..Query::all(Resource::Pods)
    };
    let keys = |after: Option<&str>, limit| {
        let page = store.snapshot(&query, None, after, limit).unwrap();
        let keys: Vec<String> = page.records.iter().map(|r| r.key().to_string()).collect();
        (keys, page.more)
    };
    assert_eq!(
        keys(None, 0),
        (vec!["a/x".to_owned(), "a/y".to_owned()], None)
    );
    assert_eq!(
        keys(None, 1),
        (vec!["a/x".to_owned()], Some((Arc::from("a/x"), 1)))
    );
    assert_eq!(keys(Some("a/x"), 1), (vec!["a/y".to_owned()], None));
    // A forged token stays inside the namespace.
    assert_eq!(keys(Some("0"), 0).0.len(), 2);
    assert_eq!(keys(Some("z"), 0).0.len(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Create(u8),
    Replace(u8, u8),
    Delete(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6_u8).prop_map(Step::Create),
        (0..6_u8, 0..3_u8).prop_map(|(name, phase)| Step::Replace(name, phase)),
        (0..6_u8).prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    /// For every version: the list at that version plus the changes since is the current list.
    #[test]
    fn a_list_plus_later_changes_is_the_current_list(steps in steps()) {
        let store = store(HistoryLimits::default());
        let mut recorded = vec![(0, Vec::new())];
        for step in steps {
            // Rejected steps must change nothing either.
            let _ = match step {
                Step::Create(name) => store.create(Resource::Pods, pod(&format!("p{name}"), "New")),
                Step::Replace(name, phase) => {
                    store.replace(Resource::Pods, pod(&format!("p{name}"), &format!("x{phase}")))
                }
                Step::Delete(name) => store.delete(Resource::Pods, Some("default"), &format!("p{name}")),
            };
            if recorded.last().unwrap().0 < store.version() {
                recorded.push((store.version(), names(&store, None).unwrap()));
            }
        }
        let present = names(&store, None).unwrap();
        for (version, then) in recorded {
            prop_assert_eq!(&names(&store, Some(version)).unwrap(), &then);
            let mut replayed: BTreeMap<String, u64> = then.into_iter().collect();
            let (changes, _) = store.changes(Resource::Pods, version, usize::MAX).unwrap();
            for change in changes {
                let name = change.record().unwrap().name().to_owned();
                prop_assert_eq!(change.previous.is_some(), replayed.contains_key(&name));
                match change.current {
                    Some(record) => replayed.insert(name, record.version()),
                    None => replayed.remove(&name),
                };
            }
            prop_assert_eq!(&replayed.into_iter().collect::<Vec<_>>(), &present);
        }
    }
}

//! An event rendered as text equals the one built as a tree of values.

use serde_json::{Map, Value, json};

use super::*;
use crate::workload::render::{tests::assert_same, time};

#[test]
fn text_and_tree_of_an_event_are_equal_for_every_source() {
    let namespace: Arc<str> = "team-001".into();
    let (first, last) = (
        Timestamp::from_unix_millis(1_780_000_000_123),
        Timestamp::from_unix_millis(1_780_000_060_007),
    );
    let uid = Seed::new(3).uid();
    let mut text = ObjectText::default();
    for source in [
        Source::Kubelet("node-00001"),
        Source::Scheduler { action: "Binding" },
        Source::Controller("job-controller"),
    ] {
        for (field_path, warning, count) in [
            (None, false, 1),
            (Some("spec.containers{a}"), true, 1),
            (Some("spec.containers{a}"), true, 24),
        ] {
            let subject = Subject {
                api_version: "v1",
                kind: "Pod",
                namespace: &namespace,
                name: "web-0",
                uid: Seed::new(4).uid(),
                version: 98_765,
                field_path,
            };
            let event_text = EventText {
                warning,
                reason: "Unhealthy",
                message: "Readiness probe failed: cat: can't open \"/tmp/ok\"\n",
            };
            let identity = EventIdentity {
                name: "web-0.18a",
                uid,
                count,
                first,
                last,
            };
            event(&identity, &subject, &source, &event_text, &mut text);
            let mut tree = tree(
                identity.name,
                &subject,
                &source,
                &event_text,
                (first, last),
                count,
            );
            tree["metadata"]["uid"] = uid.to_string().into();
            assert_same(Resource::Events, &text, &tree);
        }
    }
}

#[test]
fn a_repeated_event_keeps_its_uid() {
    use crate::store::{HistoryLimits, Store};
    let clock = kubevitals_model::Clock::system();
    let store = Store::new(HistoryLimits::default(), clock, 1);
    let mut recorder = Recorder::new(Seed::new(1), 60_000, 10);
    let namespace: Arc<str> = "default".into();
    let subject = Subject {
        api_version: "v1",
        kind: "Pod",
        namespace: &namespace,
        name: "web",
        uid: Seed::new(4).uid(),
        version: 1,
        field_path: None,
    };
    let event_text = EventText {
        warning: true,
        reason: "BackOff",
        message: "again",
    };
    let mut written = Vec::new();
    let mut record = |recorder: &mut Recorder, at| {
        let source = Source::Kubelet("node");
        let now = Timestamp::from_unix_millis(at);
        recorder.record(&store, &mut written, &subject, &source, &event_text, now)
    };
    let stored = || {
        let query = crate::store::Query::all(Resource::Events);
        let page = store.snapshot(&query, None, None, 0).unwrap();
        let info = crate::api::resources::info(Resource::Events);
        let events: Vec<Value> = page.records.iter().map(|r| r.value(info)).collect();
        events
    };
    assert_eq!(record(&mut recorder, 0), 1);
    let first = stored();
    assert_eq!(record(&mut recorder, 5_000), 2);
    let second = stored();
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_eq!(second[0]["metadata"]["uid"], first[0]["metadata"]["uid"]);
    assert_eq!(
        (&first[0]["count"], &second[0]["count"]),
        (&json!(1), &json!(2))
    );
}

/// The whole object as a tree.
fn tree(
    name: &str,
    subject: &Subject<'_>,
    source: &Source<'_>,
    event_text: &EventText<'_>,
    (first, last): (Timestamp, Timestamp),
    count: u32,
) -> Value {
    let mut involved = json!({
        "kind": subject.kind,
        "namespace": &**subject.namespace,
        "name": subject.name,
        "uid": subject.uid.to_string(),
        "apiVersion": subject.api_version,
        "resourceVersion": subject.version.to_string(),
    });
    if let (Some(path), Some(involved)) = (subject.field_path, involved.as_object_mut()) {
        involved.insert("fieldPath".into(), path.into());
    }
    let mut fields = Map::new();
    fields.insert("kind".into(), "Event".into());
    fields.insert("apiVersion".into(), "v1".into());
    fields.insert(
        "metadata".into(),
        json!({"name": name, "namespace": &**subject.namespace, "creationTimestamp": time(first)}),
    );
    fields.insert("involvedObject".into(), involved);
    fields.insert("reason".into(), event_text.reason.into());
    fields.insert("message".into(), event_text.message.into());
    let kind = if event_text.warning {
        "Warning"
    } else {
        "Normal"
    };
    fields.insert("type".into(), kind.into());
    let (component, instance) = match source {
        Source::Kubelet(node) => {
            fields.insert(
                "source".into(),
                json!({"component": "kubelet", "host": node}),
            );
            ("kubelet", *node)
        }
        Source::Controller(component) => {
            fields.insert("source".into(), json!({"component": component}));
            (*component, "")
        }
        Source::Scheduler { action } => {
            fields.insert("source".into(), json!({}));
            fields.insert("action".into(), (*action).into());
            ("default-scheduler", "default-scheduler-sim")
        }
    };
    fields.insert("reportingComponent".into(), component.into());
    fields.insert("reportingInstance".into(), instance.into());
    if let Source::Scheduler { .. } = source {
        // metav1.MicroTime: six digits, whatever the resolution of the clock.
        let millis = last.rfc3339_millis();
        let micros = format!("{}000Z", millis.as_str().trim_end_matches('Z'));
        fields.insert("eventTime".into(), micros.into());
        fields.insert("firstTimestamp".into(), Value::Null);
        fields.insert("lastTimestamp".into(), Value::Null);
    } else {
        fields.insert("eventTime".into(), Value::Null);
        fields.insert("firstTimestamp".into(), time(first));
        fields.insert("lastTimestamp".into(), time(last));
        fields.insert("count".into(), count.into());
    }
    fields.into()
}

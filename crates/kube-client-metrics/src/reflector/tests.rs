use std::sync::Mutex;

use super::*;

/// The calls of the hook, as text.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

impl ReflectorMetrics for Recorder {
    fn list_started(&self) {
        self.note("list".to_owned());
    }

    fn list_finished(&self, _: Duration, items: u64) {
        self.note(format!("listed {items}"));
    }

    fn watch_started(&self) {
        self.note("watch".to_owned());
    }

    fn watch_finished(&self, _: Duration, items: u64, short: bool) {
        self.note(format!("watched {items}, short: {short}"));
    }

    fn last_resource_version(&self, version: u64) {
        self.note(format!("at {version}"));
    }
}

fn reflector() -> (Reflector, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let metrics = Arc::clone(&recorder) as Arc<dyn ReflectorMetrics>;
    (Reflector { metrics }, recorder)
}

#[test]
fn lists_and_watches_are_reported_from_start_to_end() {
    let (reflector, calls) = reflector();
    drop(reflector.list());
    reflector.list().complete(3);
    reflector.seen("17");
    reflector.seen("not a number");
    drop(reflector.watch());
    let mut watch = reflector.watch();
    watch.received(2);
    watch.received(5);
    drop(watch);
    let calls = calls.0.lock().unwrap();
    assert_eq!(
        *calls,
        [
            "list",
            "list",
            "listed 3",
            "at 17",
            "watch",
            "watched 0, short: true",
            "watch",
            "watched 7, short: false"
        ]
    );
}

#[test]
fn a_watch_is_short_only_without_events_and_under_a_second() {
    let (reflector, calls) = reflector();
    for (lasted, events) in [(999, 0), (1_000, 0), (999, 1)] {
        report_watch(&*reflector.metrics, Duration::from_millis(lasted), events);
    }
    let calls = calls.0.lock().unwrap();
    let short: Vec<bool> = calls.iter().map(|line| line.ends_with("true")).collect();
    assert_eq!(short, [true, false, false]);
}

#[cfg(feature = "runtime")]
#[tokio::test]
async fn a_watchers_stream_passes_unchanged() {
    use futures_util::{StreamExt as _, stream};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher::{Error, Event};

    let at = |version: &str| {
        let mut object = ConfigMap::default();
        object.metadata.resource_version = Some(version.to_owned());
        object
    };
    let (reflector, calls) = reflector();
    let events = [
        Ok(Event::Init),
        Ok(Event::InitApply(at("1"))),
        // The list starts again.
        Ok(Event::Init),
        Ok(Event::InitApply(at("1"))),
        Ok(Event::InitApply(at("2"))),
        Ok(Event::InitDone),
        Ok(Event::Apply(at("7"))),
        Err(Error::NoResourceVersion),
        Ok(Event::Delete(at("8"))),
    ];
    let passed: Vec<_> = reflector.observe(stream::iter(events)).collect().await;
    assert_eq!(passed.len(), 9);
    let calls = calls.0.lock().unwrap();
    assert_eq!(*calls, ["list", "list", "listed 2", "at 7", "at 8"]);
}

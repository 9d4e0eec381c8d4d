//! kube's applier on in-memory streams, with paused time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::runtime::controller::{self, Config};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube_client_metrics::Registry;
use tokio::sync::mpsc;
use tokio::time::{advance, timeout};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(100);

type Trigger = Result<ObjectRef<ConfigMap>, Infallible>;

/// A queue with its triggers and metrics.
struct Harness {
    registry: Registry,
    queue: Workqueue,
    writer: Writer<ConfigMap>,
    triggers: mpsc::Sender<Trigger>,
    triggered: BoxStream<'static, Trigger>,
}

#[derive(Debug, thiserror::Error)]
#[error("not today")]
struct NotToday;

impl Harness {
    fn new(objects: &[&str]) -> Self {
        let registry = Registry::new();
        let mut writer = Writer::new(());
        writer.apply_watcher_event(&Event::Init);
        for name in objects {
            writer.apply_watcher_event(&Event::InitApply(object(name)));
        }
        writer.apply_watcher_event(&Event::InitDone);
        let (triggers, mut triggered) = mpsc::channel(100);
        let triggered = stream::poll_fn(move |context| triggered.poll_recv(context)).boxed();
        Self {
            queue: Workqueue::new("q", &registry.hooks()),
            registry,
            writer,
            triggers,
            triggered,
        }
    }

    fn store(&self) -> Store<ConfigMap> {
        self.writer.as_reader()
    }
}

fn object(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn trigger(triggers: &mpsc::Sender<Trigger>, name: &str) {
    let named = ObjectRef::new(name).within("default");
    triggers.try_send(Ok(named)).unwrap();
}

/// The samples of the queue, by family.
fn samples(registry: &Registry) -> HashMap<String, f64> {
    let text = registry.encode();
    let lines = text.lines().filter(|line| line.contains("{name=\"q\"}"));
    lines
        .map(|line| {
            let (name, value) = line.split_once("{name=\"q\"} ").unwrap();
            let name = name.trim_start_matches("workqueue_").to_owned();
            (name, value.parse().unwrap())
        })
        .collect()
}

#[track_caller]
fn assert_samples(registry: &Registry, wanted: &[(&str, f64)]) {
    let samples = samples(registry);
    for (name, value) in wanted {
        let found = samples.get(*name);
        assert!(
            found.is_some_and(|found| (found - value).abs() < 0.01),
            "{name} is {found:?}, not {value}: {samples:?}"
        );
    }
}

/// Polls the stream until the paused clock has advanced by this time.
async fn pass(stream: &mut (impl Stream + Unpin), time: Duration) {
    let _ = timeout(time, async { while stream.next().await.is_some() {} }).await;
}

#[tokio::test(start_paused = true)]
async fn triggers_delays_and_limits_are_counted_as_in_client_go() {
    let harness = Harness::new(&["a", "b"]);
    let store = harness.store();
    let stream = harness.queue.applier(
        |_: Arc<ConfigMap>, _: Arc<()>| {
            Box::pin(async {
                tokio::time::sleep(4 * SECOND).await;
                Ok::<_, Infallible>(Action::requeue(10 * SECOND))
            })
        },
        |_, _, _| Action::await_change(),
        Arc::new(()),
        store,
        harness.triggered,
        Config::default().concurrency(1),
    );
    let mut stream = pin!(stream);
    for name in ["a", "b", "b", "a"] {
        trigger(&harness.triggers, name);
    }
    // One of the two is in progress, the other is queued; each was triggered twice. Unfinished work
    // is reported every half second: it is read in between.
    pass(&mut stream, SECOND + BETWEEN).await;
    assert_samples(&harness.registry, &[("adds_total", 2.0), ("depth", 1.0)]);
    pass(&mut stream, 2 * SECOND).await;
    assert_samples(
        &harness.registry,
        &[
            ("unfinished_work_seconds", 3.0),
            ("longest_running_processor_seconds", 3.0),
            ("queue_duration_seconds_count", 1.0),
        ],
    );
    // Both are done at 8 s, and due again at 14 s and 18 s.
    pass(&mut stream, 7 * SECOND).await;
    assert_samples(
        &harness.registry,
        &[
            ("adds_total", 2.0),
            ("depth", 0.0),
            ("retries_total", 2.0),
            ("work_duration_seconds_count", 2.0),
            ("work_duration_seconds_sum", 8.0),
            ("queue_duration_seconds_sum", 4.0),
            ("unfinished_work_seconds", 0.0),
            ("longest_running_processor_seconds", 0.0),
        ],
    );
    // The first is in progress from 14 s to 18 s, when the second is due.
    pass(&mut stream, 6 * SECOND).await;
    assert_samples(&harness.registry, &[("adds_total", 3.0), ("depth", 0.0)]);
    // A trigger in the meantime is queued until the end of the work.
    trigger(&harness.triggers, "a");
    trigger(&harness.triggers, "b");
    pass(&mut stream, SECOND).await;
    assert_samples(&harness.registry, &[("adds_total", 5.0), ("depth", 2.0)]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_object_that_is_due_counts_as_queued() {
    let harness = Harness::new(&["quick", "slow"]);
    let store = harness.store();
    let stream = harness.queue.applier(
        |object: Arc<ConfigMap>, _: Arc<()>| {
            Box::pin(async move {
                if object.metadata.name.as_deref() == Some("slow") {
                    tokio::time::sleep(100 * SECOND).await;
                }
                Ok::<_, Infallible>(Action::requeue(5 * SECOND))
            })
        },
        |_, _, _| Action::await_change(),
        Arc::new(()),
        store,
        harness.triggered,
        Config::default().concurrency(1),
    );
    let mut stream = pin!(stream);
    trigger(&harness.triggers, "quick");
    pass(&mut stream, SECOND).await;
    trigger(&harness.triggers, "slow");
    pass(&mut stream, 3 * SECOND).await;
    assert_samples(&harness.registry, &[("adds_total", 2.0), ("depth", 0.0)]);
    // Its delay ends at 5 s, but the only worker is busy.
    pass(&mut stream, 3 * SECOND).await;
    assert_samples(&harness.registry, &[("adds_total", 3.0), ("depth", 1.0)]);
    pass(&mut stream, 95 * SECOND).await;
    let waited = samples(&harness.registry)["queue_duration_seconds_sum"];
    assert!((waited - 96.0).abs() < 0.1, "{waited}");
}

#[tokio::test(start_paused = true)]
async fn failures_are_retries_and_kubes_own_action_is_counted() {
    let harness = Harness::new(&["a"]);
    let store = harness.store();
    let stream = harness.queue.applier(
        |_: Arc<ConfigMap>, _: Arc<()>| Box::pin(async { Err::<controller::Action, _>(NotToday) }),
        |_, _, _| controller::Action::requeue(SECOND),
        Arc::new(()),
        store,
        harness.triggered,
        Config::default(),
    );
    let mut stream = pin!(stream);
    trigger(&harness.triggers, "a");
    pass(&mut stream, Duration::from_millis(3_500)).await;
    assert_samples(
        &harness.registry,
        &[
            ("retries_total", 4.0),
            ("adds_total", 4.0),
            ("depth", 0.0),
            ("work_duration_seconds_count", 4.0),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_left_the_store_is_started_and_done() {
    let harness = Harness::new(&[]);
    let store = harness.store();
    let stream = harness.queue.applier(
        |_: Arc<ConfigMap>, _: Arc<()>| {
            Box::pin(async { Ok::<_, Infallible>(Action::await_change()) })
        },
        |_, _, _| Action::await_change(),
        Arc::new(()),
        store,
        harness.triggered,
        Config::default(),
    );
    let mut stream = pin!(stream);
    trigger(&harness.triggers, "a");
    assert!(matches!(
        stream.next().await,
        Some(Err(controller::Error::ObjectNotFound(_)))
    ));
    assert_samples(
        &harness.registry,
        &[
            ("adds_total", 1.0),
            ("depth", 0.0),
            ("work_duration_seconds_count", 1.0),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_queue_is_empty_and_its_work_has_ended() {
    let harness = Harness::new(&["a", "b"]);
    let store = harness.store();
    let mut stream = Box::pin(harness.queue.applier(
        |_: Arc<ConfigMap>, _: Arc<()>| {
            Box::pin(std::future::pending::<Result<Action, Infallible>>())
        },
        |_, _, _| Action::await_change(),
        Arc::new(()),
        store,
        harness.triggered,
        Config::default().concurrency(1),
    ));
    trigger(&harness.triggers, "a");
    trigger(&harness.triggers, "b");
    pass(&mut stream, 2 * SECOND + BETWEEN).await;
    assert_samples(
        &harness.registry,
        &[("depth", 1.0), ("unfinished_work_seconds", 2.0)],
    );
    drop(stream);
    // The task that reports is woken, and ends.
    advance(SECOND).await;
    tokio::task::yield_now().await;
    assert_samples(
        &harness.registry,
        &[
            ("depth", 0.0),
            ("unfinished_work_seconds", 0.0),
            ("work_duration_seconds_count", 1.0),
            ("work_duration_seconds_sum", 2.1),
        ],
    );
}

#[test]
fn a_controller_is_send() {
    fn assert_send<T: Send>(_: impl FnOnce() -> T) {}
    assert_send(|| -> Controller<ConfigMap> { panic!("only its type is checked") });
}

#[tokio::test(start_paused = true)]
async fn streams_of_the_program_trigger_as_those_of_an_api() {
    fn owned(owner: &str) -> ConfigMap {
        let mut child = object("child");
        child.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: owner.to_owned(),
            ..OwnerReference::default()
        }]);
        child
    }
    let names = ["self", "owner", "shared-owner", "mapped", "shared-mapped"];
    let harness = Harness::new(&names);
    let named = |name: &'static str| move |_| [ObjectRef::new(name).within("default")];
    let controller = Controller::for_shared_stream(
        "streams",
        &harness.registry.hooks(),
        stream::iter([Arc::new(object("self"))]).chain(stream::pending()),
        harness.store(),
    )
    .owns_stream(stream::iter([Ok(owned("owner"))]).chain(stream::pending()))
    .owns_shared_stream(stream::iter([Arc::new(owned("shared-owner"))]).chain(stream::pending()))
    .watches_stream(
        stream::iter([Ok(object("other"))]).chain(stream::pending()),
        move |other: ConfigMap| named("mapped")(other.metadata),
    )
    .watches_shared_stream(
        stream::iter([Arc::new(object("other"))]).chain(stream::pending()),
        move |other: Arc<ConfigMap>| named("shared-mapped")(other.metadata.clone()),
    )
    .run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Infallible>(Action::await_change()),
        |_, _, _| Action::await_change(),
        Arc::new(()),
    );
    let reconciled = controller
        .take(names.len())
        .map(|item| item.unwrap().0.name);
    let mut reconciled: Vec<String> = reconciled.collect().await;
    reconciled.sort();
    let mut names = names.to_vec();
    names.sort_unstable();
    assert_eq!(reconciled, names);
    let text = harness.registry.encode();
    for line in [
        "workqueue_adds_total{name=\"streams\"} 5",
        "controller_runtime_reconcile_total{controller=\"streams\",result=\"success\"} 5",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// controller-runtime's counts of all ends.
#[tokio::test(start_paused = true)]
async fn results_of_reconciliations_are_counted() {
    let harness = Harness::new(&["ok", "later", "fails", "panics"]);
    let objects = stream::iter(["ok", "later", "fails", "gone"].map(|name| Ok(object(name))));
    // Its panic ends kube's applier with a panic: last.
    let last = stream::once(async {
        tokio::time::sleep(SECOND).await;
        Ok(object("panics"))
    });
    let controller = Controller::for_stream(
        "results",
        &harness.registry.hooks(),
        objects.chain(last).chain(stream::pending()),
        harness.store(),
    )
    .concurrency(2)
    .run(
        async |object: Arc<ConfigMap>, _: Arc<()>| match object.metadata.name.as_deref() {
            Some("ok") => Ok(Action::await_change()),
            Some("later") => Ok(Action::requeue(600 * SECOND)),
            Some("fails") => Err(NotToday),
            _ => panic!("a bug"),
        },
        |_, _, _| Action::await_change(),
        Arc::new(()),
    );
    let running = tokio::spawn(controller.for_each(|_| std::future::ready(())));
    let ended = timeout(10 * SECOND, running).await;
    assert!(ended.unwrap().unwrap_err().is_panic());
    let text = harness.registry.encode();
    for line in [
        "reconcile_total{controller=\"results\",result=\"success\"} 1",
        "reconcile_total{controller=\"results\",result=\"requeue_after\"} 1",
        "reconcile_total{controller=\"results\",result=\"error\"} 2",
        "reconcile_errors_total{controller=\"results\"} 2",
        "reconcile_panics_total{controller=\"results\"} 1",
        "active_workers{controller=\"results\"} 0",
        "max_concurrent_reconciles{controller=\"results\"} 2",
    ] {
        assert!(
            text.contains(&format!("controller_runtime_{line}")),
            "{line}\n{text}"
        );
    }
}

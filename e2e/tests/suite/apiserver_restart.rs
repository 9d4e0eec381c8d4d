//! Our watch across a restart of the real API server.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kubevitals_e2e::{Cluster, Stop, TestNamespace};
use kubevitals_model::{PodSummary, Timestamp};
use kubevitals_watch::{
    Change, KubeTransport, Mirror, ObjectEvent, Subscription, WatchClient, WatchSpec,
};
use serde_json::{Value, json};

use crate::in_time;

/// Interval of writes while the server is down, and of retries.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Counts the creations and deletions of each pod that a subscriber receives.
#[derive(Default)]
struct Observer {
    mirror: Mirror<PodSummary>,
    lifecycles: BTreeMap<String, Lifecycle>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lifecycle {
    created: u32,
    deleted: u32,
}

impl Observer {
    /// Reads the first update: from here on every change must be observed.
    async fn of(updates: &mut Subscription<PodSummary>) -> Self {
        let mut observer = Self::default();
        observer.take(updates, "the first list").await;
        assert!(observer.mirror.is_empty(), "the namespace is new");
        observer
    }

    /// Reads updates until the predicate holds for a pod.
    async fn until(
        &mut self,
        updates: &mut Subscription<PodSummary>,
        pod: &str,
        is_wanted: impl Fn(Lifecycle) -> bool,
    ) {
        while !is_wanted(self.life(pod)) {
            self.take(updates, pod).await;
        }
    }

    async fn take(&mut self, updates: &mut Subscription<PodSummary>, awaited: &str) {
        let update = in_time(awaited, updates.next()).await;
        let update = update.expect("the stream runs");
        for change in self.mirror.apply(update, Timestamp::from_unix_millis(0)) {
            self.note(&change);
        }
    }

    fn note(&mut self, change: &Change<PodSummary>) {
        let (pod, begun, ended) = match &change.event {
            ObjectEvent::Added(pod) => (pod, 1, 0),
            ObjectEvent::Modified { now, .. } => (now, 0, 0),
            ObjectEvent::Deleted(pod) => (pod, 0, 1),
        };
        let life = self
            .lifecycles
            .entry(pod.identity.name.to_string())
            .or_default();
        life.created += begun;
        life.deleted += ended;
    }

    fn life(&self, pod: &str) -> Lifecycle {
        self.lifecycles.get(pod).copied().unwrap_or_default()
    }
}

/// Returns a pod of an unknown scheduler: it is deleted at once, and only the test changes it.
fn unscheduled(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "none", "image": "kubevitals.test/none"}],
        },
    })
}

/// Creates a pod, with retries while the server is down.
async fn create(namespace: &TestNamespace, name: &str) {
    let created = async {
        while namespace.apply(&unscheduled(name)).await.is_err() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    };
    in_time(&format!("creating {name}"), created).await;
}

/// Deletes a pod, with retries while the server is down. After a lost response a retry returns "not
/// found".
async fn delete(namespace: &TestNamespace, name: &str) {
    let deleted = async {
        loop {
            match namespace
                .api::<Pod>()
                .delete(name, &DeleteParams::default())
                .await
            {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    };
    in_time(&format!("deleting {name}"), deleted).await;
}

/// Returns name, UID and resource version of every pod in a new list.
async fn listed(namespace: &TestNamespace) -> BTreeSet<[String; 3]> {
    let list = namespace
        .api::<Pod>()
        .list(&ListParams::default())
        .await
        .unwrap();
    let identity = |pod: Pod| {
        let meta = pod.metadata;
        [meta.name, meta.uid, meta.resource_version].map(Option::unwrap)
    };
    list.into_iter().map(identity).collect()
}

#[tokio::test]
async fn a_restart_of_the_api_server_loses_nothing() -> anyhow::Result<()> {
    nothing_is_lost("restart", Stop::Terminate).await
}

#[tokio::test]
async fn a_crash_of_the_api_server_loses_nothing() -> anyhow::Result<()> {
    nothing_is_lost("crash", Stop::Kill).await
}

async fn nothing_is_lost(name: &str, stop: Stop) -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let alone = cluster.exclusive().await;
    let namespace = cluster.namespace(name).await?;
    let server = WatchClient::new(KubeTransport::new(cluster.config()).unwrap());
    let pods = server.reflector(WatchSpec::<PodSummary>::new("pods").namespace(namespace.name()));
    let mut updates = pods.subscribe();
    let mut observer = Observer::of(&mut updates).await;

    for name in ["kept", "gone-before", "gone-during", "gone-after"] {
        create(&namespace, name).await;
    }
    delete(&namespace, "gone-before").await;
    observer
        .until(&mut updates, "gone-before", |life| life.deleted == 1)
        .await;

    // While the server restarts, one pod of each pair stays until it is back, the other
    // is deleted at once.
    let is_back = Cell::new(false);
    let restart = async {
        let restarted = cluster.restart(&alone, "kube-apiserver", stop).await;
        is_back.set(true);
        restarted
    };
    let write = async {
        let mut pairs = 0;
        delete(&namespace, "gone-during").await;
        while !is_back.get() || pairs < 3 {
            create(&namespace, &format!("stays-{pairs}")).await;
            create(&namespace, &format!("fleeting-{pairs}")).await;
            delete(&namespace, &format!("fleeting-{pairs}")).await;
            pairs += 1;
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        pairs
    };
    let (restarted, pairs) = tokio::join!(restart, write);
    restarted?;

    delete(&namespace, "gone-after").await;
    for pair in 0..pairs {
        // So that it existed when the watch was re-established.
        observer
            .until(&mut updates, &format!("stays-{pair}"), |life| {
                life.created == 1
            })
            .await;
        if pair > 0 {
            delete(&namespace, &format!("stays-{pair}")).await;
        }
    }
    create(&namespace, "last").await;
    observer
        .until(&mut updates, "last", |life| life.created == 1)
        .await;

    let counts = |created, deleted| Lifecycle { created, deleted };
    let once = counts(1, 1);
    let gone = ["gone-before", "gone-during", "gone-after"].map(str::to_owned);
    for name in gone
        .into_iter()
        .chain((1..pairs).map(|pair| format!("stays-{pair}")))
    {
        assert_eq!(observer.life(&name), once, "{name}");
    }
    // A pod that exists only while no watch is connected is in no list. Every pod that was
    // observed has an observed end.
    for pair in 0..pairs {
        let name = format!("fleeting-{pair}");
        let life = observer.life(&name);
        assert!(
            life == once || life == Lifecycle::default(),
            "{name}: {life:?}"
        );
    }
    let stay = BTreeSet::from(["kept", "stays-0", "last"].map(str::to_owned));
    for name in &stay {
        assert_eq!(observer.life(name), counts(1, 0), "{name}");
    }

    let fresh = listed(&namespace).await;
    let names: BTreeSet<String> = fresh.iter().map(|[name, ..]| name.clone()).collect();
    assert_eq!(names, stay);
    for objects in [pods.objects(), observer.mirror.objects()] {
        let identity = |pod: &PodSummary| {
            let identity = &pod.identity;
            [
                identity.name.to_string(),
                identity.uid.to_string(),
                identity.resource_version.to_string(),
            ]
        };
        let view: BTreeSet<_> = objects.iter().map(|pod| identity(pod)).collect();
        assert_eq!(view, fresh);
    }
    let state = pods.state();
    println!("{pairs} pairs; connections ended: {:?}", state.restarts);
    assert!(
        !state.restarts.is_empty(),
        "the stream did not notice: {state:?}"
    );
    assert_eq!(state.lags, 0, "{state:?}");
    cluster.reconnect(&alone).await?;
    Ok(namespace.finish().await?)
}

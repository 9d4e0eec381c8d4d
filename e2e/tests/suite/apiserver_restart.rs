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

/// Between writes while the server is away, and between tries of one that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// What a subscriber that must see every end was told: how often each pod came and went.
#[derive(Default)]
struct Witness {
    mirror: Mirror<PodSummary>,
    lives: BTreeMap<String, Life>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Life {
    begun: u32,
    ended: u32,
}

impl Witness {
    /// Takes the first update in: from here on nothing may pass unseen.
    async fn of(updates: &mut Subscription<PodSummary>) -> Self {
        let mut witness = Self::default();
        witness.take(updates, "the first list").await;
        assert!(witness.mirror.is_empty(), "the namespace is new");
        witness
    }

    /// Takes updates in until a pod is as wanted.
    async fn until(
        &mut self,
        updates: &mut Subscription<PodSummary>,
        pod: &str,
        is_wanted: impl Fn(Life) -> bool,
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
        let life = self.lives.entry(pod.identity.name.to_string()).or_default();
        life.begun += begun;
        life.ended += ended;
    }

    fn life(&self, pod: &str) -> Life {
        self.lives.get(pod).copied().unwrap_or_default()
    }
}

/// A pod that no scheduler takes: it goes at once when it is deleted, and nobody but the test
/// changes it.
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

/// Creates a pod, however often it takes while the server is away.
async fn create(namespace: &TestNamespace, name: &str) {
    let created = async {
        while namespace.apply(&unscheduled(name)).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    in_time(&format!("creating {name}"), created).await;
}

/// Deletes a pod, however often it takes while the server is away. An answer that was lost comes as
/// "not found" later.
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
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    in_time(&format!("deleting {name}"), deleted).await;
}

/// Name, UID and version of every pod, as a fresh list has them.
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
    nothing_is_lost("restart", Stop::Ask).await
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
    let mut witness = Witness::of(&mut updates).await;

    for name in ["kept", "gone-before", "gone-during", "gone-after"] {
        create(&namespace, name).await;
    }
    delete(&namespace, "gone-before").await;
    witness
        .until(&mut updates, "gone-before", |life| life.ended == 1)
        .await;

    // While the server goes and comes back, one pod of each pair stays until it is back, the other
    // goes at once.
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
            tokio::time::sleep(PAUSE).await;
        }
        pairs
    };
    let (restarted, pairs) = tokio::join!(restart, write);
    restarted?;

    delete(&namespace, "gone-after").await;
    for pair in 0..pairs {
        // So that it is known to have been there when the stream was back.
        witness
            .until(&mut updates, &format!("stays-{pair}"), |life| {
                life.begun == 1
            })
            .await;
        if pair > 0 {
            delete(&namespace, &format!("stays-{pair}")).await;
        }
    }
    create(&namespace, "last").await;
    witness
        .until(&mut updates, "last", |life| life.begun == 1)
        .await;

    let once = Life { begun: 1, ended: 1 };
    let gone = ["gone-before", "gone-during", "gone-after"].map(str::to_owned);
    for name in gone
        .into_iter()
        .chain((1..pairs).map(|pair| format!("stays-{pair}")))
    {
        assert_eq!(witness.life(&name), once, "{name}");
    }
    // Who comes and goes while nobody is connected leaves no trace in a list. Of whom one was told,
    // one is told the end.
    for pair in 0..pairs {
        let name = format!("fleeting-{pair}");
        let life = witness.life(&name);
        assert!(life == once || life == Life::default(), "{name}: {life:?}");
    }
    let stay = BTreeSet::from(["kept", "stays-0", "last"].map(str::to_owned));
    for name in &stay {
        assert_eq!(witness.life(name), Life { begun: 1, ended: 0 }, "{name}");
    }

    let fresh = listed(&namespace).await;
    let names: BTreeSet<String> = fresh.iter().map(|[name, ..]| name.clone()).collect();
    assert_eq!(names, stay);
    for objects in [pods.objects(), witness.mirror.objects()] {
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

//! Connections that end in every way there is, while pods come and go.

use std::collections::BTreeMap;

use kubevitals_model::PodSummary;
use kubevitals_sim::api::{Effect, History, RequestFault};
use kubevitals_sim::objects::Resource as Stored;
use kubevitals_watch::{ObjectEvent, Origin, Reflector, RestartReason};
use serde_json::json;
use tokio::time::timeout;

use super::{
    DEADLINE, Follower, Harness, Requests, connect, count, create, delete, pod, spec, start,
    states, stored,
};

/// One stream of a cluster that churns, and a subscriber that must always end up right.
struct Scene {
    harness: Harness,
    pods: Reflector<PodSummary>,
    requests: Requests,
    follower: Follower<PodSummary>,
}

impl Scene {
    async fn begin() -> Self {
        let harness = Harness::start().await;
        harness.churn(5);
        let (server, requests) = connect(&harness.api().kubeconfig()).await;
        let pods = server.reflector(spec::<PodSummary>("pods"));
        let follower = Follower::new(&pods);
        let mut scene = Self {
            harness,
            pods,
            requests,
            follower,
        };
        scene.settle().await;
        scene
    }

    /// Lets pods come and go, and waits until the subscriber knows them all as they are.
    async fn settle(&mut self) {
        self.harness.churn(3);
        let truth = stored(self.harness.api(), Stored::Pods);
        self.follower.learn(&truth).await;
        assert_eq!(states(&self.pods.objects()), truth);
    }

    /// Waits until connections have ended so often in this way.
    async fn ended(&mut self, why: RestartReason, times: u64) {
        let pods = &self.pods;
        self.requests
            .until(why.as_str(), || count(pods, why) >= times)
            .await;
    }

    /// Makes everything that the stream has seen older than the newest state.
    fn age(&self, name: &str) {
        let map = json!({"metadata": {"name": name, "namespace": "default"}});
        self.harness
            .api()
            .writer()
            .create(Stored::ConfigMaps, map)
            .unwrap();
    }
}

#[tokio::test]
async fn after_every_kind_of_outage_the_cache_is_correct_and_the_reason_is_counted() {
    let mut scene = Scene::begin().await;

    scene.harness.api().drop_watches();
    scene.ended(RestartReason::Ended, 1).await;
    scene.settle().await;

    let api = scene.harness.cluster.api_mut();
    api.restart(History::Keep).await.unwrap();
    scene.ended(RestartReason::ConnectionLost, 1).await;
    scene.settle().await;

    scene.age("before-the-restart");
    let api = scene.harness.cluster.api_mut();
    api.restart(History::Lose).await.unwrap();
    scene.ended(RestartReason::ConnectionLost, 2).await;
    scene.ended(RestartReason::Expired, 1).await;
    scene.settle().await;

    scene.age("before-the-compaction");
    scene.harness.api().expire_history();
    scene.harness.api().drop_watches();
    scene.ended(RestartReason::Ended, 2).await;
    scene.ended(RestartReason::Expired, 2).await;
    scene.settle().await;

    let effects = [
        (Effect::Expired, RestartReason::Expired, 3),
        (Effect::TooManyRequests(0), RestartReason::Throttled, 1),
        (Effect::InternalError, RestartReason::ServerError, 1),
        (Effect::Unavailable, RestartReason::ServerError, 2),
    ];
    for ((effect, why, times), ended) in effects.into_iter().zip(3..) {
        let fault = RequestFault::always(effect).on_verb("watch");
        scene
            .harness
            .api()
            .inject(fault.on_resource("pods").times(1));
        scene.harness.api().drop_watches();
        scene.ended(RestartReason::Ended, ended).await;
        scene.ended(why, times).await;
        scene.settle().await;
    }

    let mut restarts = scene.pods.state().restarts;
    // Whether a pooled connection is used before its end is noticed is up to chance.
    restarts.remove(&RestartReason::Unreachable);
    assert_eq!(
        restarts,
        BTreeMap::from([
            (RestartReason::Ended, 6),
            (RestartReason::ConnectionLost, 2),
            (RestartReason::Expired, 3),
            (RestartReason::Throttled, 1),
            (RestartReason::ServerError, 2),
        ])
    );
    scene.harness.cluster.shutdown().await;
}

#[tokio::test]
async fn objects_deleted_during_an_outage_are_reported_as_deleted() {
    for history in [History::Keep, History::Lose] {
        let mut scene = Scene::begin().await;
        let api = scene.harness.cluster.api_mut();
        api.stop().await;
        scene.ended(RestartReason::ConnectionLost, 1).await;
        scene.ended(RestartReason::Unreachable, 2).await;

        let api = scene.harness.cluster.api_mut();
        let doomed: Vec<_> = api.objects(Stored::Pods).into_iter().take(5).collect();
        for pod in &doomed {
            let text = |member: &str| pod["metadata"][member].as_str().unwrap();
            api.writer()
                .delete(Stored::Pods, Some(text("namespace")), text("name"))
                .unwrap();
        }
        if history == History::Lose {
            api.expire_history();
        }
        scene.follower.changes.clear();
        api.resume().await.unwrap();
        scene.settle().await;

        let seen = match history {
            History::Keep => Origin::Live,
            History::Lose => Origin::Relist,
        };
        for pod in &doomed {
            let uid = pod["metadata"]["uid"].as_str().unwrap();
            let changes = scene.follower.changes.iter().find(|change| {
                matches!(&change.event, ObjectEvent::Deleted(last) if last.identity.uid.to_string() == uid)
            });
            assert_eq!(changes.map(|change| change.origin), Some(seen), "{uid}");
        }
        let expired = u64::from(history == History::Lose);
        assert_eq!(count(&scene.pods, RestartReason::Expired), expired);
        assert_eq!(count(&scene.pods, RestartReason::ConnectionLost), 1);
        scene.harness.cluster.shutdown().await;
    }
}

#[tokio::test]
async fn an_object_recreated_during_an_outage_is_deleted_and_added() {
    let mut sim = start().await;
    create(&sim, pod("a", "n1", "Running", "web"));
    let (server, _requests) = connect(&sim.kubeconfig()).await;
    let pods = server.reflector(spec::<PodSummary>("pods"));
    let mut follower = Follower::new(&pods);
    follower.until("listed", |own| own.mirror.len() == 1).await;
    follower.changes.clear();
    sim.stop().await;
    delete(&sim, "a");
    create(&sim, pod("a", "n2", "Pending", "web"));
    sim.expire_history();
    sim.resume().await.unwrap();
    follower
        .until("changes", |own| own.changes.len() == 2)
        .await;
    assert!(
        matches!(&follower.changes[0].event, ObjectEvent::Deleted(old) if old.node.as_deref() == Some("n1"))
    );
    assert!(
        matches!(&follower.changes[1].event, ObjectEvent::Added(new) if new.node.as_deref() == Some("n2"))
    );
    sim.shutdown().await;
}

/// The state of a quiet watch kept the last error for up to a minute, until the first bookmark.
#[tokio::test]
async fn a_quiet_watch_that_reconnected_has_no_error() {
    let sim = start().await;
    let (server, mut requests) = connect(&sim.kubeconfig()).await;
    let pods = server.reflector(spec::<PodSummary>("pods"));
    super::synced(&pods).await;
    sim.drop_watches();
    requests
        .until("ended", || count(&pods, RestartReason::Ended) == 1)
        .await;
    let connected = async {
        while pods.state().connected.is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, connected).await.unwrap();
    assert_eq!(pods.state().last_error, None);
    sim.shutdown().await;
}

//! kube-rs against the simulated API server.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PartialObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event, watcher};
use kubevitals_sim::api::{History, SimApiHandle};
use kubevitals_sim::objects::Resource;
use tokio::time::timeout;

use crate::support::{DEADLINE, add_pods, sim};

async fn client(sim: &SimApiHandle) -> kube::Client {
    let config = Kubeconfig::from_yaml(&sim.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options)
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Polls a watcher until exactly these pods exist.
async fn follow(
    mut stream: std::pin::Pin<&mut (impl Stream<Item = watcher::Result<Event<Pod>>> + Send)>,
    current: &mut BTreeSet<String>,
    expected: &[&str],
) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let follow = async {
        while *current != expected {
            match stream.next().await.unwrap() {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                    current.insert(pod.metadata.name.unwrap());
                }
                Ok(Event::Delete(pod)) => {
                    current.remove(&pod.metadata.name.unwrap());
                }
                Ok(Event::Init) => current.clear(),
                // A closed connection; the watcher reconnects by itself.
                Ok(Event::InitDone) | Err(_) => {}
            }
        }
    };
    timeout(DEADLINE, follow).await.unwrap();
}

async fn stays_in_sync(config: watcher::Config) {
    let mut sim = sim().await;
    add_pods(&sim, &["a", "b"]);
    let pods: Api<Pod> = Api::namespaced(client(&sim).await, "default");
    let mut stream = pin!(watcher(pods, config));
    let mut current = BTreeSet::new();
    follow(stream.as_mut(), &mut current, &["a", "b"]).await;
    add_pods(&sim, &["c"]);
    follow(stream.as_mut(), &mut current, &["a", "b", "c"]).await;
    sim.drop_watches();
    sim.writer()
        .delete(Resource::Pods, Some("default"), "a")
        .unwrap();
    follow(stream.as_mut(), &mut current, &["b", "c"]).await;
    sim.restart(History::Keep).await.unwrap();
    add_pods(&sim, &["d"]);
    follow(stream.as_mut(), &mut current, &["b", "c", "d"]).await;
    // Deletions during the outage are noticed by the relist.
    sim.stop().await;
    sim.writer()
        .delete(Resource::Pods, Some("default"), "b")
        .unwrap();
    sim.expire_history();
    sim.resume().await.unwrap();
    follow(stream.as_mut(), &mut current, &["c", "d"]).await;
    sim.shutdown().await;
}

#[tokio::test]
async fn a_paging_watcher_stays_in_sync() {
    stays_in_sync(watcher::Config::default()).await;
}

#[tokio::test]
async fn a_streaming_watcher_stays_in_sync() {
    stays_in_sync(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn typed_objects_round_trip() {
    let sim = sim().await;
    let pods: Api<Pod> = Api::namespaced(client(&sim).await, "default");
    let pod: Pod = serde_json::from_value(crate::support::pod("a", "n1")).unwrap();
    let created = pods.create(&PostParams::default(), &pod).await.unwrap();
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Pending"));
    let list = pods
        .list(&ListParams::default().labels("app=a").limit(1))
        .await
        .unwrap();
    assert_eq!(list.items.len(), 1);
    let partial: Api<PartialObjectMeta<Pod>> = Api::namespaced(client(&sim).await, "default");
    assert_eq!(
        partial.get("a").await.unwrap().metadata.name.as_deref(),
        Some("a")
    );
    let missing = pods.get("none").await.unwrap_err();
    assert!(matches!(missing, kube::Error::Api(status) if status.code == 404));
    pods.delete("a", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let stream = watcher(pods, watcher::Config::default()).boxed();
    let first: Vec<_> = timeout(DEADLINE, stream.take(2).try_collect())
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(first.as_slice(), [Event::Init, Event::InitDone]));
    sim.shutdown().await;
}

#[tokio::test]
async fn credentials_of_one_cluster_are_invalid_in_another() {
    let (one, two) = (sim().await, sim().await);
    add_pods(&one, &["a"]);
    assert_eq!(
        (one.count(Resource::Pods), two.count(Resource::Pods)),
        (1, 0)
    );
    let mut config = Kubeconfig::from_yaml(&one.kubeconfig()).unwrap();
    let other = Kubeconfig::from_yaml(&two.kubeconfig()).unwrap();
    config.clusters = other.clusters;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options)
        .await
        .unwrap();
    let pods: Api<Pod> = Api::all(kube::Client::try_from(config).unwrap());
    let rejected = pods.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(rejected, kube::Error::Api(status) if status.code == 401));
    one.shutdown().await;
    two.shutdown().await;
}

//! A pod's whole life, as a subscriber of our watch sees it.

use std::sync::Arc;

use kube::Api;
use kube::api::DeleteParams;
use kubevitals_e2e::{Burner, Cluster};
use kubevitals_model::{Pod, PodPhase};
use kubevitals_watch::{KubeTransport, ObjectEvent, Subscription, Update, WatchClient, WatchSpec};

use crate::in_time;

/// Runs until it is told to end, so that no state passes unseen.
const UNTIL_TOLD: &str = "while [ ! -e /told ]; do sleep 0.1; done";

/// The next state of the pod; `None` once it is gone.
async fn next_state(updates: &mut Subscription<Pod>) -> Option<Arc<Pod>> {
    let update = in_time("a change of the pod", updates.next()).await;
    match update.expect("the stream runs") {
        Update::Resync(again) => panic!("all is told once: {again:?}"),
        Update::Change(change) => match change.event {
            ObjectEvent::Added(now) | ObjectEvent::Modified { now, .. } => Some(now),
            ObjectEvent::Deleted(_) => None,
        },
    }
}

#[tokio::test]
async fn a_pod_is_seen_from_its_creation_to_its_end() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _turn = cluster.shared().await;
    let namespace = cluster.namespace("life").await?;
    let server = WatchClient::new(KubeTransport::new(cluster.config()).unwrap());
    let pods = server.reflector(WatchSpec::<Pod>::new("pods").namespace(namespace.name()));
    let mut updates = pods.subscribe();
    // Taken before the pod is made: whoever asks later is told the pod as it is by then.
    let first = in_time("the first list", updates.next()).await;
    let Some(Update::Resync(all)) = first else {
        panic!("all is told first: {first:?}");
    };
    assert!(all.objects.is_empty(), "the namespace is new: {all:?}");

    namespace
        .apply(&Burner::script("mortal", UNTIL_TOLD))
        .await?;
    let mut seen: Vec<String> = Vec::new();
    while let Some(pod) = next_state(&mut updates).await {
        let brief = &pod.summary;
        assert_eq!(&*brief.identity.name, "mortal");
        let state = match (brief.phase, &brief.node, pod.meta.deleted) {
            (_, _, Some(_)) => "deleting".to_owned(),
            (PodPhase::Pending, Some(node), None) => {
                assert_eq!(&**node, cluster.node_name());
                "scheduled".to_owned()
            }
            (phase, _, None) => format!("{phase:?}"),
        };
        if seen.last() == Some(&state) {
            continue;
        }
        match state.as_str() {
            "Running" => {
                namespace
                    .kubectl(&["exec", "mortal", "--", "touch", "/told"])
                    .await?;
            }
            "Succeeded" => {
                let api: Api<k8s_openapi::api::core::v1::Pod> = namespace.api();
                let deleting = api.delete("mortal", &DeleteParams::default()).await;
                deleting.expect("it was there");
            }
            _ => {}
        }
        seen.push(state);
    }
    // A pod that has ended and has no grace period may go without having been seen to be going.
    seen.retain(|state| state != "deleting");
    assert_eq!(seen, ["Pending", "scheduled", "Running", "Succeeded"]);
    assert!(pods.objects().is_empty());
    Ok(namespace.finish().await?)
}

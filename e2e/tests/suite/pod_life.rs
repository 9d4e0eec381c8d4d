//! The whole lifecycle of a pod, as a subscriber of our watch receives it.

use std::sync::Arc;

use kube::Api;
use kube::api::DeleteParams;
use kubevitals_e2e::{Burner, Cluster};
use kubevitals_model::{Pod, PodPhase};
use kubevitals_watch::{KubeTransport, ObjectEvent, Subscription, Update, WatchClient, WatchSpec};

use crate::in_time;

/// Runs until the test creates a file, so that every state is observed.
const UNTIL_FILE: &str = "while [ ! -e /end ]; do sleep 0.1; done";

/// Returns the next state of the pod; `None` once it is deleted.
async fn next_state(updates: &mut Subscription<Pod>) -> Option<Arc<Pod>> {
    let update = in_time("a change of the pod", updates.next()).await;
    match update.expect("the stream runs") {
        Update::Resync(again) => panic!("unexpected resync: {again:?}"),
        Update::Change(change) => match change.event {
            ObjectEvent::Added(now) | ObjectEvent::Modified { now, .. } => Some(now),
            ObjectEvent::Deleted(_) => None,
        },
    }
}

#[tokio::test]
async fn a_pod_is_observed_from_creation_to_deletion() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("life").await?;
    let server = WatchClient::new(KubeTransport::new(cluster.config()).unwrap());
    let pods = server.reflector(WatchSpec::<Pod>::new("pods").namespace(namespace.name()));
    let mut updates = pods.subscribe();
    // Read before the pod is created: a later subscriber starts with the pod's current state.
    let first = in_time("the first list", updates.next()).await;
    let Some(Update::Resync(all)) = first else {
        panic!("the first update is not a resync: {first:?}");
    };
    assert!(all.objects.is_empty(), "the namespace is new: {all:?}");

    namespace
        .apply(&Burner::script("mortal", UNTIL_FILE))
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
                    .kubectl(&["exec", "mortal", "--", "touch", "/end"])
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
    // A pod that has ended and has no grace period may be deleted without a deletion timestamp.
    seen.retain(|state| state != "deleting");
    assert_eq!(seen, ["Pending", "scheduled", "Running", "Succeeded"]);
    assert!(pods.objects().is_empty());
    Ok(namespace.finish().await?)
}

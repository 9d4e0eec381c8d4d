//! Streams of some objects only.

use kubevitals_model::PodSummary;
use kubevitals_sim::api::SimApiHandle;
use kubevitals_sim::objects::Resource as Stored;
use kubevitals_watch::{RestartReason, WatchClient, WatchSpec};

use super::{Follower, connect, count, create, delete, pod, replace, spec, start, stored, synced};

/// Pods in every combination of two nodes, two phases and two applications.
fn fill(sim: &SimApiHandle) {
    for node in ["n1", "n2"] {
        for phase in ["Running", "Pending"] {
            for app in ["web", "db"] {
                let name = format!("{node}-{app}-{}", phase.to_lowercase());
                create(sim, pod(&name, node, phase, app));
            }
        }
    }
}

async fn names(server: &WatchClient, spec: WatchSpec<PodSummary>) -> Vec<String> {
    let pods = server.reflector(spec);
    synced(&pods).await;
    let mut names: Vec<String> = pods
        .objects()
        .iter()
        .map(|pod| pod.identity.name.to_string())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn selectors_reach_the_server_by_streaming_and_by_pages() {
    let sim = start().await;
    fill(&sim);
    for refused in [false, true] {
        sim.reject_streaming_lists(refused);
        let (server, requests) = connect(&sim.kubeconfig()).await;
        let of_node = names(&server, spec("pods").fields("spec.nodeName=n1")).await;
        assert_eq!(
            of_node,
            [
                "n1-db-pending",
                "n1-db-running",
                "n1-web-pending",
                "n1-web-running"
            ]
        );
        let running = spec("pods")
            .fields("status.phase=Running,spec.nodeName!=n1")
            .labels("app in (web),!no-such");
        assert_eq!(names(&server, running).await, ["n2-web-running"]);
        let none = spec("pods").namespace("elsewhere");
        assert!(names(&server, none).await.is_empty());
        let requests = requests.all();
        let expected = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&";
        assert!(requests[0].starts_with(expected), "{requests:?}");
        let pages = requests.iter().filter(|uri| uri.contains("limit="));
        assert_eq!(pages.count(), if refused { 3 } else { 0 }, "{requests:?}");
    }
    sim.shutdown().await;
}

#[tokio::test]
async fn an_object_that_stops_matching_is_reported_as_deleted() {
    let mut sim = start().await;
    fill(&sim);
    let (server, mut requests) = connect(&sim.kubeconfig()).await;
    let selected = spec::<PodSummary>("pods")
        .fields("spec.nodeName=n1,status.phase=Running")
        .labels("app=web");
    let pods = server.reflector(selected);
    let mut follower = Follower::new(&pods);
    follower.until("listed", |own| own.mirror.len() == 1).await;

    // While it is watched.
    replace(&sim, pod("n1-web-running", "n1", "Running", "other"));
    follower.until("left", |own| own.mirror.is_empty()).await;
    replace(&sim, pod("n1-web-pending", "n1", "Running", "web"));
    follower.until("came", |own| own.mirror.len() == 1).await;
    replace(&sim, pod("n1-web-pending", "n1", "Failed", "web"));
    follower.until("left", |own| own.mirror.is_empty()).await;

    // During a gap: once with the history, once without.
    for is_lost in [false, true] {
        replace(&sim, pod("n1-web-pending", "n1", "Running", "web"));
        follower.until("came", |own| own.mirror.len() == 1).await;
        sim.stop().await;
        replace(&sim, pod("n1-web-pending", "n1", "Failed", "web"));
        if is_lost {
            sim.expire_history();
        }
        sim.resume().await.unwrap();
        follower.until("left", |own| own.mirror.is_empty()).await;
    }
    requests
        .until("listed again", || count(&pods, RestartReason::Expired) == 1)
        .await;
    delete(&sim, "n1-web-pending");
    assert_eq!(
        follower.deleted(),
        [
            "default/n1-web-pending",
            "default/n1-web-pending",
            "default/n1-web-pending",
            "default/n1-web-running",
        ]
    );
    assert_eq!(stored(&sim, Stored::Pods).len(), 7);
    sim.shutdown().await;
}

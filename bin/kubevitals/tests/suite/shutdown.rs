//! The end of a server, as a rolling update sees it.

use http::StatusCode;

use crate::server::{PODS, Running, cluster, count};

/// The flag used to have no effect: a rolling update refused connections until all load balancers
/// knew of the end.
#[tokio::test]
async fn requests_are_served_after_sigterm_until_the_delay_is_over() {
    let cluster = cluster(2).await;
    let server = Running::start(
        &cluster,
        &[
            "--shutdown-grace-period=2h",
            "--shutdown-delay-duration=1h",
            "--goaway-chance=0.01",
        ],
    )
    .await;
    let pods = cluster.api().count(kubevitals_sim::objects::Resource::Pods);
    server
        .until(PODS, |_, body| count(body, "\"containers\"") == pods)
        .await;
    server.begin_stop();
    server
        .until("/readyz", |status, _| {
            status == StatusCode::INTERNAL_SERVER_ERROR
        })
        .await;
    let (status, body) = server.get_as_admin(PODS).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(count(&body, "\"containers\""), pods);
    assert_eq!(server.get("/livez", None).await.0, StatusCode::OK);
}

//! More requests than the server accepts, and clients that do not read.

use http::{StatusCode, header};
use kubevitals_model::Clock;
use kubevitals_sim::api::{Rule, User};
use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;

use crate::client::StalledClient;
use crate::server::{Running, cluster_of, count};
use crate::within;

const PODS: &str = "/apis/metrics.k8s.io/v1beta1/pods";
const MAX_IN_FLIGHT: usize = 3;

/// A cluster whose pod list is far larger than all buffers between server and client, and a reader
/// of it.
async fn cluster() -> (SimCluster, String) {
    let cluster = cluster_of(20, 60, Clock::system()).await;
    let verbs = ["get", "list"];
    let api = cluster.api();
    let rule = Rule::for_user("reader", verbs, "metrics.k8s.io", ["pods", "nodes"]);
    api.allow(rule);
    let reader = api.issue_token(User::new("reader", []), None).unwrap();
    (cluster, reader)
}

/// Waits until all pods are served.
async fn until_complete(server: &Running, cluster: &SimCluster) {
    let all = cluster.api().count(Resource::Pods);
    server
        .until(PODS, |status, body| {
            status == StatusCode::OK && count(body, "\"containers\"") == all
        })
        .await;
}

/// Twenty such readers used to hold outdated usage until every other reader got status 429, for as
/// long as they sent other requests now and then.
#[tokio::test]
async fn readers_that_stop_reading_are_cut_and_everybody_else_is_served() {
    const STALLED: usize = 5;
    let (cluster, reader) = cluster().await;
    let flags = ["--request-timeout=2s", "--metric-resolution=5s"];
    let server = Running::start(&cluster, &flags).await;
    until_complete(&server, &cluster).await;
    let url = |path: &str| format!("https://{}{path}", server.address);
    let mut stalled = Vec::new();
    for number in 0..STALLED {
        let path = if number % 2 == 0 {
            PODS.to_owned()
        } else {
            format!("{PODS}?resourceVersion=0")
        };
        let client = StalledClient::list(&url(&path), &server.authority(), &reader).await;
        assert_eq!(client.head.status, StatusCode::OK);
        stalled.push(client);
    }
    let metric = |metrics: &str, name: &str| -> u64 {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().trim().parse().unwrap()
    };
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(50));
    let cut = async {
        loop {
            ticks.tick().await;
            for client in &mut stalled {
                assert!(
                    client.get(&url("/version")).await.is_ok(),
                    "still connected"
                );
            }
            let (status, _) = server.get(PODS, Some(&reader)).await;
            assert_eq!(status, StatusCode::OK);
            let (_, metrics) = server.get_as_admin("/metrics").await;
            let aborted = metric(&metrics, "kubevitals_apiserver_aborted_responses_total");
            let outdated = metric(&metrics, "kubevitals_metrics_api_outdated_bytes");
            if aborted >= STALLED as u64 && outdated == 0 {
                return;
            }
        }
    };
    within("all stalled responses are aborted", cut).await;
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn requests_above_the_in_flight_limit_get_429_with_retry_after() {
    let (cluster, reader) = cluster().await;
    let limit = format!("--max-requests-inflight={MAX_IN_FLIGHT}");
    let server = Running::start(&cluster, &[&limit]).await;
    until_complete(&server, &cluster).await;
    let url = format!("https://{}{PODS}", server.address);
    let authority = server.authority();
    let list = || StalledClient::list(&url, &authority, &reader);

    let mut held = Vec::new();
    for _ in 0..MAX_IN_FLIGHT {
        let stalled = list().await;
        assert_eq!(stalled.head.status, StatusCode::OK);
        held.push(stalled);
    }
    let rejected = list().await;
    assert_eq!(rejected.head.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rejected.head.headers[header::RETRY_AFTER], "1");
    let (status, body) = server.get(PODS, Some(&reader)).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(body.contains("\"reason\":\"TooManyRequests\""), "{body}");

    // Probes and administrators (system:masters) are exempt from the limit.
    let (status, _) = server.get("/livez", None).await;
    assert_eq!(status, StatusCode::OK);
    server.until_served(PODS).await;

    // A request leaves the count as soon as its client is gone.
    drop(held);
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
    let accepted = async {
        loop {
            ticks.tick().await;
            if server.get(PODS, Some(&reader)).await.0 == StatusCode::OK {
                return;
            }
        }
    };
    within("requests are accepted again", accepted).await;
    server.stop().await;
    cluster.shutdown().await;
}

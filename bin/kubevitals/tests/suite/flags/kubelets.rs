//! Flags of scraping.

use http::StatusCode;
use kubevitals_sim::faults::Fault;
use kubevitals_sim::kubelet::Authority;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::{Files, allow, token, watcher};
use crate::DEADLINE;
use crate::server::{NODES, PODS, Running, cluster, count, fail_node};

/// The selector is sent with the watch of nodes.
#[tokio::test]
async fn only_nodes_that_the_selector_matches_are_scraped_and_listed() {
    let cluster = cluster(3).await;
    let selector = "--node-selector=kubernetes.io/hostname in (node-00001)";
    let server = Running::start(&cluster, &[selector]).await;
    let ready = |status: StatusCode, _: &str| status == StatusCode::OK;
    server.until("/readyz", ready).await;
    let nodes = server
        .until(NODES, |_, body| body.contains("\"usage\""))
        .await;
    assert_eq!(count(&nodes, "\"usage\""), 1, "{nodes}");
    assert!(nodes.contains("node-00001"), "{nodes}");
    let (_, metrics) = server.get_as_admin("/metrics").await;
    assert!(metrics.contains("node=\"node-00001\""));
    for other in ["node-00000", "node-00002"] {
        assert!(!metrics.contains(other), "{other} was scraped");
    }
    server.stop().await;
    cluster.shutdown().await;
}

/// Without the flag the node is not scraped. With it the token is sent as well.
#[tokio::test]
async fn insecure_tls_scrapes_a_node_with_an_invalid_certificate() {
    let cluster = cluster(2).await;
    fail_node(&cluster, "node-00000", Fault::ExpiredCertificate);
    let token = token(&cluster, "admin", Some("system:masters"));
    let kubeconfig = cluster.api().kubeconfig_for_token(&token);
    let verifying = Running::start_bare(&cluster, &kubeconfig, &[]).await;
    verifying.until_nodes(1).await;
    verifying.until_failing("node-00000", "certificate").await;
    verifying.stop().await;

    let flags = ["--kubelet-insecure-tls"];
    let insecure = Running::start_bare(&cluster, &kubeconfig, &flags).await;
    insecure.until_nodes(2).await;
    insecure.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_kubelet_of_a_foreign_authority_is_scraped_if_keys_are_pinned() {
    let cluster = cluster(2).await;
    let files = Files::new();
    let foreign = Authority::generate("foreign").unwrap();
    let foreign = files.flag("kubelet-certificate-authority", foreign.certificate_pem());
    let kubeconfig = cluster.api().kubeconfig();
    let strict = Running::start_bare(&cluster, &kubeconfig, &[&foreign]).await;
    strict.until_failing("node-00000", "certificate").await;
    strict.stop().await;

    let flags = [&*foreign, "--kubelet-pin-certificates"];
    let pinning = Running::start_bare(&cluster, &kubeconfig, &flags).await;
    pinning.until_nodes(2).await;
    pinning.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn completely_insecure_sends_plain_http_without_a_token_to_the_port_of_the_flag() {
    let cluster = cluster(1).await;
    // Nodes have addresses of their own in 127.0.0.0/8.
    let kubelet = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = format!("--kubelet-port={}", kubelet.local_addr().unwrap().port());
    let token = token(&cluster, "admin", Some("system:masters"));
    let kubeconfig = cluster.api().kubeconfig_for_token(&token);
    let flags = [
        "--deprecated-kubelet-completely-insecure",
        "--kubelet-use-node-status-port=false",
        &port,
    ];
    let server = Running::start_bare(&cluster, &kubeconfig, &flags).await;
    let head = tokio::time::timeout(DEADLINE, async {
        let (mut stream, _) = kubelet.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    });
    let head = head.await.unwrap();
    assert!(head.starts_with("GET /"), "{head}");
    let head = head.to_lowercase();
    assert!(!head.contains("authorization"), "{head}");
    assert!(head.contains("accept-encoding: gzip"), "{head}");
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn kubelets_see_the_client_certificate_of_the_flags() {
    let cluster = cluster(2).await;
    let files = Files::new();
    let admin = cluster.api().kubeconfig();
    let authentication = files.flag("authentication-kubeconfig", &admin);
    let authorization = files.flag("authorization-kubeconfig", &admin);
    let kubeconfig = watcher(&cluster);
    let flags = [&*authentication, &authorization];
    let without = Running::start_bare(&cluster, &kubeconfig, &flags).await;
    without.until_failing("node-00000", "403").await;
    without.stop().await;

    let reads = ["nodes/metrics", "nodes/stats"];
    allow(&cluster, "scraper", ["get"], "", reads);
    let issued = cluster.api().issue_client_certificate("scraper", None);
    let issued = issued.unwrap();
    let certificate = files.flag("kubelet-client-certificate", &issued.certificate);
    let key = files.flag("kubelet-client-key", &issued.key);
    let flags = [&*authentication, &authorization, &certificate, &key];
    let with = Running::start_bare(&cluster, &kubeconfig, &flags).await;
    with.until_nodes(2).await;
    with.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn extra_resources_are_served_if_the_flag_names_them() {
    let cluster = cluster(1).await;
    let served =
        |status: StatusCode, body: &str| status == StatusCode::OK && body.contains("\"cpu\"");
    let plain = Running::start(&cluster, &[]).await;
    let pods = plain.until(PODS, served).await;
    assert!(!pods.contains("ephemeral-storage"), "{pods}");
    plain.stop().await;

    let flags = ["--extra-resources=ephemeral-storage"];
    let server = Running::start(&cluster, &flags).await;
    server
        .until(PODS, |_, body| body.contains("\"ephemeral-storage\""))
        .await;
    server.stop().await;
    cluster.shutdown().await;
}

/// The timeout was 10 s, and a short resolution was rejected unless it was set too.
#[tokio::test]
async fn a_short_resolution_needs_no_other_flag() {
    let cluster = cluster(1).await;
    let server = Running::start(&cluster, &["--metric-resolution=5s"]).await;
    server.until_nodes(1).await;
    server.stop().await;
    cluster.shutdown().await;
}

/// Kubelets sample every ten seconds or more: with the shortest limit, usage is stale before the
/// next sample. The default would be 30 s.
#[tokio::test]
async fn usage_is_served_for_as_long_as_the_flag_says() {
    let cluster = cluster(1).await;
    let flags = ["--metric-resolution=1s", "--staleness=1s"];
    let server = Running::start(&cluster, &flags).await;
    let is_served =
        |is_served: bool| move |_: StatusCode, body: &str| body.contains("\"usage\"") == is_served;
    server.until(NODES, is_served(true)).await;
    server.until(NODES, is_served(false)).await;
    server.stop().await;
    cluster.shutdown().await;
}

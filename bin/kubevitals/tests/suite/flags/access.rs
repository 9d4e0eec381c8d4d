//! Flags of authentication and authorization.

use std::time::Duration;

use http::StatusCode;
use kubevitals_sim::api::{Effect, RequestFault};

use super::{Files, allow, token, watcher};
use crate::client::Identity;
use crate::server::{PODS, Running, cluster};

fn by_token(token: &str) -> Identity<'_> {
    Identity {
        token: Some(token),
        ..Identity::default()
    }
}

fn is_rejected(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[tokio::test]
async fn client_certificates_are_verified_by_the_cluster_or_by_the_ca_of_the_flag() {
    let cluster = cluster(1).await;
    let files = Files::new();
    let admin = cluster
        .api()
        .issue_client_certificate("bob", Some("system:masters"))
        .unwrap();
    let bob = Identity {
        certificate: Some(&admin),
        ..Identity::default()
    };
    let looked_up = Running::start(&cluster, &[]).await;
    let ready = |status: StatusCode, _: &str| status == StatusCode::OK;
    looked_up.until("/readyz", ready).await;
    assert_eq!(looked_up.status_for(PODS, bob).await, StatusCode::OK);
    looked_up.stop().await;

    let skip = "--authentication-skip-lookup";
    let unknown = Running::start(&cluster, &[skip]).await;
    unknown.until("/readyz", ready).await;
    let status = unknown.status_for(PODS, bob).await;
    assert!(is_rejected(status), "{status}");
    unknown.stop().await;

    let ca = files.flag("client-ca-file", cluster.api().kube_ca_pem());
    let configured = Running::start(&cluster, &[skip, &ca]).await;
    configured.until("/readyz", ready).await;
    assert_eq!(configured.status_for(PODS, bob).await, StatusCode::OK);
    configured.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_front_proxy_is_recognized_by_the_flags() {
    let cluster = cluster(1).await;
    let files = Files::new();
    let ca = files.flag("requestheader-client-ca-file", cluster.api().kube_ca_pem());
    let flags = [
        "--authentication-skip-lookup",
        &ca,
        "--requestheader-allowed-names=other,proxy",
        "--requestheader-username-headers=x-my-user",
        "--requestheader-group-headers=x-my-group",
        "--requestheader-uid-headers=x-my-uid",
        "--requestheader-extra-headers-prefix=x-my-extra-",
    ];
    let server = Running::start(&cluster, &flags).await;
    server.until_ready().await;
    let issue = |name| cluster.api().issue_client_certificate(name, None).unwrap();
    let (proxy, stranger) = (issue("proxy"), issue("stranger"));
    let own = [("x-my-user", "alice"), ("x-my-group", "system:masters")];
    let defaults = [
        ("x-remote-user", "alice"),
        ("x-remote-group", "system:masters"),
    ];
    for (certificate, headers, is_accepted) in [
        (&proxy, &own, true),
        (&proxy, &defaults, false),
        (&stranger, &own, false),
    ] {
        let identity = Identity {
            certificate: Some(certificate),
            headers,
            ..Identity::default()
        };
        let status = server.status_for(PODS, identity).await;
        assert_eq!(
            status == StatusCode::OK,
            is_accepted,
            "{headers:?}: {status}"
        );
        assert!(is_accepted || is_rejected(status), "{headers:?}: {status}");
    }
    server.stop().await;
    cluster.shutdown().await;
}

/// The server's own user may neither review tokens nor access.
#[tokio::test]
async fn reviews_are_sent_with_the_kubeconfigs_of_the_flags() {
    let cluster = cluster(1).await;
    let files = Files::new();
    allow(&cluster, "reader", ["list"], "metrics.k8s.io", ["pods"]);
    let reader = token(&cluster, "reader", None);
    let admin = cluster.api().kubeconfig();
    let authentication = files.flag("authentication-kubeconfig", &admin);
    let authorization = files.flag("authorization-kubeconfig", &admin);
    let kubeconfig = watcher(&cluster);
    let reads = ["nodes/metrics", "nodes/stats"];
    allow(&cluster, "watcher", ["get"], "", reads);
    for (flags, expected) in [
        (&[&*authentication, &authorization][..], true),
        (&[&*authentication], false),
        (&[&*authorization, "--authentication-skip-lookup"], false),
    ] {
        let server = Running::start_bare(&cluster, &kubeconfig, flags).await;
        server.until_ready().await;
        let status = server.status_for(PODS, by_token(&reader)).await;
        assert_eq!(status == StatusCode::OK, expected, "{flags:?}: {status}");
        server.stop().await;
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_failed_lookup_blocks_readiness_unless_it_is_tolerated() {
    let cluster = cluster(1).await;
    let kubeconfig = watcher(&cluster);
    allow(
        &cluster,
        "watcher",
        ["get"],
        "",
        ["nodes/metrics", "nodes/stats"],
    );
    let reviews = [
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    ];
    for (group, resource) in reviews {
        allow(&cluster, "watcher", ["create"], group, [resource]);
    }
    // The ConfigMap with the CAs is not readable for this user.
    let flags = ["--authentication-tolerate-lookup-failure"];
    let server = Running::start_bare(&cluster, &kubeconfig, &flags).await;
    server.until_ready().await;
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn paths_of_the_flag_need_no_authorization() {
    let cluster = cluster(1).await;
    let default = Running::start(&cluster, &[]).await;
    default.until_ready().await;
    let anonymous = Identity::default();
    let status = default.status_for("/metrics", anonymous).await;
    assert!(is_rejected(status), "{status}");
    default.stop().await;

    let flags = ["--authorization-always-allow-paths=/metrics"];
    let server = Running::start(&cluster, &flags).await;
    let status = server.status_for("/metrics", anonymous).await;
    assert_eq!(status, StatusCode::OK);
    server.stop().await;
    cluster.shutdown().await;
}

/// A request that reached its timeout in a handler was cut without a response.
#[tokio::test]
async fn a_request_ends_with_504_at_the_timeout_of_the_flag() {
    let cluster = cluster(1).await;
    let server = Running::start(&cluster, &["--request-timeout=2s"]).await;
    server.until_ready().await;
    let silence = Effect::Delay(Duration::from_mins(5));
    let fault = RequestFault::always(silence).on_resource("tokenreviews");
    cluster.api().inject(fault);
    let alice = token(&cluster, "alice", None);
    let status = server.status_for(PODS, by_token(&alice)).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    server.stop().await;
    cluster.shutdown().await;
}

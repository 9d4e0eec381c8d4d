//! Whose token kubelets see.

use http::StatusCode;
use kubevitals_sim::api::{Effect, RequestFault, Rule, User};
use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::server::{Running, cluster};
use crate::{kubevitals, output};

const READER: &str = "--kubelet-service-account=kube-system/kubelet-reader";

/// Adds the accounts and rights of `deploy/server.yaml`, and returns the server's token. Kubelets
/// reject it: only the reader may scrape.
fn grant(cluster: &SimCluster) -> String {
    let api = cluster.api();
    for name in ["kubevitals-server", "kubelet-reader"] {
        let account = json!({"metadata": {"name": name, "namespace": "kube-system"}});
        let writer = api.writer();
        writer.create(Resource::ServiceAccounts, account).unwrap();
    }
    let user = User::service_account("kube-system", "kubevitals-server");
    let server = || user.name.clone();
    let reads = ["get", "list", "watch"];
    api.allow(Rule::for_user(
        server(),
        reads,
        "",
        ["nodes", "pods", "configmaps"],
    ));
    api.allow(Rule::for_user(
        server(),
        ["create"],
        "",
        ["serviceaccounts/token"],
    ));
    for group in ["authentication.k8s.io", "authorization.k8s.io"] {
        let reviews = ["tokenreviews", "subjectaccessreviews"];
        api.allow(Rule::for_user(server(), ["create"], group, reviews));
    }
    let reader = User::service_account("kube-system", "kubelet-reader").name;
    api.allow(Rule::for_user(
        reader,
        ["get"],
        "",
        ["nodes/metrics", "nodes/stats"],
    ));
    api.issue_token(user, None).unwrap()
}

#[tokio::test]
async fn kubelets_see_the_token_of_the_named_service_account_and_no_other() {
    let cluster = cluster(2).await;
    let token = grant(&cluster);
    let kubeconfig = cluster.api().kubeconfig_for_token(&token);
    let flags = ["--roles=server", READER];
    let server = Running::start_as(&cluster, &kubeconfig, &flags, None).await;
    server.until_nodes(2).await;
    let (status, ready) = server.get("/readyz?verbose", None).await;
    assert_eq!(status, StatusCode::OK, "{ready}");
    let (_, metrics) = server.get_as_admin("/metrics").await;
    for line in [
        "kubevitals_scrape_token_requests_total{result=\"success\"} 1",
        "kubevitals_scrape_token_expiration_timestamp_seconds ",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    server.stop().await;

    // Without the flag its own token is sent, as metrics-server sends its own.
    let server = Running::start_as(&cluster, &kubeconfig, &["--roles=server"], None).await;
    server.until_failing("node-00001", "403").await;
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_token_that_is_refused_shows_in_readiness_and_metrics() {
    let cluster = cluster(1).await;
    let token = grant(&cluster);
    for effect in [
        Effect::TooManyRequests(1),
        Effect::InternalError,
        Effect::Unavailable,
    ] {
        let fault = RequestFault::always(effect).on_resource("serviceaccounts");
        cluster.api().inject(fault.on_verb("create").times(1));
    }
    let kubeconfig = cluster.api().kubeconfig_for_token(&token);
    let missing = "--kubelet-service-account=kube-system/missing";
    let flags = ["--roles=server", missing];
    let server = Running::start_as(&cluster, &kubeconfig, &flags, None).await;
    // Reasons are not for everybody on this port; unit tests have them.
    server
        .until("/readyz?verbose", |_, body| {
            body.contains("[-]kubelet-token failed")
        })
        .await;
    let failures = "kubevitals_scrape_token_requests_total{result=\"not_found\"}";
    server
        .until("/metrics", |_, body| {
            body.contains(failures) && !body.contains(&format!("{failures} 0"))
        })
        .await;
    let (status, _) = server.get("/livez", None).await;
    assert_eq!(status, StatusCode::OK);
    // It comes into being.
    let account = json!({"metadata": {"name": "missing", "namespace": "kube-system"}});
    let writer = cluster.api().writer();
    writer.create(Resource::ServiceAccounts, account).unwrap();
    server
        .until("/readyz?verbose", |_, body| !body.contains("kubelet-token"))
        .await;
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_token_file_is_what_kubelets_see() {
    let cluster = cluster(1).await;
    let own = grant(&cluster);
    let reader = User::service_account("kube-system", "kubelet-reader");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, cluster.api().issue_token(reader, None).unwrap()).unwrap();
    let flag = format!("--kubelet-token-file={}", file.display());
    let kubeconfig = cluster.api().kubeconfig_for_token(&own);
    let flags = ["--roles=server", flag.as_str(), "--manage-apiservices"];
    let server = Running::start_as(&cluster, &kubeconfig, &flags, None).await;
    server.until_nodes(1).await;
    server.stop().await;
    cluster.shutdown().await;
}

/// The token that may patch APIServices went to every kubelet.
#[tokio::test]
async fn a_token_that_may_change_apiservices_is_not_sent_to_kubelets() {
    let cluster = cluster(1).await;
    let token = grant(&cluster);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, cluster.api().kubeconfig_for_token(&token)).unwrap();
    let flags = [
        "--manage-apiservices".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--cert-dir={}", folder.path().display()),
    ];
    let child = tokio::task::spawn_blocking(move || {
        output(kubevitals(&["server", "--secure-port=0"]).args(flags))
    });
    let (code, _, stderr) = child.await.unwrap();
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("manage-apiservices"), "{stderr}");
    assert!(stderr.contains("--kubelet-service-account"), "{stderr}");
    assert!(!stderr.contains(&token), "{stderr}");
    cluster.shutdown().await;
}

#[test]
fn flags_that_name_different_identities_contradict_each_other() {
    for (flags, message) in [
        (
            &["--kubelet-service-account=a/b", "--kubelet-token-file=x"][..],
            "kubelet-token-file",
        ),
        (
            &[
                "--kubelet-token-file=x",
                "--kubelet-client-certificate=x",
                "--kubelet-client-key=x",
            ],
            "kubelet-client-certificate",
        ),
        (&["--kubelet-service-account=reader"], "NAMESPACE/NAME"),
    ] {
        let (code, _, stderr) = output(kubevitals(&["server"]).args(flags));
        assert_eq!(code, 64, "{flags:?}: {stderr}");
        assert!(stderr.contains(message), "{flags:?}: {stderr}");
    }
}

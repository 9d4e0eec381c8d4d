//! Authentication and authorization.

use std::time::Duration;

use kubevitals_sim::api::{Rule, SimApi, SimApiConfig, User};
use serde_json::json;

use crate::support::{add_pods, admin, anonymous, sim};

#[tokio::test]
async fn anonymous_users_read_health_only() {
    let sim = sim().await;
    let client = anonymous(&sim);
    assert_eq!(client.get("/livez").await.code, 200);
    let rejected = client.get("/api/v1/namespaces/default/pods").await;
    assert_eq!(
        rejected.status(),
        (403, "Forbidden".to_owned(), "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"".to_owned())
    );
    assert_eq!(rejected.json()["details"], json!({"kind": "pods"}));
    assert_eq!(
        client.get("/apis").await.status().2,
        "forbidden: User \"system:anonymous\" cannot get path \"/apis\""
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn tokens_and_certificates_are_authenticated() {
    let config = SimApiConfig {
        tokens: vec![("secret".to_owned(), User::new("ann", []))],
        rules: vec![Rule::for_user("ann", ["list"], "", ["pods"])],
        ..SimApiConfig::default()
    };
    let sim = SimApi::start(config).await.unwrap();
    let ann = anonymous(&sim).with("authorization", "Bearer secret");
    assert_eq!(ann.get("/api/v1/pods").await.code, 200);
    assert_eq!(ann.get("/api/v1/nodes").await.code, 403);
    let wrong = anonymous(&sim).with("authorization", "Bearer wrong");
    assert_eq!(
        wrong.get("/api/v1/pods").await.status(),
        (401, "Unauthorized".to_owned(), "Unauthorized".to_owned())
    );
    // The certificate of another cluster connects, and is then rejected.
    let other = crate::support::sim().await;
    let other_client = other
        .issue_client_certificate("admin", Some("system:masters"))
        .unwrap();
    let other_client = anonymous(&sim).with_certificate(other_client);
    assert_eq!(other_client.get("/livez").await.code, 401);
    let bob = anonymous(&sim).with_certificate(sim.issue_client_certificate("bob", None).unwrap());
    assert_eq!(bob.get("/api/v1/pods").await.code, 403);
    sim.allow(Rule::for_user("bob", ["*"], "", ["pods"]));
    assert_eq!(bob.get("/api/v1/pods").await.code, 200);
    other.shutdown().await;
    sim.shutdown().await;
}

#[tokio::test]
async fn impersonation_needs_permission() {
    let sim = sim().await;
    let as_bob = admin(&sim).with("impersonate-user", "bob");
    assert_eq!(as_bob.get("/api/v1/pods").await.code, 403);
    let groups = admin(&sim)
        .with("impersonate-user", "bob")
        .with("impersonate-group", "system:masters");
    assert_eq!(groups.get("/api/v1/pods").await.code, 200);
    let token = sim.issue_token(User::new("eve", []), None).unwrap();
    let eve = anonymous(&sim).with("authorization", format!("Bearer {token}"));
    let rejected = eve.with("impersonate-user", "admin").get("/livez").await;
    assert_eq!(
        rejected.status().2,
        "users \"admin\" is forbidden: User \"eve\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn reviews_return_a_status() {
    let sim = sim().await;
    let client = admin(&sim);
    let token = sim
        .issue_token(
            User::service_account("x", "app"),
            Some(Duration::from_mins(1)),
        )
        .unwrap();
    let review = |token: &str| json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let good = client.post(path, &review(&token)).await;
    assert_eq!(good.code, 201);
    assert_eq!(
        good.json()["status"]["user"]["username"],
        "system:serviceaccount:x:app"
    );
    let bad = client.post(path, &review("x")).await.json();
    assert_eq!(bad["status"].get("authenticated"), None);
    sim.allow(Rule::for_user("ann", ["get"], "metrics.k8s.io", ["nodes"]));
    let access = |verb: &str| json!({"spec": {"user": "ann", "resourceAttributes": {"verb": verb, "group": "metrics.k8s.io", "resource": "nodes"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(
        client.post(path, &access("get")).await.json()["status"]["allowed"],
        true
    );
    assert_eq!(
        client.post(path, &access("list")).await.json()["status"]["allowed"],
        false
    );
    assert_eq!(
        client
            .post(path, &json!({"spec": {"user": "ann"}}))
            .await
            .code,
        422
    );
    assert_eq!(client.get(path).await.code, 405);
    sim.shutdown().await;
}

#[tokio::test]
async fn service_accounts_get_tokens() {
    let sim = sim().await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = json!({"spec": {"expirationSeconds": 600}});
    let issued = admin(&sim).post(path, &request).await;
    assert_eq!(issued.code, 201);
    let token = issued.json()["status"]["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let client = anonymous(&sim).with("authorization", format!("Bearer {token}"));
    let myself = client
        .post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            &json!({}),
        )
        .await
        .json();
    assert_eq!(
        myself["status"]["userInfo"]["username"],
        "system:serviceaccount:default:default"
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn extension_apiserver_authentication_is_published() {
    let sim = sim().await;
    add_pods(&sim, &["a"]);
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let data = admin(&sim).json(path).await["data"].clone();
    assert_eq!(data["client-ca-file"], sim.kube_ca_pem());
    assert_eq!(
        data["requestheader-client-ca-file"],
        sim.front_proxy_ca_pem()
    );
    assert_eq!(
        data["requestheader-allowed-names"],
        "[\"front-proxy-client\"]"
    );
    sim.shutdown().await;
}

//! `--manage-apiservices` on a simulated cluster.

use http::StatusCode;
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::server::{Running, cluster};

#[tokio::test]
async fn readiness_waits_for_the_ca_in_both_api_services() {
    let cluster = cluster(1).await;
    for version in ["v1", "v1beta1"] {
        let object = json!({
            "metadata": {"name": format!("{version}.metrics.k8s.io")},
            "spec": {"group": "metrics.k8s.io", "version": version,
                     "groupPriorityMinimum": 100, "versionPriority": 100,
                     "service": {"namespace": "kube-system", "name": "metrics-server"}},
        });
        let writer = cluster.api().writer();
        writer.create(Resource::ApiServices, object).unwrap();
    }
    let server = Running::start(&cluster, &["--manage-apiservices"]).await;
    server
        .until("/readyz/ca-bundle", |status, body| {
            status == StatusCode::OK && body == "ok"
        })
        .await;
    let own = std::fs::read_to_string(server.authority()).unwrap();
    for name in ["v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"] {
        let object = cluster.api().object(Resource::ApiServices, None, name);
        let bundle = object.unwrap()["spec"]["caBundle"]
            .as_str()
            .unwrap()
            .to_owned();
        let body: String = own.lines().filter(|line| !line.starts_with('-')).collect();
        assert!(
            !body.is_empty() && decoded(&bundle).contains(&body),
            "{name}"
        );
        let metric = format!("kubevitals_apiserver_ca_bundle_in_sync{{api_service=\"{name}\"}} 1");
        let (_, metrics) = server.get_as_admin("/metrics").await;
        assert!(metrics.contains(&metric), "{metric}");
    }
    let (status, _) = server.get("/readyz/ca-bundle", None).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "reasons are not public");
    server.stop().await;

    let unmanaged = Running::start(&cluster, &[]).await;
    let (status, _) = unmanaged.get_as_admin("/readyz/ca-bundle").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    unmanaged.stop().await;
    cluster.shutdown().await;
}

/// Returns the text in base64, without line ends.
fn decoded(text: &str) -> String {
    use base64::Engine as _;

    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap();
    String::from_utf8(bytes).unwrap().replace(['\r', '\n'], "")
}

//! ConfigMaps, Secrets, tokens and Services.

use std::time::Duration;

use kubevitals_model::{PodKey, SteppedClock, Timestamp, Uid};
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::Metrics;
use kubevitals_virtual_node::runtime::{PodId, PodInputs as _, TokenRequest};
use kubevitals_virtual_node::{ApiInputs, NodeMetrics};
use serde_json::json;

use crate::support::{config, sim};

#[tokio::test]
async fn inputs_are_read_on_demand_and_cached_for_a_while() {
    let sim = sim().await;
    let clock = SteppedClock::new(Timestamp::from_system_time(std::time::SystemTime::now()));
    let client = kube::Client::try_from(config(&sim).await).unwrap();
    let mut metrics = Metrics::new();
    let metrics = NodeMetrics::register(metrics.sub("kubevitals_node"));
    let inputs = ApiInputs::new(client, clock.clock(), metrics);

    assert!(
        inputs
            .config_map("default", "none")
            .await
            .unwrap()
            .is_none()
    );
    let map = json!({"metadata": {"name": "none", "namespace": "default"}, "data": {"k": "v"}});
    sim.writer().create(Resource::ConfigMaps, map).unwrap();
    // The absence is cached too.
    assert!(
        inputs
            .config_map("default", "none")
            .await
            .unwrap()
            .is_none()
    );
    clock.advance(Duration::from_mins(1));
    let map = inputs.config_map("default", "none").await.unwrap().unwrap();
    assert_eq!(map.data.as_ref().unwrap()["k"], "v");

    let secret = json!({"metadata": {"name": "s", "namespace": "default"}, "data": {"k": "dg=="}});
    sim.writer().create(Resource::Secrets, secret).unwrap();
    let secret = inputs.secret("default", "s").await.unwrap().unwrap();
    assert_eq!(secret.data.as_ref().unwrap()["k"].0, b"v");

    let request = |account: &str| TokenRequest {
        pod: PodId {
            uid: Uid::from("u"),
            key: PodKey::new("default", "web"),
        },
        service_account: account.to_owned(),
        audiences: vec!["api".to_owned()],
        expiration: Duration::from_secs(1),
    };
    let token = inputs
        .service_account_token(request("default"))
        .await
        .unwrap();
    assert!(!token.token.is_empty());
    assert!(
        token.renew_after <= Duration::from_mins(10),
        "{:?}",
        token.renew_after
    );
    assert!(inputs.service_account_token(request("none")).await.is_err());

    // Every namespace knows the API server.
    let variables = inputs.service_environment("kube-system").await.unwrap();
    let host = variables
        .iter()
        .find(|(name, _)| name == "KUBERNETES_SERVICE_HOST");
    assert_eq!(host.unwrap().1, "10.96.0.1");
    sim.shutdown().await;
}

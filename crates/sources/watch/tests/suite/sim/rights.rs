//! Streams of who may not, or not yet.

use std::time::Duration;

use kubevitals_model::PodSummary;
use kubevitals_sim::api::{Rule, User};
use kubevitals_telemetry::{Health, Probe};
use kubevitals_watch::RestartReason;

use super::{connect, count, create, pod, spec, start, states, stored, synced};
use kubevitals_sim::objects::Resource as Stored;

#[tokio::test]
async fn missing_permissions_are_reported_until_they_are_granted() {
    let sim = start().await;
    create(&sim, pod("a", "n1", "Running", "web"));
    let token = sim.issue_token(User::new("eyes", []), None).unwrap();
    let (server, mut requests) = connect(&sim.kubeconfig_for_token(&token)).await;
    let pods = server.reflector(spec::<PodSummary>("pods"));
    let health = Health::new();
    let check = pods.health_check(Duration::from_mins(1));
    health.check(pods.name(), Probe::READINESS, check).unwrap();
    let verdict = || format!("{:?}", health.report_one(Probe::Readyz, "pods").unwrap());

    requests
        .until("refused", || count(&pods, RestartReason::Forbidden) > 0)
        .await;
    let state = pods.state();
    let (why, words) = state.last_error.unwrap();
    assert_eq!(why, RestartReason::Forbidden);
    assert!(
        words.contains(r#"User "eyes" cannot watch resource "pods""#),
        "{words}"
    );
    assert!(!state.synced && state.connected.is_none());
    assert!(
        verdict().contains(r"pods is forbidden: User"),
        "{}",
        verdict()
    );

    sim.allow(Rule::for_user("eyes", ["list", "watch"], "", ["pods"]));
    synced(&pods).await;
    assert_eq!(verdict(), "Passed");
    assert_eq!(states(&pods.objects()), stored(&sim, Stored::Pods));
    let state = pods.state();
    assert_eq!(state.last_error, None);
    assert_eq!(
        state.restarts.keys().collect::<Vec<_>>(),
        [&RestartReason::Forbidden]
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn an_unknown_token_is_unauthorized_and_not_forbidden() {
    let sim = start().await;
    let (server, mut requests) = connect(&sim.kubeconfig_for_token("made-up")).await;
    let pods = server.reflector(spec::<PodSummary>("pods"));
    requests
        .until("refused", || count(&pods, RestartReason::Unauthorized) > 0)
        .await;
    assert_eq!(pods.state().restarts.len(), 1);
    sim.shutdown().await;
}

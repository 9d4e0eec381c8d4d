//! Sockets, certificates, credentials and faults.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::SteppedClock;
use kubevitals_promtext::{Item, parse};
use kubevitals_sim::faults::Fault;
use kubevitals_sim::kubelet::{Binding, Credentials, Decision, Fleet, FleetConfig};
use kubevitals_sim::node_set::NodeSet;
use kubevitals_sim::seed::Seed;
use kubevitals_sim::workload::{Workload, WorkloadConfig};
use kubevitals_tls::Alpn;

use crate::node_support::{START, Store, TestResponse, at, get, tls};

const NODE: &str = "node-00001";

async fn start(config: FleetConfig) -> Fleet {
    let node_set = NodeSet::new(3, "node", Seed::new(4));
    let clock = SteppedClock::new(at(START)).clock();
    let fleet = Fleet::start(config, Arc::clone(&node_set), clock)
        .await
        .unwrap();
    let config = WorkloadConfig {
        pods_per_node: 6,
        ..WorkloadConfig::default()
    };
    Workload::new(config, node_set, Seed::new(4)).populate(at(START), &Store::default());
    fleet
}

async fn request(fleet: &Fleet, path: &str) -> Result<TestResponse, String> {
    let client = tls(Some(fleet.authority_pem()), Alpn::Http11);
    get(fleet.address(NODE).unwrap(), path, None, &client).await
}

/// Samples and errors in a body.
fn counted(response: &TestResponse) -> (u64, u64) {
    let summary = parse(&response.body, |_: Item<'_, '_>| {});
    (summary.samples as u64, summary.errors as u64)
}

#[tokio::test]
async fn address_or_port_selects_the_node() {
    for binding in [Binding::Wildcard(0), Binding::Addresses(0), Binding::Ports] {
        let fleet = start(FleetConfig {
            binding,
            ..FleetConfig::default()
        })
        .await;
        let client = tls(Some(fleet.authority_pem()), Alpn::Http11);
        for node in ["node-00000", "node-00001", "node-00002"] {
            let address = fleet.address(node).unwrap();
            let response = get(address, "/stats/summary", None, &client).await.unwrap();
            let text = String::from_utf8(response.body.to_vec()).unwrap();
            assert!(
                text.contains(&format!("\"nodeName\":\"{node}\"")),
                "{binding:?}"
            );
        }
        fleet.shutdown().await;
    }
}

#[tokio::test]
async fn an_absent_node_does_not_respond() {
    let node_set = NodeSet::with_spares(1, 1, "node", Seed::new(4));
    let clock = SteppedClock::new(at(START)).clock();
    let fleet = Fleet::start(FleetConfig::default(), node_set, clock)
        .await
        .unwrap();
    let client = tls(Some(fleet.authority_pem()), Alpn::Http11);
    for (node, answers) in [("node-00000", true), ("node-00001", false)] {
        let address = fleet.address(node).unwrap();
        let response = get(address, "/metrics/resource", None, &client).await;
        assert_eq!(response.is_ok(), answers, "{node}");
    }
    fleet.shutdown().await;
}

#[tokio::test]
async fn both_versions_of_http_and_unknown_paths() {
    let fleet = start(FleetConfig::default()).await;
    let address = fleet.address(NODE).unwrap();
    for alpn in [Alpn::H2, Alpn::Http11] {
        let client = tls(Some(fleet.authority_pem()), alpn);
        let response = get(address, "/metrics/resource", None, &client)
            .await
            .unwrap();
        assert_eq!(response.status, 200);
        assert_eq!(
            response.content_type,
            "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
        );
        assert!(counted(&response).0 > 60, "{:?}", counted(&response));
        assert_eq!(
            get(address, "/healthz", None, &client).await.unwrap().body,
            "ok"
        );
        assert_eq!(
            get(address, "/nope", None, &client).await.unwrap().status,
            404
        );
    }
    fleet.shutdown().await;
}

#[tokio::test]
async fn fleets_have_separate_authorities() {
    let (one, other) = (
        start(FleetConfig::default()).await,
        start(FleetConfig::default()).await,
    );
    assert_ne!(one.address(NODE), other.address(NODE));
    one.faults().set(NODE, Fault::ServerError);
    assert_eq!(request(&one, "/healthz").await.unwrap().status, 500);
    assert_eq!(request(&other, "/healthz").await.unwrap().status, 200);
    let other_client = tls(Some(other.authority_pem()), Alpn::Http11);
    let rejected = get(one.address(NODE).unwrap(), "/healthz", None, &other_client).await;
    assert!(
        rejected.is_err(),
        "another fleet's authority is not trusted"
    );
    one.shutdown().await;
    assert_eq!(request(&other, "/healthz").await.unwrap().status, 200);
    other.shutdown().await;
}

#[tokio::test]
async fn tokens_are_authorized() {
    let authorize = |credentials: &Credentials<'_>| match credentials.bearer {
        Some("good") => Decision::Allow,
        Some(_) => Decision::Forbidden,
        None => Decision::Unauthorized,
    };
    let fleet = start(FleetConfig {
        auth: Arc::new(authorize),
        ..FleetConfig::default()
    })
    .await;
    let client = tls(Some(fleet.authority_pem()), Alpn::H2);
    let address = fleet.address(NODE).unwrap();
    for (token, status) in [(None, 401), (Some("bad"), 403), (Some("good"), 200)] {
        let response = get(address, "/metrics/resource", token, &client)
            .await
            .unwrap();
        assert_eq!(response.status, status);
    }
    fleet.shutdown().await;
}

#[tokio::test]
async fn status_faults_change_at_run_time() {
    let fleet = start(FleetConfig::default()).await;
    for (fault, status) in [
        (Fault::Unauthorized, 401),
        (Fault::Forbidden, 403),
        (Fault::NotFound, 404),
        (Fault::ServerError, 500),
    ] {
        fleet.faults().set(NODE, fault);
        assert_eq!(
            request(&fleet, "/metrics/resource").await.unwrap().status,
            status
        );
        fleet.faults().clear(NODE);
        assert_eq!(
            request(&fleet, "/metrics/resource").await.unwrap().status,
            200
        );
    }
    fleet.shutdown().await;
}

#[tokio::test]
async fn body_faults_change_responses() {
    let fleet = start(FleetConfig::default()).await;
    let honest = request(&fleet, "/metrics/resource").await.unwrap();
    let (samples, errors) = counted(&honest);
    assert_eq!(errors, 0);
    let text = |response: &TestResponse| String::from_utf8(response.body.to_vec()).unwrap();
    let with = async |fault| {
        fleet.faults().clear_all();
        fleet.faults().set(NODE, fault);
        request(&fleet, "/metrics/resource").await
    };
    assert_eq!(
        counted(&with(Fault::MalformedLine).await.unwrap()),
        (samples, 1)
    );
    assert_eq!(
        counted(&with(Fault::UnlabelledSeries).await.unwrap()),
        (samples + 1, 0)
    );
    let missing = with(Fault::MissingSibling).await.unwrap();
    assert_eq!(counted(&missing), (samples - 2, 0));
    let duplicate = with(Fault::Duplicate).await.unwrap();
    assert!(counted(&duplicate).0 > samples, "{:?}", counted(&duplicate));
    let zero = text(&with(Fault::ZeroCpu).await.unwrap());
    let zeros = zero
        .lines()
        .filter(|line| line.starts_with("container_cpu") && line.split(' ').nth(1) == Some("0"));
    assert_eq!(zeros.count(), 1);
    let garbage = with(Fault::Garbage).await.unwrap();
    assert_eq!(counted(&garbage).0, 0);
    let truncated = with(Fault::Truncated).await;
    assert!(truncated.is_err(), "{truncated:?}");
    let huge = with(Fault::Huge(1 << 20)).await.unwrap();
    assert!(
        huge.body.len() > 1 << 20 && huge.body.len() < 2 << 20,
        "{}",
        huge.body.len()
    );
    assert_eq!(counted(&huge).1, 0);
    let ahead = text(&with(Fault::ClockSkew(3_600_000)).await.unwrap());
    let stamp = |text: &str| -> i64 {
        let line = text
            .lines()
            .find(|line| line.starts_with("node_cpu"))
            .unwrap()
            .to_owned();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(stamp(&ahead) - stamp(&text(&honest)), 3_600_000);
    fleet.shutdown().await;
}

#[tokio::test]
async fn certificate_faults_fail_verification() {
    let fleet = start(FleetConfig::default()).await;
    fleet.faults().set(NODE, Fault::ExpiredCertificate);
    let error = request(&fleet, "/healthz").await.unwrap_err();
    assert!(
        error.contains("expired") || error.contains("no longer valid"),
        "{error}"
    );
    fleet.faults().clear(NODE);
    fleet.faults().set(NODE, Fault::WrongName);
    let error = request(&fleet, "/healthz").await.unwrap_err();
    assert!(error.contains("elsewhere.invalid"), "{error}");
    let unverified = tls(None, Alpn::Http11);
    let response = get(fleet.address(NODE).unwrap(), "/healthz", None, &unverified)
        .await
        .unwrap();
    assert_eq!(response.status, 200);
    fleet.faults().clear_all();
    assert_eq!(request(&fleet, "/healthz").await.unwrap().status, 200);
    fleet.shutdown().await;
}

#[tokio::test]
async fn reset_faults_reset_and_slow_faults_delay() {
    let fleet = start(FleetConfig::default()).await;
    fleet.faults().set(NODE, Fault::Reset);
    for alpn in [Alpn::Http11, Alpn::H2] {
        let client = tls(Some(fleet.authority_pem()), alpn);
        let error = get(fleet.address(NODE).unwrap(), "/healthz", None, &client)
            .await
            .unwrap_err();
        assert!(error.to_lowercase().contains("reset"), "{error}");
    }
    fleet.faults().clear(NODE);
    let delay = Duration::from_millis(120);
    fleet.faults().set(NODE, Fault::Slow(delay));
    let started = std::time::Instant::now();
    assert_eq!(request(&fleet, "/healthz").await.unwrap().status, 200);
    assert!(started.elapsed() >= delay);
    fleet.shutdown().await;
}

/// The end of the fleet wakes the held request and its connection in either order. A response used
/// to be sent when the request came first: enough rounds for both orders to occur.
#[tokio::test]
async fn a_hanging_node_holds_its_request_until_the_fleet_ends() {
    for alpn in [Alpn::Http11, Alpn::H2].into_iter().cycle().take(12) {
        let fleet = start(FleetConfig::default()).await;
        fleet.faults().set(NODE, Fault::Hang);
        let client = tls(Some(fleet.authority_pem()), alpn);
        let address = fleet.address(NODE).unwrap();
        let hanging = tokio::spawn(async move { get(address, "/healthz", None, &client).await });
        // Another node still responds.
        let other = fleet.address("node-00002").unwrap();
        let client = tls(Some(fleet.authority_pem()), alpn);
        assert_eq!(
            get(other, "/healthz", None, &client).await.unwrap().status,
            200
        );
        assert!(!hanging.is_finished());
        fleet.shutdown().await;
        assert!(hanging.await.unwrap().is_err());
        assert!(
            tokio::net::TcpStream::connect(address).await.is_err(),
            "the listener is closed"
        );
    }
}

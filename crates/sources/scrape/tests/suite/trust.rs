//! Verification of kubelets, and credentials.

use kubevitals_scrape::{Credentials, Transport};
use kubevitals_tls::{ClientOptions, ClientTls};

use crate::harness::{Event, Harness, NODES, trusting};

fn unverified() -> ClientTls {
    ClientTls::dangerous_without_verification(&ClientOptions::default()).unwrap()
}

#[tokio::test]
async fn no_token_is_sent_to_an_unverified_kubelet() {
    let harness = Harness::start().await;
    let mut config = harness.config();
    config.transport = Transport::Tls(unverified());
    let running = harness.scrape(config.clone());
    // The kubelet was reached, without credentials.
    assert_eq!(
        running.events.first_error(NODES[0]).await.reason(),
        "http-401"
    );
    running.scraper.shutdown().await;
    config.token_to_unverified = true;
    let running = harness.scrape(config);
    running.events.first_batch(NODES[0]).await;
    harness.shutdown(running).await;
}

#[tokio::test]
async fn a_kubelet_of_an_unknown_authority_is_rejected_or_pinned() {
    let harness = Harness::start().await;
    let other = Harness::start().await;
    let mut config = harness.config();
    config.transport = Transport::Tls(trusting(other.cluster.fleet().authority_pem()));
    let running = harness.scrape(config.clone());
    let rejected = running.events.first_error(NODES[0]).await;
    assert_eq!(rejected.reason(), "tls-ca", "{rejected}");
    assert!(rejected.remedy().is_some());
    running.scraper.shutdown().await;
    config.pin_keys = true;
    let running = harness.scrape(config);
    running.events.first_batch(NODES[0]).await;
    other.cluster.shutdown().await;
    harness.shutdown(running).await;
}

#[tokio::test]
async fn a_renewed_token_file_replaces_a_rejected_token() {
    let harness = Harness::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "wrong").unwrap();
    let mut config = harness.config();
    let Credentials::Token(_) = config.credentials.clone() else {
        panic!("the harness has a token")
    };
    config.credentials = Credentials::file(&path).unwrap();
    let running = harness.scrape(config);
    assert_eq!(
        running.events.first_error(NODES[0]).await.reason(),
        "http-401"
    );
    std::fs::write(&path, harness.token()).unwrap();
    running.events.first_batch(NODES[0]).await;
    harness.shutdown(running).await;
}

#[tokio::test]
async fn a_warm_start_needs_permission_and_scrapes_work_without_it() {
    let harness = Harness::start().await;
    let running = harness.scrape(harness.config());
    let cold = running.events.first_batch(NODES[0]).await;
    assert!(cold.containers().iter().all(|c| c.sample.cpu_now.is_none()));
    assert!(
        !running
            .events
            .all()
            .iter()
            .any(|e| matches!(e, Event::Error { .. }))
    );
    running.scraper.shutdown().await;
    harness.allow_stats();
    let running = harness.scrape(harness.config());
    let warm = running.events.first_batch(NODES[0]).await;
    assert!(warm.containers().iter().all(|c| c.sample.cpu_now.is_some()));
    assert!(
        warm.containers()
            .iter()
            .all(|c| c.sample.ephemeral_storage.is_none())
    );
    running.scraper.shutdown().await;
    let mut config = harness.config();
    config.ephemeral_storage = true;
    let running = harness.scrape(config);
    let stored = running.events.first_batch(NODES[0]).await;
    assert!(
        stored
            .containers()
            .iter()
            .all(|c| c.sample.ephemeral_storage.is_some())
    );
    harness.shutdown(running).await;
}

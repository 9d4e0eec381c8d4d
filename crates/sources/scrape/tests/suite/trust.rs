//! Verification of kubelets, and credentials.

use std::time::SystemTime;

use kubevitals_scrape::{Credentials, ScrapeConfig, Transport};
use kubevitals_tls::{ClientOptions, ClientTls, PemSource, ReloadingKeyPair, TrustRoots};

use crate::harness::{Event, Harness, NODES, request, trusting};

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

/// The kubelets do not know the authority of the client certificate, so that only a token could
/// authenticate the request.
#[tokio::test]
async fn no_token_is_sent_beside_a_client_certificate() {
    let harness = Harness::start().await;
    let other = Harness::start().await;
    let issued = other
        .api()
        .issue_client_certificate("scraper", None)
        .unwrap();
    let source = |label, pem: String| PemSource::Inline {
        label,
        pem: pem.into_bytes().into(),
    };
    let identity = ReloadingKeyPair::load(
        "client certificate",
        source("certificate", issued.certificate),
        source("key", issued.key),
        SystemTime::now(),
    );
    let options = ClientOptions {
        identity: Some(identity.unwrap()),
        ..ClientOptions::default()
    };
    let authority = source("CA", harness.cluster.fleet().authority_pem().to_owned());
    let roots = TrustRoots::load("kubelets", vec![authority], SystemTime::now());
    let mut config = harness.config();
    config.transport = Transport::Tls(ClientTls::trusting(roots.unwrap(), &options).unwrap());
    let running = harness.scrape(config);
    let error = running.events.first_error(NODES[0]).await;
    assert_eq!(error.reason(), "http-401", "{error}");
    other.cluster.shutdown().await;
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

/// A node chooses its own address, port and path: what is sent there by plain HTTP must be
/// worthless.
#[tokio::test]
async fn plain_http_by_annotation_needs_a_flag_and_never_carries_a_token() {
    let harness = Harness::start().await;
    let listener = harness.respond_for(NODES[0]).await;
    let config = harness.config();
    let running = harness.scrape(config.clone());
    let error = running.events.first_error(NODES[0]).await;
    assert_eq!(error.reason(), "annotation", "{error}");
    running.scraper.shutdown().await;

    let allowed = ScrapeConfig {
        allow_http: true,
        // Even where the user sends it to unverified kubelets.
        token_to_unverified: true,
        warm_start: false,
        ..config
    };
    let running = harness.scrape(allowed);
    let (_stream, request) = request(&listener).await;
    assert!(
        request.starts_with("GET /metrics/resource HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        !request.to_lowercase().contains("authorization"),
        "{request}"
    );
    assert!(!request.contains(harness.token()), "{request}");
    harness.shutdown(running).await;
}

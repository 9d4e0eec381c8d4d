//! Whom kubelets must be, and who we say we are.

use kubevitals_scrape::{Credentials, Transport};
use kubevitals_tls::{ClientOptions, ClientTls};

use crate::bed::{Bed, Event, NODES, trusting};

fn anyone() -> ClientTls {
    ClientTls::dangerous_without_verification(&ClientOptions::default()).unwrap()
}

#[tokio::test]
async fn no_token_crosses_a_connection_that_nobody_verified() {
    let bed = Bed::start().await;
    let mut config = bed.config();
    config.transport = Transport::Tls(anyone());
    let scrape = bed.scrape(config.clone());
    // The kubelet was reached and knows nobody.
    assert_eq!(scrape.notes.failure(NODES[0]).await.reason(), "http-401");
    scrape.scraper.shutdown().await;
    config.token_to_unverified = true;
    let scrape = bed.scrape(config);
    scrape.notes.first(NODES[0]).await;
    bed.end(scrape).await;
}

#[tokio::test]
async fn a_kubelet_of_an_unknown_authority_is_refused_or_pinned() {
    let bed = Bed::start().await;
    let other = Bed::start().await;
    let mut config = bed.config();
    config.transport = Transport::Tls(trusting(other.cluster.fleet().authority_pem()));
    let scrape = bed.scrape(config.clone());
    let refused = scrape.notes.failure(NODES[0]).await;
    assert_eq!(refused.reason(), "tls-ca", "{refused}");
    assert!(refused.remedy().is_some());
    scrape.scraper.shutdown().await;
    config.pin_keys = true;
    let scrape = bed.scrape(config);
    scrape.notes.first(NODES[0]).await;
    other.cluster.shutdown().await;
    bed.end(scrape).await;
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_a_renewed_file_mends_it() {
    let bed = Bed::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "wrong").unwrap();
    let mut config = bed.config();
    let Credentials::Token(_) = config.credentials.clone() else {
        panic!("the bed has a token")
    };
    config.credentials = Credentials::file(&path).unwrap();
    let scrape = bed.scrape(config);
    assert_eq!(scrape.notes.failure(NODES[0]).await.reason(), "http-401");
    std::fs::write(&path, bed.token()).unwrap();
    scrape.notes.first(NODES[0]).await;
    bed.end(scrape).await;
}

#[tokio::test]
async fn warm_start_needs_a_right_and_nothing_is_lost_without() {
    let bed = Bed::start().await;
    let scrape = bed.scrape(bed.config());
    let cold = scrape.notes.first(NODES[0]).await;
    assert!(cold.containers().iter().all(|c| c.sample.cpu_now.is_none()));
    assert!(
        !scrape
            .notes
            .all()
            .iter()
            .any(|e| matches!(e, Event::Failed { .. }))
    );
    scrape.scraper.shutdown().await;
    bed.allow_stats();
    let scrape = bed.scrape(bed.config());
    let warm = scrape.notes.first(NODES[0]).await;
    assert!(warm.containers().iter().all(|c| c.sample.cpu_now.is_some()));
    assert!(
        warm.containers()
            .iter()
            .all(|c| c.sample.ephemeral_storage.is_none())
    );
    scrape.scraper.shutdown().await;
    let mut config = bed.config();
    config.ephemeral_storage = true;
    let scrape = bed.scrape(config);
    let stored = scrape.notes.first(NODES[0]).await;
    assert!(
        stored
            .containers()
            .iter()
            .all(|c| c.sample.ephemeral_storage.is_some())
    );
    bed.end(scrape).await;
}

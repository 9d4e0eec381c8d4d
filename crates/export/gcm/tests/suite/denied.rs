//! A backend that denies: points wait, and somebody is told.

use std::time::Duration;

use kubevitals_gcm::{Credentials, GcmExporter, GcmMetrics, GcmSettings, MetadataServer};
use kubevitals_sim::google::{GoogleIdentity, MonitoringFault};
use kubevitals_sink::{ExportError, Exporter as _};
use tokio::time::timeout;

use crate::support::{
    DEADLINE, Pipeline, Results, backend, clock, gauge, no_metadata, quick, settings,
};

#[tokio::test]
async fn points_that_are_denied_wait_and_the_problem_is_told() {
    for status in [401, 403, 404] {
        let clock = clock();
        let backend = backend(&clock).await;
        backend.always(Some(MonitoringFault::Status(status, Vec::new())));
        let pipeline = Pipeline::start(settings(backend.address), &clock);
        assert_eq!(pipeline.health.problem(), None);
        let pushed = pipeline.push((0..5).map(|series| gauge(series, 0)));
        let some = backend.until(|received| received.calls.len() > 5);
        timeout(DEADLINE, some).await.unwrap();
        let problem = pipeline.health.problem().unwrap();
        assert!(problem.contains(&status.to_string()), "{problem}");
        assert_eq!(pipeline.sink.counts().queued, 5);
        backend.always(None);
        let health = pipeline.health.clone();
        assert_eq!(pipeline.flush(pushed).await, Results::sent(5));
        assert_eq!(health.problem(), None);
    }
}

#[tokio::test]
async fn attempts_after_a_denial_are_slow_and_others_as_the_backend_asks() {
    kubevitals_tls::install_crypto_provider();
    let clock = clock();
    let backend = backend(&clock).await;
    let settings = GcmSettings {
        denied_delay: Duration::from_mins(1),
        ..settings(backend.address)
    };
    let mut exporter = GcmExporter::new(
        settings,
        Credentials::Anonymous,
        no_metadata(),
        None,
        clock.clock(),
        GcmMetrics::unregistered(),
    )
    .unwrap();
    let asked = vec![("retry-after", "7".to_owned())];
    for (status, headers, delay) in [
        (403, Vec::new(), Some(Duration::from_mins(1))),
        (401, asked.clone(), Some(Duration::from_mins(1))),
        (429, asked, Some(Duration::from_secs(7))),
        (503, Vec::new(), None),
    ] {
        backend.always(Some(MonitoringFault::Status(status, headers)));
        let error = exporter.export(&[gauge(0, 0)]).await.unwrap_err();
        let ExportError::Retryable { after, message } = error else {
            panic!("{error}");
        };
        assert_eq!(after, delay, "{message}");
    }
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_replaced_at_once() {
    let clock = clock();
    let backend = backend(&clock).await;
    let identity = GoogleIdentity::start().await.unwrap();
    let address = identity.address.to_string();
    let metadata = MetadataServer::new(|_| Some(address.clone())).unwrap();
    let pipeline = Pipeline::start_as(
        settings(backend.address),
        &clock,
        Credentials::Metadata,
        metadata,
        quick(),
    );
    let mut pushed = pipeline.push([gauge(0, -60)]);
    backend.until(|received| !received.points.is_empty()).await;
    // The first is revoked.
    backend.require_token(Some("token-2"));
    pushed += pipeline.push([gauge(0, 0)]);
    assert_eq!(pipeline.flush(pushed).await, Results::sent(2));
    let used: Vec<_> = backend
        .received()
        .calls
        .iter()
        .map(|call| (call.authorization.clone().unwrap(), call.status))
        .collect();
    let used: Vec<_> = used
        .iter()
        .map(|(token, status)| (&**token, *status))
        .collect();
    assert_eq!(
        used,
        [
            ("Bearer token-1", 200),
            ("Bearer token-1", 401),
            ("Bearer token-2", 200)
        ]
    );
}

#[tokio::test]
async fn a_server_of_tokens_that_is_away_or_denies_costs_no_point() {
    let clock = clock();
    let backend = backend(&clock).await;
    let identity = GoogleIdentity::start().await.unwrap();
    let address = identity.address.to_string();
    let metadata = MetadataServer::new(|_| Some(address.clone())).unwrap();
    let pipeline = Pipeline::start_as(
        settings(backend.address),
        &clock,
        Credentials::Metadata,
        metadata,
        quick(),
    );
    identity.set_status(503);
    let pushed = pipeline.push([gauge(0, 0)]);
    let asked = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while identity.requests().len() < 3 {
            ticks.tick().await;
        }
        assert_eq!(pipeline.health.problem(), None);
        identity.set_status(403);
        while pipeline.health.problem().is_none() {
            ticks.tick().await;
        }
    };
    timeout(DEADLINE, asked).await.unwrap();
    identity.set_status(200);
    assert_eq!(pipeline.flush(pushed).await, Results::sent(1));
}

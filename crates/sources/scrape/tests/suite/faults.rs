//! Every fault of a node: which samples are lost and which are not.

use std::time::{Duration, SystemTime};

use kubevitals_model::Timestamp;
use kubevitals_scrape::ScrapeError;
use kubevitals_sim::faults::Fault;

use crate::harness::{Event, Harness, NODES, is_batch};

/// Scrapes with a fault on the first node, then without. Returns the error and all events.
async fn scrape_with(fault: Fault) -> (ScrapeError, Vec<Event>) {
    let harness = Harness::start().await;
    let faults = harness.cluster.fleet().faults();
    assert!(faults.set(NODES[0], fault));
    let mut config = harness.config();
    config.max_body_bytes = 1 << 20;
    let running = harness.scrape(config);
    let error = running.events.first_error(NODES[0]).await;
    // The other node is not affected.
    running.events.first_batch(NODES[1]).await;
    assert!(faults.clear(NODES[0]));
    let from = running.events.all().len();
    let recovered = |event: &Event| is_batch(event, NODES[0]);
    running.events.wait(from, "recovery", recovered).await;
    let events = running.events.all();
    let failed_elsewhere =
        |event: &Event| matches!(event, Event::Error { .. }) && event.node() == NODES[1];
    assert!(!events.iter().any(failed_elsewhere), "{events:#?}");
    harness.shutdown(running).await;
    (error, events)
}

#[tokio::test]
async fn http_errors_have_reasons_of_their_own() {
    let (unauthorized, forbidden, server_error) = tokio::join!(
        scrape_with(Fault::Unauthorized),
        scrape_with(Fault::Forbidden),
        scrape_with(Fault::ServerError)
    );
    for ((error, events), reason) in [
        (unauthorized, "http-401"),
        (forbidden, "http-403"),
        (server_error, "http-5xx"),
    ] {
        assert_eq!(error.reason(), reason, "{error}");
        let before = events
            .iter()
            .take_while(|e| !matches!(e, Event::Error { .. }));
        assert!(!before.into_iter().any(|event| is_batch(event, NODES[0])));
    }
}

#[tokio::test]
async fn a_node_that_hangs_or_resets_fails_in_time() {
    let ((hang, _), (slow, _), (reset, _)) = tokio::join!(
        scrape_with(Fault::Hang),
        scrape_with(Fault::Slow(Duration::from_secs(5))),
        scrape_with(Fault::Reset)
    );
    assert_eq!(hang.reason(), "timeout", "{hang}");
    assert_eq!(slow.reason(), "timeout", "{slow}");
    assert_eq!(reset.reason(), "connect", "{reset}");
}

#[tokio::test]
async fn garbage_and_endless_bodies_are_rejected() {
    let ((garbage, _), (huge, _)) = tokio::join!(
        scrape_with(Fault::Garbage),
        scrape_with(Fault::Huge(100 << 20))
    );
    assert_eq!(garbage.reason(), "parse", "{garbage}");
    assert_eq!(huge.reason(), "too-large", "{huge}");
}

#[tokio::test]
async fn samples_before_a_truncation_are_used() {
    let (error, events) = scrape_with(Fault::Truncated).await;
    assert_eq!(error.reason(), "truncated", "{error}");
    let truncated = events.iter().find_map(|event| match event {
        Event::Batch {
            node,
            containers,
            info,
            ..
        } if node == NODES[0] => Some((containers.len(), info.is_complete)),
        _ => None,
    });
    let (containers, is_complete) = truncated.unwrap();
    assert!(containers > 0 && !is_complete);
}

#[tokio::test]
async fn untrusted_certificates_have_reasons_of_their_own() {
    let ((expired, _), (wrong, _)) = tokio::join!(
        scrape_with(Fault::ExpiredCertificate),
        scrape_with(Fault::WrongName)
    );
    assert_eq!(expired.reason(), "tls-expired", "{expired}");
    assert_eq!(wrong.reason(), "tls-san", "{wrong}");
    assert!(wrong.to_string().contains("127.1.0.1"), "{wrong}");
}

#[tokio::test]
async fn an_invalid_line_does_not_affect_others() {
    let harness = Harness::start().await;
    let running = harness.scrape(harness.config());
    let usual = running
        .events
        .first_batch(NODES[0])
        .await
        .containers()
        .len();
    assert!(usual >= 6, "{usual}");
    let cases = [
        (Fault::MalformedLine, usual),
        (Fault::UnlabelledSeries, usual),
        (Fault::Duplicate, usual),
        (Fault::MissingSibling, usual),
        (Fault::ZeroCpu, usual),
    ];
    for (fault, expected) in cases {
        let faults = harness.cluster.fleet().faults();
        faults.set(NODES[0], fault);
        let set_at = Timestamp::from_system_time(SystemTime::now());
        let is_affected = |event: &Event| match event {
            Event::Batch { node, info, .. } => node == NODES[0] && info.requested_at > set_at,
            Event::Error { .. } => false,
        };
        let event = running.events.wait(0, "a spoilt info", is_affected).await;
        let containers = event.containers();
        assert_eq!(containers.len(), expected, "{fault:?}");
        let whole =
            |c: &&crate::harness::Container| c.sample.cpu.is_some() && c.sample.memory.is_some();
        let whole = containers.iter().filter(whole).count();
        assert!(whole + 1 >= expected, "{fault:?}: {whole} of {expected}");
        if fault == Fault::ZeroCpu {
            let idle = |c: &&crate::harness::Container| {
                c.sample.cpu.is_some_and(|cpu| cpu.total.get() == 0)
            };
            assert_eq!(containers.iter().filter(idle).count(), 1);
        }
        faults.clear(NODES[0]);
    }
    assert!(
        !running
            .events
            .all()
            .iter()
            .any(|e| matches!(e, Event::Error { .. }))
    );
    harness.shutdown(running).await;
}

#[tokio::test]
async fn timestamps_are_those_of_the_node() {
    let harness = Harness::start().await;
    harness
        .cluster
        .fleet()
        .faults()
        .set(NODES[0], Fault::ClockSkew(-3_600_000));
    let running = harness.scrape(harness.config());
    let skewed = running.events.first_batch(NODES[0]).await;
    let Event::Batch { info, .. } = &skewed else {
        panic!("{skewed:?}")
    };
    for container in skewed.containers() {
        let age = info
            .requested_at
            .since(container.sample.cpu.unwrap().at)
            .unwrap();
        assert!((3_599..3_620).contains(&age.as_secs()), "{age:?}");
    }
    harness.shutdown(running).await;
}

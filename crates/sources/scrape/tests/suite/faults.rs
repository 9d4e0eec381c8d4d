//! Every fault of a node: what must and must not be lost.

use std::time::{Duration, SystemTime};

use kubevitals_model::Timestamp;
use kubevitals_scrape::Failure;
use kubevitals_sim::faults::Fault;

use crate::bed::{Bed, Event, NODES, is_received};

/// Scrapes with a fault on the first node, then without. Gives how it failed.
async fn suffer(fault: Fault) -> (Failure, Vec<Event>) {
    let bed = Bed::start().await;
    let faults = bed.cluster.fleet().faults();
    assert!(faults.set(NODES[0], fault));
    let mut config = bed.config();
    config.max_body_bytes = 1 << 20;
    let scrape = bed.scrape(config);
    let failure = scrape.notes.failure(NODES[0]).await;
    // The other node does not notice.
    scrape.notes.first(NODES[1]).await;
    assert!(faults.clear(NODES[0]));
    let from = scrape.notes.all().len();
    let healed = |event: &Event| is_received(event, NODES[0]);
    scrape.notes.wait(from, "recovery", healed).await;
    let events = scrape.notes.all();
    let failed_elsewhere =
        |event: &Event| matches!(event, Event::Failed { .. }) && event.node() == NODES[1];
    assert!(!events.iter().any(failed_elsewhere), "{events:#?}");
    bed.end(scrape).await;
    (failure, events)
}

#[tokio::test]
async fn answers_that_are_no_success_are_told_apart() {
    let (unauthorized, forbidden, error) = tokio::join!(
        suffer(Fault::Unauthorized),
        suffer(Fault::Forbidden),
        suffer(Fault::ServerError)
    );
    for ((failure, events), reason) in [
        (unauthorized, "http-401"),
        (forbidden, "http-403"),
        (error, "http-5xx"),
    ] {
        assert_eq!(failure.reason(), reason, "{failure}");
        let before = events
            .iter()
            .take_while(|e| !matches!(e, Event::Failed { .. }));
        assert!(!before.into_iter().any(|event| is_received(event, NODES[0])));
    }
}

#[tokio::test]
async fn a_node_that_hangs_or_resets_is_given_up_in_time() {
    let ((hang, _), (slow, _), (reset, _)) = tokio::join!(
        suffer(Fault::Hang),
        suffer(Fault::Slow(Duration::from_secs(5))),
        suffer(Fault::Reset)
    );
    assert_eq!(hang.reason(), "timeout", "{hang}");
    assert_eq!(slow.reason(), "timeout", "{slow}");
    assert_eq!(reset.reason(), "connect", "{reset}");
}

#[tokio::test]
async fn bodies_that_mean_nothing_or_never_end_are_refused() {
    let ((garbage, _), (huge, _)) =
        tokio::join!(suffer(Fault::Garbage), suffer(Fault::Huge(100 << 20)));
    assert_eq!(garbage.reason(), "parse", "{garbage}");
    assert_eq!(huge.reason(), "too-large", "{huge}");
}

#[tokio::test]
async fn what_came_before_a_body_broke_off_is_used() {
    let (failure, events) = suffer(Fault::Truncated).await;
    assert_eq!(failure.reason(), "partial", "{failure}");
    let partial = events.iter().find_map(|event| match event {
        Event::Received {
            node,
            containers,
            answer,
            ..
        } if node == NODES[0] => Some((containers.len(), answer.is_complete)),
        _ => None,
    });
    let (containers, is_complete) = partial.unwrap();
    assert!(containers > 0 && !is_complete);
}

#[tokio::test]
async fn certificates_that_are_not_to_be_trusted_are_named() {
    let ((expired, _), (wrong, _)) =
        tokio::join!(suffer(Fault::ExpiredCertificate), suffer(Fault::WrongName));
    assert_eq!(expired.reason(), "tls-expired", "{expired}");
    assert_eq!(wrong.reason(), "tls-san", "{wrong}");
    assert!(wrong.to_string().contains("127.1.0.1"), "{wrong}");
}

#[tokio::test]
async fn a_bad_line_costs_only_itself() {
    let bed = Bed::start().await;
    let scrape = bed.scrape(bed.config());
    let usual = scrape.notes.first(NODES[0]).await.containers().len();
    assert!(usual >= 6, "{usual}");
    let cases = [
        (Fault::MalformedLine, usual),
        (Fault::UnlabelledSeries, usual),
        (Fault::Duplicate, usual),
        (Fault::MissingSibling, usual),
        (Fault::ZeroCpu, usual),
    ];
    for (fault, expected) in cases {
        let faults = bed.cluster.fleet().faults();
        faults.set(NODES[0], fault);
        let set = Timestamp::from_system_time(SystemTime::now());
        let is_spoilt = |event: &Event| match event {
            Event::Received { node, answer, .. } => node == NODES[0] && answer.asked > set,
            _ => false,
        };
        let event = scrape.notes.wait(0, "a spoilt answer", is_spoilt).await;
        let containers = event.containers();
        assert_eq!(containers.len(), expected, "{fault:?}");
        let whole =
            |c: &&crate::bed::Container| c.sample.cpu.is_some() && c.sample.memory.is_some();
        let whole = containers.iter().filter(whole).count();
        assert!(whole + 1 >= expected, "{fault:?}: {whole} of {expected}");
        if fault == Fault::ZeroCpu {
            let idle =
                |c: &&crate::bed::Container| c.sample.cpu.is_some_and(|cpu| cpu.total.get() == 0);
            assert_eq!(containers.iter().filter(idle).count(), 1);
        }
        faults.clear(NODES[0]);
    }
    assert!(
        !scrape
            .notes
            .all()
            .iter()
            .any(|e| matches!(e, Event::Failed { .. }))
    );
    bed.end(scrape).await;
}

#[tokio::test]
async fn the_time_of_a_sample_is_the_nodes_own() {
    let bed = Bed::start().await;
    bed.cluster
        .fleet()
        .faults()
        .set(NODES[0], Fault::ClockSkew(-3_600_000));
    let scrape = bed.scrape(bed.config());
    let skewed = scrape.notes.first(NODES[0]).await;
    let Event::Received { answer, .. } = &skewed else {
        panic!("{skewed:?}")
    };
    for container in skewed.containers() {
        let age = answer
            .asked
            .since(container.sample.cpu.unwrap().at)
            .unwrap();
        assert!((3_599..3_620).contains(&age.as_secs()), "{age:?}");
    }
    bed.end(scrape).await;
}

//! Lookups of targets by a resolver of the module.

use std::sync::atomic::{AtomicU32, Ordering};

use kubevitals_probes::{HttpSettings, NetworkSettings, Phase, Prober, Reason};

use crate::dns::{Answers, Dns, answer};
use crate::support::{SHORT, Server, assert_failure, assert_success, probe, probe_within};

/// A module whose targets are looked up by `server`.
fn resolved_by(server: &Dns) -> Prober {
    Prober::Http(Box::new(HttpSettings {
        network: NetworkSettings {
            resolver: Some(server.address),
            ..NetworkSettings::default()
        },
        ..HttpSettings::default()
    }))
}

#[tokio::test]
async fn a_module_looks_up_targets_by_its_own_resolver() {
    let http = Server::http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let target = format!("http://only-here.test:{}/", http.port());
    // There is no AAAA record: the A record is asked for next.
    let server = Dns::start(|query, is_udp| {
        let is_a = query[query.len() - 3] == 1;
        let flags = if is_udp { 0x200 } else { 0 };
        let records: &[&[u8]] = if is_a { &[&[127, 0, 0, 1]] } else { &[] };
        Some(answer(query, flags, 1, records))
    });
    let server = server.await;
    assert_success(&probe(&resolved_by(&server), &target).await);
    assert_eq!(server.udp_queries.load(Ordering::SeqCst), 2);
    let cases: [(Answers, Reason); 4] = [
        (
            |query, _| Some(answer(query, 3, 1, &[])),
            Reason::DnsNxdomain,
        ),
        (
            |query, _| Some(answer(query, 2, 1, &[])),
            Reason::DnsServfail,
        ),
        (
            |query, _| Some(answer(query, 0, 1, &[])),
            Reason::DnsNoAddress,
        ),
        (|_, _| None, Reason::DnsTimeout),
    ];
    for (answers, reason) in cases {
        let server = Dns::start(answers).await;
        let outcome = probe_within(&resolved_by(&server), &target, SHORT).await;
        assert_failure(&outcome, reason, Phase::Resolve);
    }
}

#[tokio::test]
async fn a_lost_query_of_a_lookup_is_sent_again() {
    static LOST: AtomicU32 = AtomicU32::new(0);
    let http = Server::http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let server = Dns::start(|query, _| {
        let is_lost = LOST.fetch_add(1, Ordering::SeqCst) == 0;
        (!is_lost).then(|| answer(query, 0, 1, &[&[127, 0, 0, 1]]))
    });
    let server = server.await;
    let target = format!("http://only-here.test:{}/", http.port());
    assert_success(&probe(&resolved_by(&server), &target).await);
}

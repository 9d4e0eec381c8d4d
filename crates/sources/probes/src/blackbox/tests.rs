use std::sync::Arc;

use super::*;
use crate::outcome::{Certificate, Failure, PhaseTime};

const TIMEOUT: Duration = Duration::from_secs(5);

fn outcome(phases: &[(Phase, u64)], facts: Facts) -> Outcome {
    Outcome {
        started: Timestamp::from_unix_millis(1_794_773_483_261),
        duration: Duration::from_millis(phases.iter().map(|(_, millis)| millis).sum()),
        failure: None,
        phases: phases
            .iter()
            .map(|(phase, millis)| PhaseTime {
                phase: *phase,
                duration: Duration::from_millis(*millis),
            })
            .collect(),
        facts,
    }
}

fn tls_facts() -> Facts {
    let end = Timestamp::from_unix_millis(1_800_000_000_000);
    Facts {
        ip_version: Some(4),
        address: Some("192.0.2.1".parse().unwrap()),
        certificate_expiry: Some(end),
        verified_chain_expiry: Some(end),
        certificate: Some(Arc::new(Certificate {
            subject: "CN=\"a\"".to_owned(),
            issuer: "CN=ca".to_owned(),
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
            serial_number: "01".to_owned(),
            fingerprint_sha256: "ab".to_owned(),
            not_before: end,
            not_after: end,
        })),
        tls_version: Some("TLS 1.3"),
        tls_cipher: Some("TLS_AES_128_GCM_SHA256"),
        ..Facts::default()
    }
}

#[test]
fn http_over_tls_with_a_redirect() {
    let phases = [
        (Phase::Resolve, 1),
        (Phase::Connect, 2),
        (Phase::Processing, 3),
        (Phase::Transfer, 4),
        (Phase::Resolve, 10),
        (Phase::Connect, 20),
        (Phase::Tls, 30),
        (Phase::Processing, 40),
        (Phase::Transfer, 50),
    ];
    let facts = Facts {
        http_status: Some(200),
        http_version: Some(http::Version::HTTP_11),
        http_redirects: Some(1),
        http_ssl: Some(true),
        http_content_length: Some(12),
        http_body_length: Some(34),
        http_last_modified: Some(Timestamp::from_unix_millis(1_700_000_000_000)),
        ..tls_facts()
    };
    insta::assert_snapshot!(render_probe(&outcome(&phases, facts), "http", TIMEOUT));
}

#[test]
fn a_failure_says_why_and_what_is_not_known_is_left_out() {
    let mut failed = outcome(
        &[(Phase::Resolve, 1), (Phase::Connect, 999)],
        Facts::default(),
    );
    failed.failure = Some(Failure {
        reason: Reason::ConnectTimeout,
        phase: Some(Phase::Connect),
        message: "192.0.2.1:443 did not answer".to_owned(),
    });
    let text = render_probe(&failed, "http", TIMEOUT);
    assert!(text.contains("\nprobe_success 0\n") || text.contains("probe_success 0\n"));
    assert!(text.contains("probe_failure_info{reason=\"connect_timeout\",phase=\"connect\"} 1"));
    assert!(!text.contains("probe_http_status_code"), "{text}");
    assert!(!text.contains("192.0.2.1"), "{text}");
}

#[test]
fn the_other_probers() {
    let phases = [
        (Phase::Resolve, 1),
        (Phase::Connect, 2),
        (Phase::Request, 3),
    ];
    let dns = Facts {
        dns_rcode: Some(0),
        dns_answers: Some(2),
        dns_authority: Some(0),
        dns_additional: Some(1),
        dns_serial: Some(2_026_111_701),
        ..Facts::default()
    };
    let grpc = Facts {
        grpc_status: Some(0),
        grpc_ssl: Some(false),
        grpc_serving: Some(ServingStatus::NotServing),
        ..Facts::default()
    };
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let tcp = Facts {
        expect_labels: vec![label("server", "x"), label("server", "y"), label("0", "z")],
        ..Facts::default()
    };
    let udp = Facts {
        datagrams: Some((10, 9)),
        ..Facts::default()
    };
    let exec = Facts {
        exit_code: Some(3),
        ..Facts::default()
    };
    let mut all = String::new();
    for (kind, facts) in [
        ("dns", dns),
        ("grpc", grpc),
        ("tcp", tcp),
        ("udp", udp),
        ("tls", tls_facts()),
        ("exec", exec),
    ] {
        all.push_str("== ");
        all.push_str(kind);
        all.push('\n');
        for line in render_probe(&outcome(&phases, facts), kind, TIMEOUT).lines() {
            if !line.starts_with('#') {
                all.push_str(line);
                all.push('\n');
            }
        }
    }
    insta::assert_snapshot!(all);
}

/// Go's `fnv.New32a` over the four bytes of 127.0.0.1, by hand.
#[test]
fn the_hash_of_an_address_is_fnv_1a() {
    let bytes = [127_u8, 0, 0, 1];
    let mut hash = 2_166_136_261_u32;
    for byte in bytes {
        hash ^= u32::from(byte);
        hash = hash.wrapping_mul(16_777_619);
    }
    assert_eq!(address_hash("127.0.0.1".parse().unwrap()), hash);
    assert_eq!(address_hash("::ffff:127.0.0.1".parse().unwrap()), hash);
    assert_ne!(address_hash("::1".parse().unwrap()), hash);
}

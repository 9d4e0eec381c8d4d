//! Certificates: what is wrong with them, and when they expire, also if they are rejected.

use std::time::{Duration, SystemTime};

use kubevitals_model::{SteppedClock, Timestamp};
use kubevitals_probes::{
    ClientTlsSettings, Outcome, Phase, ProbeContext, ProbeTls, Prober, Reason, Target, TlsSettings,
    TlsVersion,
};
use kubevitals_tls::TlsPolicy;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsAcceptor;

use crate::support::{
    Ca, DAY, GENEROUS, SHORT, Server, assert_failure, assert_success, context, params, phases,
    probe, probe_within,
};

/// A server that does nothing but shake hands.
async fn serve(acceptor: TlsAcceptor) -> Server {
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            }
        }
    });
    server.await
}

fn tls(tls_config: ProbeTls, minimum_validity: Duration) -> Prober {
    Prober::Tls(Box::new(TlsSettings {
        minimum_validity,
        tls_config,
        ..TlsSettings::default()
    }))
}

async fn handshake(prober: &Prober, server: &Server) -> Outcome {
    probe(prober, &format!("server.test:{}", server.port())).await
}

fn days_left(outcome: &Outcome) -> i64 {
    let expiry = outcome.facts.certificate_expiry.expect("an expiry");
    let now = Timestamp::from_system_time(SystemTime::now());
    (expiry.unix_seconds() - now.unix_seconds() + 43_200).div_euclid(86_400)
}

#[tokio::test]
async fn a_certificate_must_be_valid_long_enough() {
    let ca = Ca::new("authority");
    let server = serve(ca.acceptor(&["server.test"], &[])).await;
    let outcome = handshake(&tls(ca.trusted(), 30 * DAY), &server).await;
    assert_success(&outcome);
    assert_eq!(
        phases(&outcome),
        [Phase::Resolve, Phase::Connect, Phase::Tls]
    );
    assert_eq!(days_left(&outcome), 90);
    let certificate = outcome.facts.certificate.as_ref().unwrap();
    assert_eq!(certificate.names, ["server.test"]);
    assert_eq!(certificate.issuer, "CN=authority");
    assert_eq!(certificate.fingerprint_sha256.len(), 64);
    assert!(!certificate.serial_number.is_empty());
    let outcome = handshake(&tls(ca.trusted(), 91 * DAY), &server).await;
    assert_failure(&outcome, Reason::TlsExpired, Phase::Tls);
    assert_eq!(days_left(&outcome), 90);
}

#[tokio::test]
async fn certificates_that_are_rejected_still_tell_when_they_expire() {
    let ca = Ca::new("authority");
    let other = Ca::new("somebody else");
    let same_name = Ca::new("authority");
    let cases = [
        (
            ca.expired_acceptor(&["server.test"]),
            Reason::TlsExpired,
            -1,
        ),
        (
            other.acceptor(&["server.test"], &[]),
            Reason::TlsUnknownCa,
            90,
        ),
        (
            same_name.acceptor(&["server.test"], &[]),
            Reason::TlsUnknownCa,
            90,
        ),
        (
            ca.acceptor(&["wrong.test"], &[]),
            Reason::TlsNameMismatch,
            90,
        ),
        (ca.acceptor(&[], &[]), Reason::TlsNameMismatch, 90),
    ];
    for (acceptor, reason, days) in cases {
        let server = serve(acceptor).await;
        let outcome = handshake(&tls(ca.trusted(), Duration::ZERO), &server).await;
        assert_failure(&outcome, reason, Phase::Tls);
        assert_eq!(days_left(&outcome), days);
        assert_eq!(outcome.facts.verified_chain_expiry, None);
    }
}

#[tokio::test]
async fn without_verification_the_expiry_is_known_and_nothing_is_verified() {
    let ca = Ca::new("authority");
    let insecure = ProbeTls::new(ClientTlsSettings {
        insecure_skip_verify: true,
        ..ClientTlsSettings::default()
    });
    let prober = tls(insecure.unwrap(), Duration::ZERO);
    let server = serve(ca.acceptor(&["wrong.test"], &[])).await;
    let outcome = handshake(&prober, &server).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.verified_chain_expiry, None);
    let server = serve(ca.expired_acceptor(&["server.test"])).await;
    let outcome = handshake(&prober, &server).await;
    assert_failure(&outcome, Reason::TlsExpired, Phase::Tls);
}

#[tokio::test]
async fn the_time_of_a_handshake_is_that_of_the_clock() {
    let ca = Ca::new("authority");
    let server = serve(ca.acceptor(&["server.test"], &[])).await;
    let prober = tls(ca.trusted(), Duration::ZERO);
    let target = format!("server.test:{}", server.port());
    let target = Target::parse(&target, &prober).unwrap();
    let later = Timestamp::from_system_time(SystemTime::now() + 100 * DAY);
    let context = ProbeContext {
        clock: SteppedClock::new(later).clock(),
        ..context(GENEROUS)
    };
    let outcome = prober.run(&target, &context).await;
    assert_failure(&outcome, Reason::TlsExpired, Phase::Tls);
    assert_eq!(outcome.started, later);
}

#[tokio::test]
async fn versions_are_limited_as_configured() {
    let ca = Ca::new("authority");
    let policy = TlsPolicy::default().with_tls12_only();
    let old = serve(ca.accepting(&params(&["server.test"], 90 * DAY, DAY), &[], policy)).await;
    let both = serve(ca.acceptor(&["server.test"], &[])).await;
    let versions = |min_version, max_version| {
        let settings = ClientTlsSettings {
            min_version,
            max_version,
            ..ca.settings()
        };
        tls(ProbeTls::new(settings).unwrap(), Duration::ZERO)
    };
    let outcome = handshake(&versions(None, None), &old).await;
    assert_eq!(outcome.facts.tls_version, Some("TLS 1.2"));
    let outcome = handshake(&versions(None, Some(TlsVersion::Tls12)), &both).await;
    assert_eq!(outcome.facts.tls_version, Some("TLS 1.2"));
    let outcome = handshake(&versions(Some(TlsVersion::Tls13), None), &old).await;
    assert_failure(&outcome, Reason::TlsProtocol, Phase::Tls);
    assert_eq!(outcome.facts.certificate_expiry, None);
}

#[tokio::test]
async fn garbage_in_a_handshake_is_a_protocol_error() {
    let cases: [&'static [u8]; 4] = [
        b"220 mail.test ESMTP\r\n",
        // A server hello of TLS 1.0, which nobody asked for.
        b"\x16\x03\x01\x00\x2a\x02\x00\x00\x26\x03\x01AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\x00\x00\x2f\x00",
        // An alert: protocol version.
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    let ca = Ca::new("authority");
    let prober = tls(ca.trusted(), Duration::ZERO);
    for garbage in cases {
        let server = Server::start(move |mut stream| async move {
            let _ = stream.write_all(garbage).await;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        });
        let server = server.await;
        let outcome = handshake(&prober, &server).await;
        assert_failure(&outcome, Reason::TlsProtocol, Phase::Tls);
    }
}

#[tokio::test]
async fn a_handshake_that_ends_early_or_never_says_which() {
    let ca = Ca::new("authority");
    let prober = tls(ca.trusted(), Duration::ZERO);
    let closing = Server::start(|stream| async move { drop(stream) }).await;
    let outcome = handshake(&prober, &closing).await;
    let reason = outcome.failure.as_ref().unwrap().reason;
    assert!(
        matches!(reason, Reason::ReadEof | Reason::ConnectReset),
        "{outcome:?}"
    );
    let silent = Server::silent().await;
    let target = format!("server.test:{}", silent.port());
    let outcome = probe_within(&prober, &target, SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Tls);
}

#[tokio::test]
async fn a_ca_file_that_is_replaced_is_read_again_and_one_that_is_missing_is_no_trust() {
    let ca = Ca::new("authority");
    let missing = ProbeTls::new(ClientTlsSettings {
        ca_file: Some("missing/ca.pem".into()),
        ..ClientTlsSettings::default()
    });
    let missing = missing.unwrap();
    assert!(missing.check().is_err());
    let server = serve(ca.acceptor(&["server.test"], &[])).await;
    let outcome = handshake(&tls(missing, Duration::ZERO), &server).await;
    assert_failure(&outcome, Reason::Internal, Phase::Tls);
    assert!(ca.trusted().check().is_ok());
    // Another authority takes over the file.
    let prober = tls(ca.trusted(), Duration::ZERO);
    assert_success(&handshake(&prober, &server).await);
    let other = Ca::new("somebody else");
    let path = ca.settings().ca_file.unwrap();
    std::fs::copy(other.settings().ca_file.unwrap(), &path).unwrap();
    later().await;
    let outcome = handshake(&prober, &server).await;
    assert_failure(&outcome, Reason::TlsUnknownCa, Phase::Tls);
    // A file that cannot be used does not replace one that can.
    std::fs::write(&path, "nothing").unwrap();
    later().await;
    let outcome = handshake(&prober, &server).await;
    assert_failure(&outcome, Reason::TlsUnknownCa, Phase::Tls);
}

/// Lets the time pass after which files are read again.
async fn later() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(2)).await;
    tokio::time::resume();
}

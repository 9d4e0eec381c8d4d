//! Verification of server certificates.

use std::sync::Arc;

use kubevitals_tls::{ClientTls, HandshakeFailure, PeerNames};
use rcgen::{BasicConstraints, DnType, ExtendedKeyUsagePurpose, IsCa};

use crate::support::{
    Clock, DAY, TestCa, client_options, connect, failure, now, params, server_options, trusting,
};

fn names(names: &[&str]) -> PeerNames {
    PeerNames::new(names.iter().copied()).unwrap()
}

#[tokio::test]
async fn any_name_or_address_of_the_set_is_accepted() {
    let ca = TestCa::new("cluster");
    let client = trusting(ca.roots());
    let set = names(&["worker-1", "worker-1.example.net", "10.0.0.7", "fd00::7"]);
    for certificate_name in [
        "worker-1",
        "worker-1.example.net",
        "10.0.0.7",
        "fd00::7",
        "*.example.net",
    ] {
        let server = ca
            .pair(&["unrelated.example.org", certificate_name])
            .serve();
        // The dialled address is not in the certificate.
        connect(&server, &client.for_peer(set.clone()), "192.0.2.1").await;
    }
}

#[tokio::test]
async fn without_a_set_the_dialled_name_counts() {
    let ca = TestCa::new("cluster");
    let client = trusting(ca.roots());
    let server = ca.pair(&["worker-1", "10.0.0.7"]).serve();
    connect(&server, &client, "worker-1").await;
    connect(&server, &client, "10.0.0.7").await;
    assert_eq!(
        failure(&server, &client, "10.0.0.8").await.to_string(),
        "the certificate is valid for worker-1, 10.0.0.7, not for 10.0.0.8"
    );
}

#[tokio::test]
async fn a_name_mismatch_reports_both_lists() {
    let ca = TestCa::new("cluster");
    let client = trusting(ca.roots()).for_peer(names(&["worker-1", "10.0.0.7"]));
    let server = ca.pair(&["worker-2", "*.example.net", "10.0.0.8"]).serve();
    let failure = failure(&server, &client, "10.0.0.8").await;
    assert_eq!(failure.reason(), "tls-san");
    assert_eq!(
        failure.to_string(),
        "the certificate is valid for worker-2, *.example.net, 10.0.0.8, \
         not for any of worker-1, 10.0.0.7"
    );
}

#[tokio::test]
async fn a_wildcard_covers_one_label_only() {
    let ca = TestCa::new("cluster");
    let client = trusting(ca.roots()).for_peer(names(&["a.b.example.net", "example.net"]));
    let server = ca.pair(&["*.example.net"]).serve();
    assert_eq!(
        failure(&server, &client, "10.0.0.8").await.reason(),
        "tls-san"
    );
}

#[tokio::test]
async fn an_address_in_a_dns_name_is_no_address() {
    let ca = TestCa::new("cluster");
    let mut params = params(&[], now() - DAY, now() + DAY);
    params.subject_alt_names = vec![rcgen::SanType::DnsName("10.0.0.7".try_into().unwrap())];
    let server = ca.issue(&params).serve();
    let client = trusting(ca.roots()).for_peer(names(&["10.0.0.7"]));
    assert_ne!(
        failure(&server, &client, "10.0.0.7").await.reason(),
        "tls-ca"
    );
}

#[tokio::test]
async fn long_lists_are_shortened() {
    let ca = TestCa::new("cluster");
    let many: Vec<String> = (0..300)
        .map(|n| format!("{}{n}.example", "x".repeat(50)))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let server = ca.pair(&many).serve();
    let client = trusting(ca.roots()).for_peer(names(&["worker-1"]));
    let text = failure(&server, &client, "10.0.0.7").await.to_string();
    assert!(text.contains("and 292 more"), "{text}");
    assert!(text.len() < 1000, "{} bytes", text.len());
}

#[tokio::test]
async fn a_certificate_without_alternative_names_is_reported() {
    let ca = TestCa::new("cluster");
    let mut params = params(&[], now() - DAY, now() + DAY);
    params
        .distinguished_name
        .push(DnType::CommonName, "worker-1");
    let server = ca.issue(&params).serve();
    let client = trusting(ca.roots()).for_peer(names(&["worker-1"]));
    assert_eq!(
        failure(&server, &client, "10.0.0.7").await.to_string(),
        "the certificate is valid for no name (it has no subject alternative names, \
         only the subject CN=worker-1), not for any of worker-1"
    );
}

#[tokio::test]
async fn an_unknown_issuer_is_reported() {
    let server = TestCa::new("node-ca@17").pair(&["worker-1"]).serve();
    let client = trusting(TestCa::new("cluster").roots()).for_peer(names(&["worker-1"]));
    let failure = failure(&server, &client, "10.0.0.7").await;
    assert_eq!(failure.reason(), "tls-ca");
    assert_eq!(
        failure,
        HandshakeFailure::UntrustedIssuer {
            issuer: "CN=node-ca@17".to_owned()
        }
    );
}

#[tokio::test]
async fn an_issuer_with_the_name_of_a_known_authority_is_unknown() {
    let server = TestCa::new("kubernetes").pair(&["worker-1"]).serve();
    let client = trusting(TestCa::new("kubernetes").roots());
    let failure = failure(&server, &client, "worker-1").await;
    assert_eq!(failure.reason(), "tls-ca");
    assert_eq!(
        failure.to_string(),
        "the certificate is signed by an authority that is not in the CA bundle: \
         CN=kubernetes (the bundle has one of that name, with another key)"
    );
}

#[tokio::test]
async fn validity_is_checked_at_each_handshake() {
    let ca = TestCa::new("cluster");
    let server = ca.issue(&params(&["worker-1"], now(), now() + DAY)).serve();
    let clock = Clock::at(now());
    let mut options = client_options();
    options.clock = Some(Arc::clone(&clock) as _);
    let client = ClientTls::trusting(ca.roots(), &options)
        .unwrap()
        .for_peer(names(&["worker-1"]));
    connect(&server, &client, "10.0.0.7").await;

    clock.set(now() + 2 * DAY);
    let expired = failure(&server, &client, "10.0.0.7").await;
    assert_eq!(
        expired,
        HandshakeFailure::Expired {
            not_after: Some(now() + DAY)
        }
    );
    assert_eq!(
        expired.to_string(),
        "the certificate expired at 2027-01-16T08:00:00Z"
    );
    assert_eq!(expired.reason(), "tls-expired");

    clock.set(now() - DAY);
    let early = failure(&server, &client, "10.0.0.7").await;
    assert_eq!(
        early,
        HandshakeFailure::NotYetValid {
            not_before: Some(now())
        }
    );
    assert_eq!(early.reason(), "tls-not-yet-valid");
}

#[tokio::test]
async fn a_client_certificate_is_rejected_for_a_server() {
    let ca = TestCa::new("cluster");
    let mut params = params(&["worker-1"], now() - DAY, now() + DAY);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let server = ca.issue(&params).serve();
    let failure = failure(&server, &trusting(ca.roots()), "worker-1").await;
    assert_eq!(failure.reason(), "tls-certificate");
}

#[tokio::test]
async fn a_ca_certificate_as_server_certificate_is_reported() {
    let ca = TestCa::new("cluster");
    let mut params = params(&["worker-1"], now() - DAY, now() + DAY);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "worker-1");
    let server = ca.issue(&params).serve();
    assert_eq!(
        failure(&server, &trusting(ca.roots()), "worker-1").await,
        HandshakeFailure::AuthorityAsServer {
            subject: "CN=worker-1".to_owned()
        }
    );
}

#[tokio::test]
async fn without_verification_any_server_is_accepted() {
    let server = TestCa::new("anyone").pair(&["elsewhere"]).serve();
    let client = ClientTls::dangerous_without_verification(&client_options()).unwrap();
    connect(&server, &client.for_peer(names(&["worker-1"])), "10.0.0.7").await;
    assert_eq!(client.verified(), None);
    assert!(
        trusting(TestCa::new("cluster").roots())
            .verified()
            .is_some()
    );
}

#[tokio::test]
async fn a_peer_without_tls_is_a_protocol_error() {
    use tokio::io::AsyncWriteExt;

    let (near, mut far) = tokio::io::duplex(1024);
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .await
        .unwrap();
    let client = trusting(TestCa::new("cluster").roots());
    let connector = tokio_rustls::TlsConnector::from(client.config());
    let name = rustls_pki_types::ServerName::try_from("worker-1").unwrap();
    let error = connector.connect(name, near).await.unwrap_err();
    assert_eq!(
        HandshakeFailure::from_io(&error).unwrap().reason(),
        "tls-protocol"
    );
}

#[tokio::test]
async fn an_intermediate_certificate_is_followed() {
    let root = TestCa::new("root");
    let middle_key = rcgen::KeyPair::generate().unwrap();
    let mut middle = params(&[], now() - DAY, now() + DAY);
    middle.distinguished_name.push(DnType::CommonName, "middle");
    middle.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let middle_pem = root.sign(&middle, &middle_key);
    let issuer = rcgen::Issuer::new(middle, middle_key);
    let leaf_key = rcgen::KeyPair::generate().unwrap();
    let leaf = params(&["worker-1"], now() - DAY, now() + DAY).signed_by(&leaf_key, &issuer);
    let certificate = kubevitals_tls::ReloadingKeyPair::load(
        "chain",
        crate::support::inline("chain", &(leaf.unwrap().pem() + &middle_pem)),
        crate::support::inline("key", &leaf_key.serialize_pem()),
        now(),
    );
    let server = kubevitals_tls::ServerTls::new(certificate.unwrap(), &server_options()).unwrap();
    connect(&server, &trusting(root.roots()), "worker-1").await;
}

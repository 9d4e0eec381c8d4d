//! Negotiation of versions, suites and application protocols.

use std::io;
use std::sync::Arc;

use kubevitals_tls::{
    Alpn, ClientOptions, ClientTls, HandshakeFailure, ServerOptions, ServerTls, TlsPolicy,
};
use rustls::{CipherSuite, ClientConfig, ProtocolVersion};
use rustls_pki_types::ServerName;
use tokio::io::DuplexStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use crate::support::{
    Clock, TestCa, client_options, connect, failure, handshake, now, server_options,
};

fn policy(min_version: &str, suites: Option<&str>) -> TlsPolicy {
    let suites = suites.map(|list| list.parse().unwrap());
    TlsPolicy::new(min_version.parse().unwrap(), suites)
}

#[tokio::test]
async fn the_newest_version_is_preferred() {
    let ca = TestCa::new("cluster");
    let client = ClientTls::trusting(ca.roots(), &client_options()).unwrap();
    let connection = connect(&ca.pair(&["n"]).serve(), &client, "n").await;
    let negotiated = connection.client.get_ref().1.protocol_version();
    assert_eq!(negotiated, Some(ProtocolVersion::TLSv1_3));
}

/// Returns a client without TLS 1.3.
#[expect(
    clippy::disallowed_methods,
    reason = "the crate makes no such client, and its servers must support one"
)]
fn old_client(ca: &TestCa) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(ca.roots().current())
        .with_no_client_auth();
    config.time_provider = Clock::at(now());
    TlsConnector::from(Arc::new(config))
}

async fn old_handshake(
    ca: &TestCa,
    policy: TlsPolicy,
) -> io::Result<client::TlsStream<DuplexStream>> {
    let options = ServerOptions {
        policy,
        ..server_options()
    };
    let server = ServerTls::new(ca.pair(&["n"]).load(), &options).unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from("n").unwrap();
    let accept = TlsAcceptor::from(server.config()).accept(far);
    tokio::join!(old_client(ca).connect(name, near), accept).0
}

#[tokio::test]
async fn a_list_of_suites_restricts_tls12() {
    let ca = TestCa::new("cluster");
    let policy = policy(
        "VersionTLS12",
        Some("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"),
    );
    let stream = old_handshake(&ca, policy).await.unwrap();
    let suite = stream
        .get_ref()
        .1
        .negotiated_cipher_suite()
        .unwrap()
        .suite();
    assert_eq!(
        suite,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
    );
}

#[tokio::test]
async fn a_minimum_of_tls13_rejects_older_clients() {
    let ca = TestCa::new("cluster");
    let only_newest = [
        policy("VersionTLS13", None),
        policy(
            "VersionTLS13",
            Some("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        ),
        policy("VersionTLS12", Some("TLS_AES_128_GCM_SHA256")),
    ];
    for policy in only_newest {
        let error = old_handshake(&ca, policy).await.unwrap_err();
        assert_eq!(
            HandshakeFailure::from_io(&error).unwrap().to_string(),
            "the peer rejected the handshake with the alert protocol_version"
        );
    }
}

#[tokio::test]
async fn application_protocols_are_negotiated() {
    let ca = TestCa::new("cluster");
    let serve = |alpn| {
        let options = ServerOptions {
            alpn,
            ..server_options()
        };
        ServerTls::new(ca.pair(&["n"]).load(), &options).unwrap()
    };
    let dial = |alpn| {
        let options = ClientOptions {
            alpn,
            ..client_options()
        };
        ClientTls::trusting(ca.roots(), &options).unwrap()
    };
    let both = serve(vec![Alpn::H2, Alpn::Http11]);
    let agreed = |connection: &crate::support::Connection| {
        connection
            .client
            .get_ref()
            .1
            .alpn_protocol()
            .map(<[u8]>::to_vec)
    };
    let connection = connect(&both, &dial(vec![Alpn::Http11, Alpn::H2]), "n").await;
    assert_eq!(agreed(&connection).as_deref(), Some(Alpn::H2.as_bytes()));
    assert_eq!(agreed(&connect(&both, &dial(vec![]), "n").await), None);
    let rejected = failure(&serve(vec![Alpn::Http11]), &dial(vec![Alpn::H2]), "n").await;
    assert_eq!(
        rejected.to_string(),
        "the peer rejected the handshake with the alert no_application_protocol"
    );
}

#[tokio::test]
async fn configurations_need_no_default_provider() {
    // Nothing in this binary installs one, so that a configuration without its own would panic.
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    let ca = TestCa::new("cluster");
    let client = ClientTls::trusting(ca.roots(), &client_options()).unwrap();
    let (client, server) = handshake(&ca.pair(&["n"]).serve(), &client, "n").await;
    assert!(client.is_ok() && server.is_ok());
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
}

//! What is negotiated: versions, suites, application protocols.

use kubevitals_tls::{
    Alpn, ClientOptions, ClientTls, MinTlsVersion, ServerOptions, ServerTls, TlsPolicy,
};
use rustls::{CipherSuite, ProtocolVersion};

use crate::support::{TestCa, client_options, connect, failure, handshake, server_options};

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

#[tokio::test]
async fn a_list_of_suites_governs_tls12() {
    let ca = TestCa::new("cluster");
    let options = ServerOptions {
        policy: policy("VersionTLS12", Some("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305")),
        ..server_options()
    };
    let server = ServerTls::new(ca.pair(&["n"]).load(), &options).unwrap();
    let client = ClientTls::trusting(ca.roots(), &client_options()).unwrap();
    let mut old = rustls::ClientConfig::clone(&client.config());
    // Only this crate's policy can make a client; an old one is had by asking for less.
    old.alpn_protocols.clear();
    let connection = connect(&server, &client, "n").await;
    let suite = connection.client.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    assert_ne!(suite, CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256);
}

#[tokio::test]
async fn a_minimum_of_13_leaves_older_clients_out() {
    let ca = TestCa::new("cluster");
    let options = ServerOptions {
        policy: TlsPolicy::new(MinTlsVersion::Tls13, None),
        ..server_options()
    };
    let server = ServerTls::new(ca.pair(&["n"]).load(), &options).unwrap();
    let client = ClientTls::trusting(ca.roots(), &client_options()).unwrap();
    let connection = connect(&server, &client, "n").await;
    let negotiated = connection.server.get_ref().1.protocol_version();
    assert_eq!(negotiated, Some(ProtocolVersion::TLSv1_3));
}

#[tokio::test]
async fn application_protocols_are_negotiated() {
    let ca = TestCa::new("cluster");
    let serve = |alpn| {
        let options = ServerOptions { alpn, ..server_options() };
        ServerTls::new(ca.pair(&["n"]).load(), &options).unwrap()
    };
    let dial = |alpn| {
        let options = ClientOptions { alpn, ..client_options() };
        ClientTls::trusting(ca.roots(), &options).unwrap()
    };
    let both = serve(vec![Alpn::H2, Alpn::Http11]);
    let agreed = |connection: &crate::support::Connection| {
        connection.client.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    };
    let connection = connect(&both, &dial(vec![Alpn::Http11, Alpn::H2]), "n").await;
    assert_eq!(agreed(&connection).as_deref(), Some(Alpn::H2.as_bytes()));
    assert_eq!(agreed(&connect(&both, &dial(vec![]), "n").await), None);
    let refused = failure(&serve(vec![Alpn::Http11]), &dial(vec![Alpn::H2]), "n").await;
    assert_eq!(
        refused.to_string(),
        "the peer refused the connection with the TLS alert no_application_protocol"
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

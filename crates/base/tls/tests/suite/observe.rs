//! What a peer presents, whether it is accepted or not.

use std::time::SystemTime;

use kubevitals_tls::{
    Alpn, ClientOptions, ClientTls, HandshakeFailure, ObservedPeer, ServerTls, TlsPolicy,
};
use rustls::ProtocolVersion;
use rustls_pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{DAY, TestCa, client_options, connect, now, trusting};

/// Makes one handshake at a time, and returns its failure and what was observed.
async fn observe(
    client: &ClientTls,
    server: &ServerTls,
    time: SystemTime,
) -> (Option<HandshakeFailure>, ObservedPeer) {
    let (config, peer) = client.observed(&[Alpn::Http11], time);
    let (near, far) = tokio::io::duplex(64 * 1024);
    let acceptor = TlsAcceptor::from(server.config());
    let name = ServerName::try_from("worker-1").unwrap();
    let connector = TlsConnector::from(config);
    let (connected, _) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    let failure = connected.err();
    let failure = failure.map(|error| HandshakeFailure::from_io(&error).unwrap());
    (failure, peer)
}

#[tokio::test]
async fn a_chain_is_observed_also_if_it_is_rejected() {
    let ca = TestCa::new("cluster");
    let client = trusting(ca.roots());
    let pair = ca.pair(&["worker-1"]);
    let (failure, peer) = observe(&client, &pair.serve(), now()).await;
    assert_eq!(failure, None);
    assert_eq!(peer.chain(), std::slice::from_ref(&pair.der));
    assert!(peer.is_accepted());
    // The same at another time, for another name, and of another authority.
    let (failure, peer) = observe(&client, &pair.serve(), now() + 1000 * DAY).await;
    assert!(matches!(failure, Some(HandshakeFailure::Expired { .. })));
    assert_eq!(peer.chain(), std::slice::from_ref(&pair.der));
    assert!(!peer.is_accepted());
    let other = ca.pair(&["worker-2"]);
    let (failure, peer) = observe(&client, &other.serve(), now()).await;
    assert!(matches!(
        failure,
        Some(HandshakeFailure::NameMismatch { .. })
    ));
    assert_eq!(peer.chain(), [other.der]);
    assert!(!peer.is_accepted());
    let stranger = TestCa::new("somebody else").pair(&["worker-1"]);
    let (failure, peer) = observe(&client, &stranger.serve(), now()).await;
    assert!(matches!(
        failure,
        Some(HandshakeFailure::UntrustedIssuer { .. })
    ));
    assert_eq!(peer.chain(), [stranger.der]);
}

#[tokio::test]
async fn each_handshake_has_an_observation_of_its_own() {
    let ca = TestCa::new("cluster");
    let client = trusting(ca.roots());
    let (_, unused) = client.observed(&[], now());
    let (_, peer) = observe(&client, &ca.pair(&["worker-1"]).serve(), now()).await;
    assert_eq!(peer.chain().len(), 1);
    assert!(unused.chain().is_empty());
    assert!(!unused.is_accepted());
}

#[tokio::test]
async fn a_client_can_be_limited_to_tls12() {
    let ca = TestCa::new("cluster");
    let options = ClientOptions {
        policy: TlsPolicy::default().with_tls12_only(),
        ..client_options()
    };
    let client = ClientTls::trusting(ca.roots(), &options).unwrap();
    let connection = connect(&ca.pair(&["n"]).serve(), &client, "n").await;
    let version = connection.client.get_ref().1.protocol_version();
    assert_eq!(version, Some(ProtocolVersion::TLSv1_2));
}

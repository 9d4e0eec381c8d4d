//! Certificates, keys and bundles that change while connections are open.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use kubevitals_tls::{
    ClientOptions, ClientTls, HandshakeFailure, PemSource, Refresh, Refreshed, ReloadingKeyPair,
    ServerOptions, ServerTls, TlsError, TrustRoots,
};
use rustls::server::WebPkiClientVerifier;
use tokio::io::AsyncReadExt;

use crate::support::{
    Connection, DAY, Files, TestCa, TestPair, client_options, connect, failure, handshake,
    handshake_with, now, server_options, trusting,
};

fn load(files: &Files) -> Arc<ReloadingKeyPair> {
    let source = |name| PemSource::File(files.path(name));
    ReloadingKeyPair::load("serving", source("tls.crt"), source("tls.key"), now()).unwrap()
}

/// Returns a server that requires client certificates of one authority.
fn requiring_server(ca: &TestCa, pair: &TestPair) -> ServerTls {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(ca.roots().current(), provider);
    let client_verifier = Some(verifier.build().unwrap() as _);
    let options = ServerOptions {
        client_verifier,
        ..server_options()
    };
    ServerTls::new(pair.load(), &options).unwrap()
}

#[tokio::test]
async fn a_new_certificate_is_presented_to_the_next_connection() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let (first, second) = (ca.pair(&["server"]), ca.pair(&["server"]));
    files.write_pair(&first);
    let certificate = load(&files);
    let server = ServerTls::new(Arc::clone(&certificate) as _, &server_options()).unwrap();
    let client = trusting(ca.roots());
    let mut old = connect(&server, &client, "server").await;
    assert_eq!(old.server_certificate(), first.der);
    assert_eq!(certificate.refresh(now()).unwrap(), Refreshed::Unchanged);

    files.write_pair(&second);
    assert_eq!(
        certificate.refresh(now() + DAY).unwrap(),
        Refreshed::Replaced
    );
    assert_eq!(
        connect(&server, &client, "server")
            .await
            .server_certificate(),
        second.der
    );
    old.exchange().await;

    let status = certificate.status();
    assert_eq!((status.replaced, status.failed), (1, 0));
    assert_eq!(status.loaded_at, now() + DAY);
    assert_eq!(status.not_after, Some(now() + 365 * DAY));
}

#[tokio::test]
async fn a_secret_volume_that_swaps_its_directory_is_reloaded() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let (first, second) = (ca.pair(&["server"]), ca.pair(&["server"]));
    for (folder, pair) in [("..v1", &first), ("..v2", &second)] {
        std::fs::create_dir(files.path(folder)).unwrap();
        files.write(&format!("{folder}/tls.crt"), &pair.certificate);
        files.write(&format!("{folder}/tls.key"), &pair.key);
    }
    symlink("..v1", files.path("..data")).unwrap();
    symlink("..data/tls.crt", files.path("tls.crt")).unwrap();
    symlink("..data/tls.key", files.path("tls.key")).unwrap();
    let certificate = load(&files);
    assert_eq!(certificate.chain(), [first.der]);
    symlink("..v2", files.path("..data_tmp")).unwrap();
    std::fs::rename(files.path("..data_tmp"), files.path("..data")).unwrap();
    assert_eq!(certificate.refresh(now()).unwrap(), Refreshed::Replaced);
    assert_eq!(certificate.chain(), [second.der]);
}

#[tokio::test]
async fn an_invalid_file_keeps_the_old_certificate() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let (first, second) = (ca.pair(&["server"]), ca.pair(&["server"]));
    files.write_pair(&first);
    let certificate = load(&files);
    let server = ServerTls::new(Arc::clone(&certificate) as _, &server_options()).unwrap();

    let half = &second.certificate.as_bytes()[..second.certificate.len() / 2];
    files.write("tls.crt", half);
    let error = certificate.refresh(now() + DAY).unwrap_err();
    let text = error.to_string();
    assert!(
        text.ends_with("tls.crt contains a truncated PEM block"),
        "{text}"
    );
    let presented = connect(&server, &trusting(ca.roots()), "server")
        .await
        .server_certificate();
    assert_eq!(presented, first.der);
    let status = certificate.status();
    assert_eq!(status.last_error.as_deref(), Some(text.as_str()));
    assert_eq!(status.failing_since, Some(now() + DAY));
    assert_eq!((status.replaced, status.failed), (0, 1));
    assert_eq!(status.loaded_at, now());

    // The old contents again: unchanged, and no error.
    files.write_pair(&first);
    assert_eq!(
        certificate.refresh(now() + 2 * DAY).unwrap(),
        Refreshed::Unchanged
    );
    assert_eq!(certificate.status().last_error, None);
    assert_eq!(certificate.status().failing_since, None);
    files.write_pair(&second);
    assert_eq!(
        certificate.refresh(now() + 3 * DAY).unwrap(),
        Refreshed::Replaced
    );
}

#[tokio::test]
async fn a_key_of_another_certificate_is_rejected() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let (first, second) = (ca.pair(&["server"]), ca.pair(&["server"]));
    files.write_pair(&first);
    let certificate = load(&files);
    files.write("tls.crt", &second.certificate);
    let error = certificate.refresh(now()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the private key in {} does not belong to the first certificate in {}",
            files.path("tls.key").display(),
            files.path("tls.crt").display(),
        )
    );
    assert_eq!(certificate.chain(), std::slice::from_ref(&first.der));

    files.write("tls.crt", ca.pem() + &first.certificate);
    let error = certificate.refresh(now()).unwrap_err();
    assert!(
        matches!(
            error,
            TlsError::KeyMismatch {
                belongs_to: Some(2),
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("put the server's own certificate first"),
        "{error}"
    );
}

#[tokio::test]
async fn each_handshake_uses_the_current_roots() {
    let (old, new, files) = (TestCa::new("old"), TestCa::new("new"), Files::new());
    let bundle = files.write("ca.crt", old.pem());
    let roots = TrustRoots::load("kubelet", vec![bundle.into()], now()).unwrap();
    let client = trusting(Arc::clone(&roots));
    let (old_server, new_server) = (old.pair(&["n"]).serve(), new.pair(&["n"]).serve());
    let mut open = connect(&old_server, &client, "n").await;
    assert_eq!(failure(&new_server, &client, "n").await.reason(), "tls-ca");

    files.write("ca.crt", old.pem() + &new.pem());
    assert_eq!(roots.refresh(now()).unwrap(), Refreshed::Replaced);
    connect(&old_server, &client, "n").await;
    connect(&new_server, &client, "n").await;

    files.write("ca.crt", new.pem());
    assert_eq!(roots.refresh(now()).unwrap(), Refreshed::Replaced);
    assert_eq!(failure(&old_server, &client, "n").await.reason(), "tls-ca");
    connect(&new_server, &client, "n").await;
    open.exchange().await;

    files.write("ca.crt", "");
    assert!(roots.refresh(now()).is_err());
    connect(&new_server, &client, "n").await;
}

#[tokio::test]
async fn sessions_are_not_resumed_after_their_authority_is_removed() {
    let (old, new, files) = (TestCa::new("old"), TestCa::new("new"), Files::new());
    let bundle = files.write("ca.crt", old.pem());
    let roots = TrustRoots::load("kubelet", vec![bundle.into()], now()).unwrap();
    let client = trusting(Arc::clone(&roots));
    // Go servers send tickets, ours do not.
    let mut config = rustls::ServerConfig::clone(&old.pair(&["n"]).serve().config());
    config.session_storage = rustls::server::ServerSessionMemoryCache::new(32);
    config.send_tls13_tickets = 2;
    let config = Arc::new(config);
    let (stream, peer) = handshake_with(Arc::clone(&config), &client, "n").await;
    let mut connection = Connection {
        client: stream.unwrap(),
        server: peer.unwrap(),
    };
    // Tickets arrive with the first response.
    connection.exchange().await;

    files.write("ca.crt", new.pem());
    roots.refresh(now()).unwrap();
    let (stream, _) = handshake_with(config, &client, "n").await;
    let failure = HandshakeFailure::from_io(&stream.unwrap_err()).unwrap();
    assert_eq!(failure.reason(), "tls-ca");
}

#[tokio::test]
async fn several_bundles_are_merged() {
    let (one, two, files) = (TestCa::new("one"), TestCa::new("two"), Files::new());
    let sources = vec![
        files.write("one.crt", one.pem()).into(),
        files.write("two.crt", two.pem()).into(),
    ];
    let client = trusting(TrustRoots::load("kubelet", sources, now()).unwrap());
    connect(&one.pair(&["n"]).serve(), &client, "n").await;
    connect(&two.pair(&["n"]).serve(), &client, "n").await;
}

#[tokio::test]
async fn a_client_certificate_is_reloaded_too() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let (first, second) = (ca.pair(&["client"]), ca.pair(&["client"]));
    files.write_pair(&first);
    let identity = load(&files);
    let options = ClientOptions {
        identity: Some(Arc::clone(&identity)),
        ..client_options()
    };
    let client = ClientTls::trusting(ca.roots(), &options).unwrap();
    let server = requiring_server(&ca, &ca.pair(&["server"]));
    let mut old = connect(&server, &client, "server").await;
    assert_eq!(old.client_certificate(), Some(first.der));

    files.write_pair(&second);
    assert_eq!(identity.refresh(now()).unwrap(), Refreshed::Replaced);
    let new = connect(&server, &client, "server").await;
    assert_eq!(new.client_certificate(), Some(second.der));
    old.exchange().await;
}

#[tokio::test]
async fn a_missing_client_certificate_is_reported() {
    let ca = TestCa::new("cluster");
    let server = requiring_server(&ca, &ca.pair(&["server"]));
    let (client, rejected) = handshake(&server, &trusting(ca.roots()), "server").await;
    assert!(rejected.is_err());
    // With TLS 1.3 the client receives the alert at the first read.
    let error = client.unwrap().read_u8().await.unwrap_err();
    assert_eq!(
        HandshakeFailure::from_io(&error).unwrap().to_string(),
        "the peer rejected the handshake with the alert certificate_required"
    );
}

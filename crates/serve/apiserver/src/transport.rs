//! The transports of servers, and the tasks that keep their certificates fresh.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kubevitals_http::{Accepted, Transport};
use kubevitals_tls::{
    Alpn, Periodic, Refresh, RequestClientCertificate, ServerOptions, ServerTls, TlsError,
    TlsPolicy, refresh_loop,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authn::Peer;
use crate::certificate::ServingCertificate;

/// Interval of certificate reloads.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);

/// A task that runs as long as the server, with its name.
pub type BackgroundTask = (&'static str, BoxFuture<'static, ()>);

/// Performs TLS handshakes and reads client certificates, which are requested and not required.
pub struct TlsTransport {
    acceptor: TlsAcceptor,
}

/// HTTP/1.1 without TLS, for tests: clients have no certificates.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainTransport;

impl TlsTransport {
    /// Serves a certificate; with `http2` clients may choose HTTP/2.
    pub fn new(
        certificate: &ServingCertificate,
        policy: &TlsPolicy,
        http2: bool,
    ) -> Result<Self, TlsError> {
        let alpn = if http2 {
            vec![Alpn::H2, Alpn::Http11]
        } else {
            vec![Alpn::Http11]
        };
        let options = ServerOptions {
            policy: policy.clone(),
            alpn,
            client_verifier: Some(RequestClientCertificate::verifier()),
            clock: None,
        };
        let tls = ServerTls::new(certificate.resolver(), &options)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(tls.config()),
        })
    }
}

impl Transport for TlsTransport {
    type Io = TlsStream<TcpStream>;
    type Peer = Peer;

    async fn handshake(
        &self,
        stream: TcpStream,
        _address: IpAddr,
    ) -> io::Result<Accepted<Self::Io, Peer>> {
        let stream = self.acceptor.accept(stream).await?;
        let (_, session) = stream.get_ref();
        Ok(Accepted {
            peer: Peer::new(session.peer_certificates().unwrap_or_default()),
            is_http2: session.alpn_protocol() == Some(b"h2"),
            io: stream,
        })
    }
}

impl Transport for PlainTransport {
    type Io = TcpStream;
    type Peer = Peer;

    async fn handshake(
        &self,
        stream: TcpStream,
        _address: IpAddr,
    ) -> io::Result<Accepted<TcpStream, Peer>> {
        Ok(Accepted {
            io: stream,
            peer: Peer::default(),
            is_http2: false,
        })
    }
}

/// Refreshes certificates and authorities until the future is dropped.
pub(crate) fn refresh_task(name: &'static str, refreshed: Vec<Arc<dyn Refresh>>) -> BackgroundTask {
    let ticks = Periodic::new(REFRESH_INTERVAL, std::future::pending());
    (name, Box::pin(refresh_loop(refreshed, ticks)))
}

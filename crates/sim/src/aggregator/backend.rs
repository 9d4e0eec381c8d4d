//! Connections to the servers behind `APIService`s: one HTTP/2 connection each, shared by all
//! requests, or one HTTP/1.1 connection per request if the server supports nothing else.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubevitals_tls::ClientTls;
use parking_lot::{Mutex, MutexGuard};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::api::body::Body;

/// Limit for dialing and the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The address to dial and the identity to expect there.
#[derive(Clone)]
pub(super) struct Backend {
    /// Key of the connection: other trust roots need another connection.
    key: String,
    address: String,
    host: String,
    connector: TlsConnector,
}

/// A response that has not arrived yet.
type Pending = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// Open connections.
#[derive(Default)]
pub(super) struct Connections {
    context: Mutex<HashMap<String, http2::SendRequest<Body>>>,
    drivers: Mutex<JoinSet<()>>,
}

impl Backend {
    pub(super) fn new(key: String, address: String, host: String, tls: &ClientTls) -> Self {
        Self {
            key,
            address,
            host,
            connector: TlsConnector::from(tls.config()),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The host name for requests.
    pub(super) fn host(&self) -> &str {
        &self.host
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({} at {})", self.host, self.address)
    }
}

impl Connections {
    /// Sends a request; the error is a message that says why there is no response.
    pub(super) async fn send(
        &self,
        backend: &Backend,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, String> {
        let open = self.lock().get(&backend.key).cloned();
        if let Some(mut sender) = open {
            if sender.ready().await.is_ok() {
                return sender
                    .send_request(request)
                    .await
                    .map_err(|error| explain(&error));
            }
            self.lock().remove(&backend.key);
        }
        let dial = timeout(CONNECT_TIMEOUT, self.dial(backend, request));
        match dial.await {
            Ok(outcome) => outcome?.await.map_err(|error| explain(&error)),
            Err(_) => Err(format!("dial tcp {}: i/o timeout", backend.address)),
        }
    }

    /// Closes all connections.
    pub(super) async fn close(&self) {
        self.lock().clear();
        let mut drivers = std::mem::take(&mut *self.drivers.lock());
        drivers.shutdown().await;
    }

    /// Opens a connection and sends the request; the returned future waits for the response.
    async fn dial(&self, backend: &Backend, mut request: Request<Body>) -> Result<Pending, String> {
        let address = &backend.address;
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| format!("dial tcp {address}: {error}"))?;
        let _best_effort = stream.set_nodelay(true);
        let name = ServerName::try_from(backend.host.clone())
            .map_err(|error| format!("{}: {error}", backend.host))?;
        let stream = backend
            .connector
            .connect(name, stream)
            .await
            .map_err(|error| error.to_string())?;
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        if speaks_http2 {
            let (mut sender, driver) = http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(|error| explain(&error))?;
            self.drive(driver);
            self.lock().insert(backend.key.clone(), sender.clone());
            return Ok(Box::pin(sender.send_request(request)));
        }
        let (mut sender, driver) = http1::handshake(io)
            .await
            .map_err(|error| explain(&error))?;
        self.drive(driver);
        // HTTP/1.1 needs the path alone and the host in a header.
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned();
        if let Ok(uri) = path.parse() {
            *request.uri_mut() = uri;
        }
        if let Ok(host) = backend.host.parse() {
            request.headers_mut().insert(http::header::HOST, host);
        }
        Ok(Box::pin(async move { sender.send_request(request).await }))
    }

    fn drive(&self, driver: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let mut drivers = self.drivers.lock();
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async move {
            // The requests on the connection report the error themselves.
            let _ended = driver.await;
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, http2::SendRequest<Body>>> {
        self.context.lock()
    }
}

/// Formats an error with its source: hyper's own message says little.
fn explain(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

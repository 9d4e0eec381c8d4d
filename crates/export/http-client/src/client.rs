//! Connections and requests.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Builder, Error as PoolError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kubevitals_tls::{
    ClientOptions, ClientTls, PemSource, Refresh as _, ReloadingKeyPair, TlsError, TrustRoots,
    system_bundle,
};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use thiserror::Error;

/// The value of `User-Agent`.
pub const AGENT: &str = concat!("kubevitals/", env!("CARGO_PKG_VERSION"));

/// An idle connection is closed after this.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// A connection of HTTP/2 that is in use and silent is pinged after this, and has as long to
/// answer.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// How to connect.
#[derive(Debug, Clone, Default)]
pub struct Options<'o> {
    pub version: Version,
    /// `None` for plain HTTP only.
    pub trust: Option<Trust>,
    /// The URL of a proxy that speaks plain HTTP.
    pub proxy: Option<&'o str>,
}

/// The version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    #[default]
    Http1,
    Http2,
}

/// The authorities of servers, and the certificate of the client.
#[derive(Debug, Clone)]
pub struct Trust {
    /// The name of the authorities in logs and metrics.
    pub name: &'static str,
    /// `None` for those of the system.
    pub authorities: Option<PathBuf>,
    pub identity: Option<IdentityFiles>,
    /// Whether URLs without TLS are requested too.
    pub allows_plain: bool,
}

/// The client certificate, for servers that require one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Sends requests over connections that stay open.
pub struct HttpClient {
    pool: Pool,
    tls: Option<Tls>,
}

/// An error of [`HttpClient::new`]. Secrets are not repeated.
#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("no authorities to trust are installed on this system")]
    NoAuthorities,
    #[error("failed to configure TLS")]
    Tls(#[source] TlsError),
    #[error("the proxy (HTTP_PROXY, HTTPS_PROXY) is not of the form http://HOST:PORT")]
    Proxy,
}

/// A request without a whole response. It has the causes in its text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RequestError(String);

/// The files of TLS, reloaded after a failure.
struct Tls {
    roots: Arc<TrustRoots>,
    identity: Option<Arc<ReloadingKeyPair>>,
}

type Sending =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, PoolError>> + Send + 'static>>;

/// Sends requests over a pool of connections, of whatever kind these are.
type Pool = Box<dyn Fn(Request<Full<Bytes>>) -> Sending + Send + Sync>;

impl HttpClient {
    /// Reads the files that the options name. No connection is opened.
    pub fn new(options: &Options<'_>) -> Result<Self, ConnectError> {
        let tls = options.trust.as_ref().map(Tls::load).transpose()?;
        Ok(Self {
            pool: connect(options, tls.as_ref())?,
            tls,
        })
    }

    /// Sends a request and returns the response, whose body has up to `limit` bytes, and its
    /// trailers.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limit: usize,
    ) -> Result<(Response<Bytes>, Option<HeaderMap>), RequestError> {
        let response = (self.pool)(request).await;
        let response = response.map_err(|error| RequestError(error_chain(&error)))?;
        let (head, body) = response.into_parts();
        #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
        let body = Limited::new(body, limit).collect().await;
        let body = body.map_err(|error| RequestError(error_chain(&*error)))?;
        let trailers = body.trailers().cloned();
        Ok((Response::from_parts(head, body.to_bytes()), trailers))
    }

    /// Reads the files of certificates again: they are replaced while the process runs, so call it
    /// after a failure.
    pub async fn reload_certificates(&self) {
        let Some(tls) = &self.tls else {
            return;
        };
        let (roots, identity) = (Arc::clone(&tls.roots), tls.identity.clone());
        let reload = move || {
            let now = SystemTime::now();
            // Problems are logged there; the old ones stay.
            let _ = roots.refresh(now);
            let _ = identity.map(|identity| identity.refresh(now));
        };
        let _ = blocking(reload).await;
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// The pool: plain or encrypted, direct or through a proxy.
fn connect(options: &Options<'_>, tls: Option<&Tls>) -> Result<Pool, ConnectError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(IDLE_TIMEOUT / 2));
    let proxy = options.proxy.map(|url| tunnel(url, tcp.clone()));
    let proxy = proxy.transpose()?;
    let tls = tls
        .map(Tls::config)
        .transpose()
        .map_err(ConnectError::Tls)?;
    let version = options.version;
    let allows_plain = options.trust.as_ref().is_some_and(|one| one.allows_plain);
    Ok(match (tls, proxy) {
        (None, None) => pool(version, tcp),
        (None, Some(tunnel)) => pool(version, tunnel),
        (Some(tls), None) => pool(version, encrypted(&tls, version, allows_plain, tcp)),
        (Some(tls), Some(tunnel)) => pool(version, encrypted(&tls, version, allows_plain, tunnel)),
    })
}

fn pool<C: Connect + Clone + Send + Sync + 'static>(version: Version, connector: C) -> Pool {
    let client = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(1)
        .http2_only(version == Version::Http2)
        // A request that times out does not end its connection, which may be dead.
        .http2_keep_alive_interval(PING_TIMEOUT)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector);
    Box::new(move |request| Box::pin(client.request(request)))
}

fn encrypted<C>(
    tls: &ClientTls,
    version: Version,
    allows_plain: bool,
    connector: C,
) -> HttpsConnector<C> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(ClientConfig::clone(&tls.config()));
    let builder = if allows_plain {
        builder.https_or_http()
    } else {
        builder.https_only()
    };
    match version {
        Version::Http1 => builder.enable_http1().wrap_connector(connector),
        Version::Http2 => builder.enable_http2().wrap_connector(connector),
    }
}

/// Tunnels through a proxy that speaks plain HTTP.
fn tunnel(url: &str, tcp: HttpConnector) -> Result<Tunnel<HttpConnector>, ConnectError> {
    let proxy: Uri = url.parse().map_err(|_| ConnectError::Proxy)?;
    if proxy.scheme_str() != Some("http") || proxy.host().is_none_or(str::is_empty) {
        return Err(ConnectError::Proxy);
    }
    let authority = proxy.authority().map_or("", |authority| authority.as_str());
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let tunnel = Tunnel::new(without_user(&proxy)?, tcp);
    let Some(user) = user else {
        return Ok(tunnel);
    };
    let user: Vec<u8> = percent_decode_str(user).collect();
    let basic = format!("Basic {}", STANDARD.encode(user));
    let basic = HeaderValue::try_from(basic).map_err(|_| ConnectError::Proxy)?;
    Ok(tunnel.with_auth(basic))
}

/// The connector of TCP must not see the password.
fn without_user(proxy: &Uri) -> Result<Uri, ConnectError> {
    let host = proxy.host().unwrap_or_default();
    let port = proxy.port_u16().unwrap_or(80);
    let address = format!("http://{host}:{port}/");
    address.parse().map_err(|_| ConnectError::Proxy)
}

impl Tls {
    fn load(trust: &Trust) -> Result<Self, ConnectError> {
        let now = SystemTime::now();
        let source = match &trust.authorities {
            Some(path) => PemSource::File(path.clone()),
            None => system_bundle().ok_or(ConnectError::NoAuthorities)?,
        };
        let roots = TrustRoots::load(trust.name, vec![source], now);
        let identity = trust.identity.as_ref().map(|files| {
            let certificate = PemSource::File(files.certificate.clone());
            let key = PemSource::File(files.key.clone());
            ReloadingKeyPair::load(trust.name, certificate, key, now)
        });
        Ok(Self {
            roots: roots.map_err(ConnectError::Tls)?,
            identity: identity.transpose().map_err(ConnectError::Tls)?,
        })
    }

    fn config(&self) -> Result<ClientTls, TlsError> {
        let options = ClientOptions {
            identity: self.identity.clone(),
            ..ClientOptions::default()
        };
        ClientTls::trusting(Arc::clone(&self.roots), &options)
    }
}

/// Runs what may take longer than other tasks of this thread may wait.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| RequestError(error.to_string()))
}

/// The text of an error with its causes.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

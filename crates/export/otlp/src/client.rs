//! Sends messages of OTLP over HTTP/1.1 or gRPC.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Builder, Error as PoolError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kubevitals_sink::ExportError;
use kubevitals_tls::{
    ClientOptions, ClientTls, PemSource, Refresh as _, ReloadingKeyPair, TlsError, TrustRoots,
    system_bundle,
};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use thiserror::Error;
use tokio::time::timeout;

use crate::grpc;
use crate::response::{grpc_failure, http_failure, rejected_by};
use crate::settings::{Compression, Headers, Protocol, Settings};

const AGENT: &str = concat!("kubevitals/", env!("CARGO_PKG_VERSION"));

/// Maximum size of a response. A receiver has nothing to say but an error.
const MAX_RESPONSE: usize = 64 << 10;

/// Maximum size of a file of headers.
const MAX_HEADER_FILE: u64 = 64 << 10;

/// An idle connection is closed after this.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// A connection of HTTP/2 that is in use and silent is pinged after this, and has as long to
/// answer.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// One of the kinds of telemetry of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its part of the names of variables.
    pub(crate) variable: &'static str,
    /// The variable that can disable it.
    pub(crate) exporter_variable: &'static str,
    /// Its path over HTTP.
    pub(crate) path: &'static str,
    /// Its path over gRPC.
    pub(crate) method: &'static str,
}

/// Sends requests to one receiver, over connections that stay open.
pub struct OtlpClient {
    settings: Settings,
    pool: Pool,
    tls: Option<Tls>,
}

/// An error of [`OtlpClient::new`]. Secrets are not repeated.
#[derive(Debug, Error)]
pub enum ClientError {
    #[error(
        "no authorities to trust are installed on this system; name a file with OTEL_EXPORTER_OTLP_CERTIFICATE"
    )]
    NoAuthorities,
    #[error("failed to configure TLS for the OTLP receiver")]
    Tls(#[source] TlsError),
    #[error("failed to read the headers in {path}: {source}")]
    HeaderFile { path: String, source: io::Error },
    #[error(
        "the proxy for the OTLP receiver (HTTP_PROXY, HTTPS_PROXY) is not of the form http://HOST:PORT"
    )]
    Proxy,
}

/// The files of TLS, reloaded after a failure.
struct Tls {
    roots: Arc<TrustRoots>,
    identity: Option<Arc<ReloadingKeyPair>>,
}

type Sending =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, PoolError>> + Send + 'static>>;

/// Sends requests over a pool of connections, of whatever kind these are.
type Pool = Box<dyn Fn(Request<Full<Bytes>>) -> Sending + Send + Sync>;

impl Signal {
    pub const TRACES: Self = Self {
        variable: "TRACES",
        exporter_variable: "OTEL_TRACES_EXPORTER",
        path: "/v1/traces",
        method: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    };
}

impl OtlpClient {
    /// Reads the files that the settings name. No connection is opened. `proxy` is the URL of a
    /// proxy to the receiver.
    pub fn new(settings: Settings, proxy: Option<&str>) -> Result<Self, ClientError> {
        let tls = settings
            .is_tls()
            .then(|| Tls::load(&settings))
            .transpose()?;
        if let Some(path) = &settings.headers_file {
            read_headers(path)?;
        }
        Ok(Self {
            pool: connect(&settings, tls.as_ref(), proxy)?,
            settings,
            tls,
        })
    }

    /// Sends a message with this number of records, once.
    pub async fn send(&self, message: Vec<u8>, records: u64) -> Result<(), ExportError> {
        let exchange = async {
            let request = self.request(message).await?;
            self.exchange(request, records).await
        };
        let result = timeout(self.settings.timeout, exchange).await;
        let result = result.unwrap_or_else(|_| {
            let limit = self.settings.timeout;
            Err(retryable(format!(
                "the receiver did not answer within {limit:?}"
            )))
        });
        if result.is_err() {
            self.reload_certificates().await;
        }
        result
    }

    async fn request(&self, message: Vec<u8>) -> Result<Request<Full<Bytes>>, ExportError> {
        let compression = self.settings.compression;
        // Compression of a large batch takes some milliseconds.
        let message = match compression {
            Compression::None => message,
            Compression::Gzip => blocking(move || gzip(&message)).await?,
        };
        let is_gzip = compression == Compression::Gzip;
        let (content_type, encoding_header, body) = match self.settings.protocol {
            Protocol::HttpProtobuf => ("application/x-protobuf", CONTENT_ENCODING, message),
            Protocol::Grpc => (
                "application/grpc",
                grpc::ENCODING,
                grpc::frame(&message, is_gzip),
            ),
        };
        let mut request = Request::post(self.settings.url.clone())
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| retryable(error.to_string()))?;
        let headers = request.headers_mut();
        put_headers(headers, &self.settings.headers);
        if let Some(path) = self.settings.headers_file.clone() {
            let read = blocking(move || read_headers(&path)).await?;
            let read = read.map_err(|error| retryable(error.to_string()))?;
            put_headers(headers, &read);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if is_gzip {
            headers.insert(encoding_header, HeaderValue::from_static("gzip"));
        }
        if self.settings.protocol == Protocol::Grpc {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(grpc::TIMEOUT, grpc::timeout_value(self.settings.timeout));
        }
        Ok(request)
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        records: u64,
    ) -> Result<(), ExportError> {
        let failed = |error: &dyn Error| retryable(chain(error));
        let response = (self.pool)(request).await;
        let (head, body) = response.map_err(|error| failed(&error))?.into_parts();
        #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
        let body = Limited::new(body, MAX_RESPONSE).collect().await;
        let body = body.map_err(|error| failed(&*error))?;
        let failure = match self.settings.protocol {
            Protocol::HttpProtobuf => {
                let body = body.to_bytes();
                if head.status == http::StatusCode::OK {
                    rejected_by(&body, records)
                } else {
                    let now = SystemTime::now();
                    Some(http_failure(
                        head.status,
                        &head.headers,
                        &body,
                        records,
                        now,
                    ))
                }
            }
            Protocol::Grpc => {
                // A response without a message has its status among the headers.
                let trailers = body.trailers().unwrap_or(&head.headers);
                grpc_failure(head.status, trailers, records).or_else(|| {
                    let body = body.to_bytes();
                    rejected_by(grpc::unframed(&body)?, records)
                })
            }
        };
        failure.map_or(Ok(()), Err)
    }

    /// Authorities and client certificates are replaced while the process runs.
    async fn reload_certificates(&self) {
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

/// The pool for the settings: plain or encrypted, direct or through a proxy.
fn connect(
    settings: &Settings,
    tls: Option<&Tls>,
    proxy: Option<&str>,
) -> Result<Pool, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(IDLE_TIMEOUT / 2));
    let proxy = proxy.map(|url| tunnel(url, tcp.clone())).transpose()?;
    let tls = tls.map(Tls::config).transpose().map_err(ClientError::Tls)?;
    let is_grpc = settings.protocol == Protocol::Grpc;
    Ok(match (tls, proxy) {
        (None, None) => pool(is_grpc, tcp),
        (None, Some(tunnel)) => pool(is_grpc, tunnel),
        (Some(tls), None) => pool(is_grpc, encrypted(&tls, is_grpc, tcp)),
        (Some(tls), Some(tunnel)) => pool(is_grpc, encrypted(&tls, is_grpc, tunnel)),
    })
}

fn pool<C: Connect + Clone + Send + Sync + 'static>(is_grpc: bool, connector: C) -> Pool {
    let client = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(1)
        .http2_only(is_grpc)
        // A request that times out does not end its connection, which may be dead.
        .http2_keep_alive_interval(PING_TIMEOUT)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector);
    Box::new(move |request| Box::pin(client.request(request)))
}

fn encrypted<C>(tls: &ClientTls, is_grpc: bool, connector: C) -> HttpsConnector<C> {
    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(ClientConfig::clone(&tls.config()))
        .https_only();
    if is_grpc {
        builder.enable_http2().wrap_connector(connector)
    } else {
        builder.enable_http1().wrap_connector(connector)
    }
}

/// Tunnels through a proxy that speaks plain HTTP.
fn tunnel(url: &str, tcp: HttpConnector) -> Result<Tunnel<HttpConnector>, ClientError> {
    let proxy: Uri = url.parse().map_err(|_| ClientError::Proxy)?;
    if proxy.scheme_str() != Some("http") || proxy.host().is_none_or(str::is_empty) {
        return Err(ClientError::Proxy);
    }
    let authority = proxy.authority().map_or("", |authority| authority.as_str());
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let tunnel = Tunnel::new(without_user(&proxy)?, tcp);
    let Some(user) = user else {
        return Ok(tunnel);
    };
    let user: Vec<u8> = percent_decode_str(user).collect();
    let basic = format!("Basic {}", STANDARD.encode(user));
    let basic = HeaderValue::try_from(basic).map_err(|_| ClientError::Proxy)?;
    Ok(tunnel.with_auth(basic))
}

/// The connector of TCP must not see the password.
fn without_user(proxy: &Uri) -> Result<Uri, ClientError> {
    let host = proxy.host().unwrap_or_default();
    let port = proxy.port_u16().unwrap_or(80);
    let address = format!("http://{host}:{port}/");
    address.parse().map_err(|_| ClientError::Proxy)
}

impl Tls {
    fn load(settings: &Settings) -> Result<Self, ClientError> {
        let now = SystemTime::now();
        let source = match &settings.certificate {
            Some(path) => PemSource::File(path.clone()),
            None => system_bundle().ok_or(ClientError::NoAuthorities)?,
        };
        let roots = TrustRoots::load("otlp-receiver", vec![source], now);
        Ok(Self {
            roots: roots.map_err(ClientError::Tls)?,
            identity: settings
                .identity
                .as_ref()
                .map(|files| {
                    let certificate = PemSource::File(files.certificate.clone());
                    let key = PemSource::File(files.key.clone());
                    ReloadingKeyPair::load("otlp-client", certificate, key, now)
                })
                .transpose()
                .map_err(ClientError::Tls)?,
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

/// Debug output has no headers.
impl fmt::Debug for OtlpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpClient")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Runs what may take longer than other tasks of this thread may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ExportError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| retryable(error.to_string()))
}

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder
        .write_all(message)
        .and_then(|()| encoder.finish())
        .expect("a vector accepts every write")
}

fn read_headers(path: &Path) -> Result<Headers, ClientError> {
    let failed = |source| ClientError::HeaderFile {
        path: path.display().to_string(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    let mut file = file.take(MAX_HEADER_FILE);
    file.read_to_string(&mut text).map_err(failed)?;
    let invalid = |problem| failed(io::Error::new(io::ErrorKind::InvalidData, problem));
    Headers::parse_lines(&text).map_err(invalid)
}

fn put_headers(headers: &mut HeaderMap, given: &Headers) {
    for (name, value) in given.iter() {
        headers.insert(name.clone(), value.clone());
    }
}

fn retryable(message: String) -> ExportError {
    ExportError::Retryable {
        message,
        after: None,
    }
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

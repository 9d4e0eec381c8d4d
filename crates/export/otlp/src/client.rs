//! Sends messages of OTLP over HTTP/1.1 or gRPC.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::Full;
use kubevitals_http_client::{AGENT, ConnectError, HttpClient, Options, Trust, Version};
use kubevitals_sink::ExportError;
use kubevitals_tls::TlsError;
use thiserror::Error;
use tokio::time::timeout;

use crate::grpc;
use crate::response::{grpc_failure, http_failure, rejected_by};
use crate::settings::{Compression, Headers, Protocol, Settings};

/// Maximum size of a response. A receiver has nothing to say but an error.
const MAX_RESPONSE: usize = 64 << 10;

/// Maximum size of a file of headers.
const MAX_HEADER_FILE: u64 = 64 << 10;

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
    http: HttpClient,
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

impl Signal {
    pub const TRACES: Self = Self {
        variable: "TRACES",
        exporter_variable: "OTEL_TRACES_EXPORTER",
        path: "/v1/traces",
        method: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    };

    pub const METRICS: Self = Self {
        variable: "METRICS",
        exporter_variable: "OTEL_METRICS_EXPORTER",
        path: "/v1/metrics",
        method: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    };
}

impl OtlpClient {
    /// Reads the files that the settings name. No connection is opened. `proxy` is the URL of a
    /// proxy to the receiver.
    pub fn new(settings: Settings, proxy: Option<&str>) -> Result<Self, ClientError> {
        if let Some(path) = &settings.headers_file {
            read_headers(path)?;
        }
        let trust = settings.is_tls().then(|| Trust {
            name: "otlp-receiver",
            authorities: settings.certificate.clone(),
            identity: settings.identity.clone(),
            allows_plain: false,
        });
        let version = match settings.protocol {
            Protocol::HttpProtobuf => Version::Http1,
            Protocol::Grpc => Version::Http2,
        };
        let options = Options {
            version,
            trust,
            proxy,
        };
        let http = HttpClient::new(&options).map_err(|error| match error {
            ConnectError::NoAuthorities => ClientError::NoAuthorities,
            ConnectError::Tls(error) => ClientError::Tls(error),
            ConnectError::Proxy => ClientError::Proxy,
        })?;
        Ok(Self { settings, http })
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
            self.http.reload_certificates().await;
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
        let response = self.http.send(request, MAX_RESPONSE).await;
        let (response, trailers) = response.map_err(|error| retryable(error.to_string()))?;
        let (head, body) = response.into_parts();
        let failure = match self.settings.protocol {
            Protocol::HttpProtobuf => {
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
                let trailers = trailers.as_ref().unwrap_or(&head.headers);
                grpc_failure(head.status, trailers, records)
                    .or_else(|| rejected_by(grpc::unframed(&body)?, records))
            }
        };
        failure.map_or(Ok(()), Err)
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
    let done = kubevitals_http_client::blocking(work).await;
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

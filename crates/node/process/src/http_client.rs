//! Requests of probes and hooks: HTTP GET, and gRPC's health check.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use kubevitals_tls::{ClientOptions, ClientTls};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::probe::{dial_error, port};

/// The largest message of a health check.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// A GET request to a container.
#[derive(Debug)]
pub(crate) struct HttpGet {
    target: SocketAddr,
    is_https: bool,
    url: String,
    request: Request<Empty<Bytes>>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct GetResponse {
    pub code: u16,
}

impl HttpGet {
    pub(crate) fn new(
        action: &HTTPGetAction,
        container: &Container,
        address: IpAddr,
    ) -> Result<Self, String> {
        let port = port(&action.port, container)
            .ok_or_else(|| "the port of the request is not known".to_owned())?;
        let host = match action.host.as_deref() {
            None | Some("") => address,
            Some(host) => host
                .parse()
                .map_err(|_| format!("the host {host:?} of the request is not an IP address"))?,
        };
        let target = SocketAddr::new(host, port);
        let path = match action.path.as_deref().unwrap_or("/") {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        let is_https = action
            .scheme
            .as_deref()
            .is_some_and(|one| one.eq_ignore_ascii_case("https"));
        let invalid = |error: http::Error| format!("the request is invalid: {error}");
        let mut request = Request::get(&path).body(Empty::new()).map_err(invalid)?;
        let headers = request.headers_mut();
        for one in action.http_headers.iter().flatten() {
            let name = HeaderName::try_from(&one.name).map_err(|error| invalid(error.into()))?;
            let value = HeaderValue::try_from(&one.value).map_err(|error| invalid(error.into()))?;
            headers.append(name, value);
        }
        if !headers.contains_key(header::HOST) {
            let value = HeaderValue::try_from(target.to_string());
            headers.insert(header::HOST, value.map_err(|error| invalid(error.into()))?);
        }
        headers
            .entry(header::ACCEPT)
            .or_insert(HeaderValue::from_static("*/*"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        Ok(Self {
            url: format!(
                "{}://{target}{path}",
                if is_https { "https" } else { "http" }
            ),
            target,
            is_https,
            request,
        })
    }

    /// Sends the request and reads the head of the response. Redirects are answers. Certificates
    /// are not verified, as the kubelet does not.
    pub(crate) async fn send(
        mut self,
        limit: Duration,
        agent: &'static str,
    ) -> Result<GetResponse, String> {
        let headers = self.request.headers_mut();
        headers
            .entry(header::USER_AGENT)
            .or_insert(HeaderValue::from_static(agent));
        let url = self.url;
        let work = async {
            let stream = TcpStream::connect(self.target)
                .await
                .map_err(|error| dial_error(self.target, &error))?;
            if self.is_https {
                let name = ServerName::from(self.target.ip());
                let connector = TlsConnector::from(tls_config()?);
                let stream = connector.connect(name, stream).await;
                exchange(stream.map_err(|error| error.to_string())?, self.request).await
            } else {
                exchange(stream, self.request).await
            }
        };
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(code)) => Ok(GetResponse { code }),
            Ok(Err(message)) => Err(format!("Get {url:?}: {message}")),
            Err(_) => Err(format!(
                "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            )),
        }
    }
}

/// Sends a request over a connection and returns the code of the response.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Empty<Bytes>>,
) -> Result<u16, String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // The connection is driven here, so that it ends with the request.
    let response = sender.send_request(request);
    tokio::pin!(connection, response);
    let response = tokio::select! {
        biased;
        result = &mut response => result,
        result = &mut connection => match result {
            Ok(()) => response.await,
            Err(error) => Err(error),
        },
    };
    response
        .map(|one| one.status().as_u16())
        .map_err(|error| error.to_string())
}

/// A configuration that verifies nobody: a probe sends no secrets.
fn tls_config() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let tls = ClientTls::dangerous_without_verification(&ClientOptions::default());
    let config = tls.map_err(|error| error.to_string())?.config();
    Ok(Arc::clone(CONFIG.get_or_init(|| config)))
}

/// Asks `grpc.health.v1.Health/Check`. The messages have one field each, so they are written by
/// hand.
pub(crate) async fn grpc_health(target: SocketAddr, service: &str) -> Result<(), String> {
    let stream = TcpStream::connect(target)
        .await
        .map_err(|error| dial_error(target, &error))?;
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .map_err(|error| error.to_string())?;
    let request = Request::post(format!("http://{target}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(health_request(service)))
        .map_err(|error| error.to_string())?;
    let exchange = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = grpc_status(response.headers());
        #[expect(clippy::disallowed_methods, reason = "the body is limited")]
        let body = Limited::new(response.into_body(), MAX_MESSAGE_BYTES)
            .collect()
            .await;
        let body = body.map_err(|error| error.to_string())?;
        let status = status.or_else(|| body.trailers().and_then(grpc_status));
        let message = body.to_bytes();
        match status.as_deref() {
            Some("0") => serving_status(&message),
            Some("12") => Err("this server does not implement the grpc health protocol (grpc.health.v1.Health): rpc error: code = Unimplemented".to_owned()),
            Some(other) => Err(format!("rpc error: code = {other}")),
            None => Err("the server sent no gRPC status".to_owned()),
        }
    };
    tokio::pin!(connection, exchange);
    tokio::select! {
        biased;
        result = &mut exchange => result,
        result = &mut connection => match result {
            Ok(()) => exchange.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

fn grpc_status(headers: &http::HeaderMap) -> Option<String> {
    headers
        .get("grpc-status")?
        .to_str()
        .ok()
        .map(ToOwned::to_owned)
}

/// A message frame with `HealthCheckRequest{service}`.
fn health_request(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    // The API server limits names; longer ones than a byte of length are not worth a varint.
    let service: String = service.chars().take(127).collect();
    let service = service
        .as_bytes()
        .get(..service.len().min(127))
        .unwrap_or_default();
    if !service.is_empty() {
        message.put_u8(0x0a);
        message.put_u8(u8::try_from(service.len()).unwrap_or(0));
        message.put_slice(service);
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(0));
    frame.put(message);
    frame.freeze()
}

/// Reads `HealthCheckResponse{status}` of a message frame.
fn serving_status(frame: &[u8]) -> Result<(), String> {
    let status = match frame.get(5..) {
        Some([0x08, status, ..]) => *status,
        // The default value is not on the wire.
        Some([]) => 0,
        _ => return Err("the health response is invalid".to_owned()),
    };
    let name = match status {
        1 => return Ok(()),
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "UNKNOWN",
    };
    Err(format!("service unhealthy (responded with {name:?})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_messages_are_protobuf() {
        assert_eq!(&health_request("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(
            &health_request("ab")[..],
            [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']
        );
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 1]), Ok(()));
        let unhealthy = serving_status(&[0, 0, 0, 0, 2, 8, 2]).expect_err("not serving");
        assert_eq!(
            unhealthy,
            "service unhealthy (responded with \"NOT_SERVING\")"
        );
        assert!(serving_status(&[0, 0, 0, 0, 0]).is_err());
        assert!(serving_status(&[1]).is_err());
    }
}

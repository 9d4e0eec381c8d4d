//! `grpc`: a call of `grpc.health.v1.Health/Check`.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kubevitals_protobuf::{fields, put_str};
use kubevitals_tls::Alpn;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::run::Run;
use crate::{Failure, NetworkSettings, Phase, ProbeTls, Reason, ServingStatus, Target};

use super::connect::{dial, handshake};
use super::http::USER_AGENT;
use super::hyper_client::{Tasks, hyper_failure};

/// The settings of `grpc`.
#[derive(Clone, Default)]
pub struct GrpcSettings {
    /// The service to ask about; empty for the server as a whole.
    pub service: String,
    pub tls: bool,
    pub tls_config: ProbeTls,
    pub metadata: Vec<(HeaderName, HeaderValue)>,
    pub network: NetworkSettings,
}

/// Maximum size of an answer. The expected one has two bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// How much of it a server may send before it is read: the smallest window that HTTP/2 begins with.
const WINDOW: u32 = 65_535;

const OK: i32 = 0;

impl GrpcSettings {
    pub(crate) async fn run(&self, run: &mut Run<'_>, target: &Target) -> Result<(), Failure> {
        let (host, port) = target.address(run)?;
        let stream = dial(run, host, port, &self.network).await?;
        run.facts.grpc_ssl = Some(self.tls);
        let name = target.name(host);
        let authority = match (name.contains(':'), port) {
            (true, port) => format!("[{name}]:{port}"),
            (false, port) => format!("{name}:{port}"),
        };
        let scheme = if self.tls { "https" } else { "http" };
        let uri = format!("{scheme}://{authority}/grpc.health.v1.Health/Check");
        let uri: Uri = uri.parse().map_err(|_| {
            let message = format!("{authority:?} cannot be the name of a server");
            run.fail(Reason::Internal, message)
        })?;
        if self.tls {
            let name = target.server_name(host, &self.tls_config);
            let stream = handshake(run, stream, name, &self.tls_config, &[Alpn::H2]).await?;
            self.call(run, stream, uri).await
        } else {
            self.call(run, stream, uri).await
        }
    }

    async fn call(
        &self,
        run: &mut Run<'_>,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        uri: Uri,
    ) -> Result<(), Failure> {
        run.enter(Phase::Request);
        let tasks = Tasks::default();
        let connecting = hyper::client::conn::http2::Builder::new(tasks.spawner())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(stream))
            .await;
        let (mut sender, connection) = connecting.map_err(|error| hyper_failure(run, &error))?;
        tasks.drive(connection);
        let response = sender.send_request(self.request(run, uri)).await;
        let response = response.map_err(|error| hyper_failure(run, &error))?;
        self.judge(run, response).await
    }

    fn request(&self, run: &Run<'_>, uri: Uri) -> Request<Full<Bytes>> {
        let mut message = Vec::new();
        if !self.service.is_empty() {
            put_str(&mut message, 1, &self.service);
        }
        let mut request = Request::new(Full::new(frame(&message)));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = uri;
        *request.version_mut() = http::Version::HTTP_2;
        let headers = request.headers_mut();
        for (name, value) in &self.metadata {
            headers.append(name, value.clone());
        }
        let fixed = HeaderValue::from_static;
        headers.insert(header::CONTENT_TYPE, fixed("application/grpc"));
        headers.insert(header::TE, fixed("trailers"));
        headers
            .entry(header::USER_AGENT)
            .or_insert(fixed(USER_AGENT));
        // At most eight digits.
        let millis = run.remaining().as_millis().min(99_999_999);
        if let Ok(timeout) = HeaderValue::try_from(format!("{millis}m")) {
            headers.insert(HeaderName::from_static("grpc-timeout"), timeout);
        }
        request
    }

    async fn judge(&self, run: &mut Run<'_>, response: Response<Incoming>) -> Result<(), Failure> {
        let (head, mut body) = response.into_parts();
        if head.status != StatusCode::OK {
            let message = format!("the server answered {} instead of gRPC", head.status);
            return Err(run.fail(Reason::HttpStatus, message));
        }
        let mut trailers = HeaderMap::new();
        let mut answer = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| hyper_failure(run, &error))?;
            match frame.into_data() {
                Ok(data) if answer.len().saturating_add(data.len()) > MAX_ANSWER => {
                    return Err(run.fail(Reason::BodyTooLarge, "the answer is too large"));
                }
                Ok(data) => answer.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
            }
        }
        // An error without a message has its status in the head.
        let status = grpc_status(&trailers).or_else(|| grpc_status(&head.headers));
        run.facts.grpc_status = status;
        match status {
            Some(OK) => {}
            Some(status) => {
                let text = [&trailers, &head.headers].map(|from| from.get("grpc-message"));
                let text = text.into_iter().flatten().next();
                let text = text.map_or(String::new(), |text| {
                    format!(": {}", String::from_utf8_lossy(text.as_bytes()))
                });
                let message = format!("the call failed with status {status}{text}");
                return Err(run.fail(Reason::GrpcStatus, message));
            }
            None => return Err(run.fail(Reason::ReadEof, "the answer has no status")),
        }
        let Some(serving) = serving_status(&answer) else {
            return Err(run.fail(Reason::GrpcStatus, "the answer is not one of health"));
        };
        run.facts.grpc_serving = Some(serving);
        if serving == ServingStatus::Serving {
            return Ok(());
        }
        let message = format!("the service is {}", serving.as_str());
        Err(run.fail(Reason::GrpcNotServing, message))
    }
}

impl fmt::Debug for GrpcSettings {
    /// Values of metadata are left out: some are credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metadata: Vec<_> = self.metadata.iter().map(|(name, _)| name).collect();
        f.debug_struct("GrpcSettings")
            .field("service", &self.service)
            .field("tls", &self.tls)
            .field("tls_config", &self.tls_config)
            .field("metadata", &metadata)
            .field("network", &self.network)
            .finish()
    }
}

fn grpc_status(headers: &HeaderMap) -> Option<i32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// Prefixes a message with "not compressed" and its length.
fn frame(message: &[u8]) -> Bytes {
    // A message is as long as the name of a service.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

/// Decodes a `HealthCheckResponse`; `None` if it is not one.
fn serving_status(framed: &[u8]) -> Option<ServingStatus> {
    let (&[flag, length @ ..], rest) = framed.split_first_chunk::<5>()?;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    let message = rest.get(..length).filter(|_| flag == 0)?;
    let fields = fields(message)?;
    let status = fields.iter().rev().find(|field| field.number == 1);
    Some(match status.map_or(Some(0), |field| field.value.uint())? {
        0 => ServingStatus::Unknown,
        1 => ServingStatus::Serving,
        2 => ServingStatus::NotServing,
        3 => ServingStatus::ServiceUnknown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_health_is_decoded() {
        for (bytes, status) in [
            (&b"\0\0\0\0\x02\x08\x01"[..], Some(ServingStatus::Serving)),
            (b"\0\0\0\0\x02\x08\x02", Some(ServingStatus::NotServing)),
            (b"\0\0\0\0\x00", Some(ServingStatus::Unknown)),
            // Unknown fields are ignored, unknown states are not.
            (
                b"\0\0\0\0\x04\x08\x01\x10\x07",
                Some(ServingStatus::Serving),
            ),
            (b"\0\0\0\0\x02\x08\x09", None),
            (b"\x01\0\0\0\x02\x08\x01", None),
            (b"\0\0\0\0\x03\x08\x01", None),
            (b"\0\xff\xff\xff\xff\x08\x01", None),
            (b"\0\0\0\0\x02\x0a\x05", None),
            (b"", None),
        ] {
            assert_eq!(serving_status(bytes), status, "{bytes:?}");
        }
        assert_eq!(&frame(b"ab")[..], b"\0\0\0\0\x02ab");
    }
}

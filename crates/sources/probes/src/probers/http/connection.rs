//! One request over a connection of its own.

use bytes::Bytes;
use http::response::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use kubevitals_tls::Alpn;
use tokio::io::{AsyncRead, AsyncWrite};

use super::super::connect::{dial, handshake};
use super::super::hyper_client::{Tasks, hyper_failure};
use super::{HttpSettings, redirect};
use crate::run::Run;
use crate::{Failure, Phase, Reason};

/// What is asked for.
pub(super) struct Request {
    pub(super) url: Uri,
    pub(super) method: Method,
    pub(super) body: Bytes,
    /// Whether it goes to the target itself, which may see its credentials.
    pub(super) is_trusted: bool,
}

/// A response whose body is not read yet.
pub(super) struct Exchange {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    /// The connection lives as long as its tasks and its sender.
    _tasks: Tasks,
    _sender: Sender,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Maximum size of the head of a response.
const MAX_HEAD: u32 = 64 * 1024;
/// How much of a body a server may send before it is read, over HTTP/2.
const WINDOW: u32 = 256 * 1024;

impl Request {
    pub(super) fn is_tls(&self) -> bool {
        self.url.scheme_str() == Some("https")
    }

    pub(super) fn host(&self) -> &str {
        redirect::host(&self.url)
    }

    fn port(&self) -> u16 {
        let default = if self.is_tls() { 443 } else { 80 };
        self.url.port_u16().unwrap_or(default)
    }

    /// The request after a redirect. As in browsers and in Go, 307 and 308 keep the method and the
    /// body. Credentials are for the host of the target, and not for those who listen on the way.
    pub(super) fn redirected(self, url: Uri, first: &Uri, status: StatusCode) -> Self {
        let keeps = matches!(
            status,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        );
        let is_downgrade = first.scheme_str() == Some("https") && url.scheme_str() != Some("https");
        let is_same_host = redirect::host(&url).eq_ignore_ascii_case(redirect::host(first));
        let (method, body) = match self.method {
            method if keeps => (method, self.body),
            Method::HEAD => (Method::HEAD, Bytes::new()),
            _ => (Method::GET, Bytes::new()),
        };
        Self {
            url,
            method,
            body,
            is_trusted: is_same_host && !is_downgrade,
        }
    }
}

impl HttpSettings {
    /// Sends a request and waits for the head of the response.
    pub(super) async fn exchange(
        &self,
        run: &mut Run<'_>,
        request: &Request,
        headers: HeaderMap,
        server_name: &str,
    ) -> Result<Exchange, Failure> {
        let stream = dial(run, request.host(), request.port(), &self.network).await?;
        if !request.is_tls() {
            return send(run, stream, request, headers, false).await;
        }
        let alpn: &[Alpn] = if self.enable_http2 {
            &[Alpn::H2, Alpn::Http11]
        } else {
            &[Alpn::Http11]
        };
        let stream = handshake(run, stream, server_name, &self.tls_config, alpn).await?;
        let is_http2 = stream.alpn() == Some(Alpn::H2.as_bytes());
        send(run, stream, request, headers, is_http2).await
    }
}

async fn send(
    run: &mut Run<'_>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: &Request,
    mut headers: HeaderMap,
    is_http2: bool,
) -> Result<Exchange, Failure> {
    run.enter(Phase::Processing);
    let tasks = Tasks::default();
    let stream = TokioIo::new(stream);
    let mut message = http::Request::new(Full::new(request.body.clone()));
    *message.method_mut() = request.method.clone();
    let invalid = |_| run.fail(Reason::Internal, "the URL cannot be requested");
    let mut sender = if is_http2 {
        let authority = headers.remove(header::HOST);
        *message.uri_mut() = absolute(&request.url, authority.as_ref()).map_err(invalid)?;
        *message.version_mut() = Version::HTTP_2;
        let connecting = http2::Builder::new(tasks.spawner())
            .max_header_list_size(MAX_HEAD)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(stream)
            .await;
        let (sender, connection) = connecting.map_err(|error| hyper_failure(run, &error))?;
        tasks.drive(connection);
        Sender::Http2(sender)
    } else {
        *message.uri_mut() = path_of(&request.url).into();
        if !headers.contains_key(header::HOST) {
            let host = HeaderValue::try_from(redirect::authority(&request.url));
            headers.insert(header::HOST, host.map_err(|error| invalid(error.into()))?);
        }
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let connecting = http1::Builder::new()
            .max_buf_size(usize::try_from(MAX_HEAD).unwrap_or(usize::MAX))
            .handshake(stream);
        let connecting = connecting.await;
        let (sender, connection) = connecting.map_err(|error| hyper_failure(run, &error))?;
        tasks.drive(connection);
        Sender::Http1(sender)
    };
    *message.headers_mut() = headers;
    let response = match &mut sender {
        Sender::Http1(sender) => sender.send_request(message).await,
        Sender::Http2(sender) => sender.send_request(message).await,
    };
    let response = response.map_err(|error| hyper_failure(run, &error))?;
    let (head, body) = response.into_parts();
    Ok(Exchange {
        head,
        body,
        _tasks: tasks,
        _sender: sender,
    })
}

fn path_of(url: &Uri) -> PathAndQuery {
    let path = url.path_and_query().cloned();
    path.unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// A URL with the authority that the request is for.
fn absolute(url: &Uri, authority: Option<&HeaderValue>) -> Result<Uri, http::Error> {
    let builder = Uri::builder()
        .scheme(url.scheme_str().unwrap_or("https"))
        .path_and_query(path_of(url));
    match authority {
        Some(authority) => builder.authority(authority.as_bytes()).build(),
        None => builder.authority(redirect::authority(url)).build(),
    }
}

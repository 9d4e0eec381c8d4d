//! A plain server of HTTP for fakes.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Maximum size of a request.
const MAX_REQUEST: usize = 16 << 20;

pub(super) type Answer = Response<Full<Bytes>>;

/// Answers requests; `None` closes the connection.
pub(super) trait Service: Send + Sync + 'static {
    fn answer(&self, head: Parts, body: Bytes) -> impl Future<Output = Option<Answer>> + Send;
}

/// Serves until the future is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: Arc<impl Service>,
) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, service) = (tls.clone(), Arc::clone(&service));
        connections.spawn(async move {
            match tls {
                None => connection(stream, service).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        connection(stream, service).await;
                    }
                }
            }
        });
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: Arc<impl Service>,
) {
    let handler = service_fn(move |request: Request<Incoming>| {
        let service = Arc::clone(&service);
        async move {
            let (head, body) = request.into_parts();
            #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
            let body = Limited::new(body, MAX_REQUEST).collect().await;
            let body = body.map_err(|_| "the request has no end")?.to_bytes();
            service.answer(head, body).await.ok_or("closed")
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // Clients close connections as they like.
    let _ = builder
        .serve_connection(TokioIo::new(stream), handler)
        .await;
}

pub(super) fn json(status: u16, body: &Value) -> Answer {
    let mut answer = text(status, body.to_string());
    let kind = HeaderValue::from_static("application/json; charset=UTF-8");
    answer.headers_mut().insert("content-type", kind);
    answer
}

pub(super) fn text(status: u16, body: String) -> Answer {
    let mut answer = Response::new(Full::<Bytes>::new(Bytes::from(body)));
    let status = StatusCode::from_u16(status);
    *answer.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

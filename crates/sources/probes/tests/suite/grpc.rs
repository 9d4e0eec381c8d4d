//! gRPC's health service.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubevitals_probes::{GrpcSettings, Phase, Prober, Reason, ServingStatus};
use kubevitals_tls::Alpn;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::support::{
    Ca, SHORT, Server, assert_failure, assert_success, phases, probe, probe_within, refused,
};

static HUGE: &[u8] = &[0; 100_000];

/// Answers by the service that is asked about.
async fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    let service = service_fn(|request: Request<Incoming>| async move {
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        assert_eq!(request.headers()["te"], "trailers");
        assert!(request.headers().contains_key("grpc-timeout"));
        let metadata = request.headers().get("x-key").cloned();
        #[expect(clippy::disallowed_methods, reason = "a request of our own")]
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let service = String::from_utf8(body.get(7..).unwrap_or_default().to_vec()).unwrap();
        let (message, status): (&[u8], _) = match service.as_str() {
            "" => (b"\0\0\0\0\x02\x08\x01", Some(0)),
            "down" => (b"\0\0\0\0\x02\x08\x02", Some(0)),
            "odd" => (b"\0\0\0\0\x02\x08\x63", Some(0)),
            "cut" => (b"\0\0\0\0\x02\x08\x01", None),
            "huge" => (HUGE, Some(0)),
            "metadata" if metadata.is_some() => (b"\0\0\0\0\x02\x08\x01", Some(0)),
            "silent" => std::future::pending().await,
            _ => (b"", Some(5)),
        };
        let mut trailers = HeaderMap::new();
        if let Some(status) = status {
            trailers.insert("grpc-status", HeaderValue::from(status));
            trailers.insert("grpc-message", HeaderValue::from_static("as asked"));
        }
        let body = Full::new(Bytes::copy_from_slice(message));
        let body = body.with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
        let response = Response::builder().header("content-type", "application/grpc");
        Ok::<_, Infallible>(response.body(body).unwrap())
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

fn grpc(service: &str) -> Prober {
    Prober::Grpc(Box::new(GrpcSettings {
        service: service.to_owned(),
        metadata: vec![(
            HeaderName::from_static("x-key"),
            HeaderValue::from_static("1"),
        )],
        ..GrpcSettings::default()
    }))
}

#[tokio::test]
async fn answers_of_the_health_service_are_told_apart() {
    let server = Server::start(serve).await;
    let target = server.address.to_string();
    for service in ["", "metadata"] {
        let outcome = probe(&grpc(service), &target).await;
        assert_success(&outcome);
        assert_eq!(outcome.facts.grpc_status, Some(0));
        assert_eq!(outcome.facts.grpc_serving, Some(ServingStatus::Serving));
        assert_eq!(outcome.facts.grpc_ssl, Some(false));
        assert_eq!(
            phases(&outcome),
            [Phase::Resolve, Phase::Connect, Phase::Request]
        );
    }
    for (service, reason, status) in [
        ("down", Reason::GrpcNotServing, Some(0)),
        ("missing", Reason::GrpcStatus, Some(5)),
        ("odd", Reason::GrpcStatus, Some(0)),
        ("cut", Reason::ReadEof, None),
        ("huge", Reason::BodyTooLarge, None),
    ] {
        let outcome = probe(&grpc(service), &target).await;
        assert_failure(&outcome, reason, Phase::Request);
        assert_eq!(outcome.facts.grpc_status, status, "{service}");
    }
}

#[tokio::test]
async fn a_silent_server_ends_at_the_deadline() {
    let server = Server::start(serve).await;
    let outcome = probe_within(&grpc("silent"), &server.address.to_string(), SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Request);
    let server = Server::silent().await;
    let outcome = probe_within(&grpc(""), &server.address.to_string(), SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Request);
    let outcome = probe(&grpc(""), &refused().await.to_string()).await;
    assert_failure(&outcome, Reason::ConnectRefused, Phase::Connect);
}

#[tokio::test]
async fn a_server_of_another_protocol_fails_at_once() {
    let server = Server::start(|mut stream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            .await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    let server = server.await;
    let outcome = probe(&grpc(""), &server.address.to_string()).await;
    assert_failure(&outcome, Reason::HttpVersion, Phase::Request);
    let closing = Server::start(|stream| async move { drop(stream) }).await;
    let outcome = probe(&grpc(""), &closing.address.to_string()).await;
    let reason = outcome.failure.as_ref().unwrap().reason;
    assert!(
        matches!(reason, Reason::ConnectReset | Reason::ReadEof),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn health_is_asked_for_over_tls() {
    let ca = Ca::new("authority");
    let acceptor = ca.acceptor(&["server.test"], &[Alpn::H2]);
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream).await;
            }
        }
    });
    let server = server.await;
    let prober = Prober::Grpc(Box::new(GrpcSettings {
        tls: true,
        tls_config: ca.trusted(),
        ..GrpcSettings::default()
    }));
    let outcome = probe(&prober, &format!("server.test:{}", server.port())).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.grpc_ssl, Some(true));
    assert!(outcome.facts.certificate_expiry.is_some());
    let outcome = probe(&prober, &format!("other.test:{}", server.port())).await;
    assert_failure(&outcome, Reason::TlsNameMismatch, Phase::Tls);
}

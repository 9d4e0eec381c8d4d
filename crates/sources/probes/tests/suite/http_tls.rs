//! HTTP over TLS: which protocol is spoken, and with whom.

use bytes::Bytes;
use http::{Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubevitals_probes::{
    ClientTlsSettings, HttpSettings, NetworkSettings, Phase, ProbeTls, Prober, Reason, Target,
};
use kubevitals_tls::Alpn;
use tokio_rustls::TlsAcceptor;

use crate::support::{
    Ca, GENEROUS, SHORT, Server, assert_failure, assert_success, context, ip4, probe, probe_within,
};

/// A server of HTTP/1.1 and HTTP/2, which answers with the authority that it was asked for.
async fn https(acceptor: TlsAcceptor) -> Server {
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let stream = match acceptor.accept(stream).into_fallible().await {
                Ok(stream) => stream,
                // Closed with something unread, the connection would be reset, and the alert lost.
                Err((_, mut stream)) => {
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                    return;
                }
            };
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(|request: http::Request<Incoming>| async move {
                let host = request.headers().get("host").cloned();
                let host = host.map(|host| host.to_str().unwrap().to_owned());
                let host = host.unwrap_or_else(|| request.uri().authority().unwrap().to_string());
                Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(host))))
            });
            let stream = TokioIo::new(stream);
            if is_http2 {
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(stream, service).await;
            } else {
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(stream, service).await;
            }
        }
    });
    server.await
}

fn trusting(tls_config: ProbeTls) -> HttpSettings {
    HttpSettings {
        tls_config,
        network: ip4(),
        ..HttpSettings::default()
    }
}

#[tokio::test]
async fn http2_is_negotiated_unless_it_is_off() {
    let ca = Ca::new("authority");
    let server = https(ca.acceptor(&["server.test"], &[Alpn::H2, Alpn::Http11])).await;
    let target = format!("https://server.test:{}/x", server.port());
    for (enable_http2, version) in [(true, Version::HTTP_2), (false, Version::HTTP_11)] {
        let prober = Prober::Http(Box::new(HttpSettings {
            enable_http2,
            fail_if_body_not_matches_regexp: vec![
                kubevitals_probes::compile_regexp("^server.test:[0-9]+$").unwrap(),
            ],
            ..trusting(ca.trusted())
        }));
        let outcome = probe(&prober, &target).await;
        assert_success(&outcome);
        let facts = &outcome.facts;
        assert_eq!(facts.http_version, Some(version));
        assert_eq!(facts.http_ssl, Some(true));
        assert_eq!(facts.tls_version, Some("TLS 1.3"));
        assert_eq!(facts.tls_cipher, Some("TLS_AES_128_GCM_SHA256"));
        assert!(facts.certificate_expiry.is_some());
        assert_eq!(facts.verified_chain_expiry, facts.certificate_expiry);
        assert!(outcome.phases.iter().any(|time| time.phase == Phase::Tls));
    }
    let prober = Prober::Http(Box::new(HttpSettings {
        fail_if_ssl: true,
        ..trusting(ca.trusted())
    }));
    assert_failure(
        &probe(&prober, &target).await,
        Reason::HttpVersion,
        Phase::Processing,
    );
}

#[tokio::test]
async fn the_name_to_verify_is_that_of_the_settings_the_host_or_the_target() {
    let ca = Ca::new("authority");
    let server = https(ca.acceptor(&["virtual.test"], &[Alpn::Http11])).await;
    let target = format!("https://127.0.0.1:{}/", server.port());
    let plain = Prober::Http(Box::new(trusting(ca.trusted())));
    let outcome = probe(&plain, &target).await;
    assert_failure(&outcome, Reason::TlsNameMismatch, Phase::Tls);
    let named = Prober::Http(Box::new(trusting(
        ProbeTls::new(ClientTlsSettings {
            server_name: Some("virtual.test".to_owned()),
            ..ca.settings()
        })
        .unwrap(),
    )));
    assert_success(&probe(&named, &target).await);
    let host = Prober::Http(Box::new(HttpSettings {
        headers: vec![kubevitals_probes::HeaderSetting::Value(
            http::header::HOST,
            http::HeaderValue::from_static("virtual.test:99"),
        )],
        ..trusting(ca.trusted())
    }));
    assert_success(&probe(&host, &target).await);
    let target = Target::parse(&target, &plain).unwrap();
    let target = target.with_hostname("virtual.test");
    assert_success(&plain.run(&target, &context(GENEROUS)).await);
}

#[tokio::test]
async fn the_configured_name_is_not_that_of_where_the_target_redirects_to() {
    let ca = Ca::new("authority");
    let last = https(ca.acceptor(&["other.test"], &[Alpn::Http11])).await;
    let port = last.port();
    let acceptor = ca.acceptor(&["virtual.test"], &[Alpn::Http11]);
    let first = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            use tokio::io::AsyncWriteExt as _;
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            crate::support::read_head(&mut stream).await;
            let response = format!(
                "HTTP/1.1 302 Found\r\nLocation: https://other.test:{port}/\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    let first = first.await;
    let prober = Prober::Http(Box::new(trusting(
        ProbeTls::new(ClientTlsSettings {
            server_name: Some("virtual.test".to_owned()),
            ..ca.settings()
        })
        .unwrap(),
    )));
    let outcome = probe(&prober, &format!("https://server.test:{}/", first.port())).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.certificate.unwrap().names, ["other.test"]);
}

#[tokio::test]
async fn a_connection_may_end_without_close_notify_but_not_in_a_body_of_known_length() {
    let ca = Ca::new("authority");
    let acceptor = ca.acceptor(&["server.test"], &[Alpn::Http11]);
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            use tokio::io::AsyncWriteExt as _;
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let head = crate::support::read_head(&mut stream).await;
            let response: &[u8] = if head.starts_with("GET /known") {
                b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
            } else {
                b"HTTP/1.1 200 OK\r\n\r\nhello"
            };
            let _ = stream.write_all(response).await;
            let _ = stream.flush().await;
            // The socket is closed without a word of TLS.
            let _ = stream.get_mut().0.shutdown().await;
        }
    });
    let server = server.await;
    let prober = Prober::Http(Box::new(trusting(ca.trusted())));
    let outcome = probe(&prober, &format!("https://server.test:{}/", server.port())).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.http_body_length, Some(5));
    let target = format!("https://server.test:{}/known", server.port());
    let outcome = probe(&prober, &target).await;
    assert_failure(&outcome, Reason::ReadEof, Phase::Transfer);
}

#[tokio::test]
async fn client_certificates_are_presented_if_configured() {
    let ca = Ca::new("authority");
    let server = https(ca.strict_acceptor(&["server.test"])).await;
    let target = format!("https://server.test:{}/", server.port());
    let with = ProbeTls::new(ca.client_settings()).unwrap();
    assert_success(&probe(&Prober::Http(Box::new(trusting(with))), &target).await);
    // With TLS 1.3 the server says so after the handshake.
    let without = Prober::Http(Box::new(trusting(ca.trusted())));
    let outcome = probe(&without, &target).await;
    let failure = outcome.failure.as_ref().unwrap();
    assert_eq!(failure.reason, Reason::TlsOther, "{outcome:?}");
    assert!(
        failure.message.contains("certificate_required"),
        "{outcome:?}"
    );
    let stranger = Ca::new("somebody else");
    let other = ProbeTls::new(ClientTlsSettings {
        ca_file: ca.settings().ca_file,
        ..stranger.client_settings()
    });
    let outcome = probe(&Prober::Http(Box::new(trusting(other.unwrap()))), &target).await;
    let failure = outcome.failure.as_ref().unwrap();
    assert_eq!(failure.reason, Reason::TlsOther, "{outcome:?}");
}

#[tokio::test]
async fn facts_of_tls_are_those_of_the_last_response() {
    let ca = Ca::new("authority");
    let last = Server::http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let location = last.url("/");
    let acceptor = ca.acceptor(&["server.test"], &[Alpn::Http11]);
    let first = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        let location = location.clone();
        async move {
            use tokio::io::AsyncWriteExt as _;
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            crate::support::read_head(&mut stream).await;
            let response =
                format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    let first = first.await;
    let prober = Prober::Http(Box::new(trusting(ca.trusted())));
    let outcome = probe(&prober, &format!("https://server.test:{}/", first.port())).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.http_ssl, Some(false));
    assert_eq!(outcome.facts.tls_version, None);
    assert_eq!(outcome.facts.certificate_expiry, None);
}

/// A server of HTTP/2 whose response never comes, or whose body is reset.
async fn broken_http2(acceptor: TlsAcceptor) -> Server {
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(|request: http::Request<Incoming>| async move {
                if request.uri().path() == "/silent" {
                    std::future::pending::<()>().await;
                }
                let frames = [
                    Ok(hyper::body::Frame::data(Bytes::from_static(b"part"))),
                    Err(std::io::Error::other("reset")),
                ];
                let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
                Ok::<_, std::convert::Infallible>(Response::new(body))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        }
    });
    server.await
}

#[tokio::test]
async fn streams_of_http2_that_are_reset_or_silent_say_which() {
    let ca = Ca::new("authority");
    let server = broken_http2(ca.acceptor(&["server.test"], &[Alpn::H2])).await;
    let prober = Prober::Http(Box::new(trusting(ca.trusted())));
    let target = format!("https://server.test:{}", server.port());
    let outcome = probe(&prober, &format!("{target}/reset")).await;
    let failure = outcome.failure.as_ref().unwrap();
    assert_eq!(failure.reason, Reason::ConnectReset, "{outcome:?}");
    let outcome = probe_within(&prober, &format!("{target}/silent"), SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Processing);
}

#[tokio::test]
async fn a_server_without_tls_is_a_protocol_error() {
    let prober = Prober::Http(Box::new(HttpSettings {
        tls_config: ProbeTls::new(ClientTlsSettings {
            insecure_skip_verify: true,
            ..ClientTlsSettings::default()
        })
        .unwrap(),
        network: NetworkSettings::default(),
        ..HttpSettings::default()
    }));
    let server = Server::start(|mut stream| async move {
        use tokio::io::AsyncWriteExt as _;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let mut sink = tokio::io::sink();
        let _ = tokio::io::copy(&mut stream, &mut sink).await;
    });
    let server = server.await;
    let outcome = probe(&prober, &format!("https://{}/", server.address)).await;
    assert_failure(&outcome, Reason::TlsProtocol, Phase::Tls);
}

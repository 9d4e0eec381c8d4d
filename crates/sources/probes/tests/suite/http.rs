//! What HTTP responses are judged by.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Version};
use kubevitals_probes::{
    BasicAuth, Compression, HeaderMatch, HeaderSetting, HttpSettings, Phase, Prober, Reason,
    Secret, Target, compile_regexp,
};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::support::{
    GENEROUS, Server, assert_failure, assert_success, context, phases, probe, read_head,
};

pub(crate) fn http(settings: HttpSettings) -> Prober {
    Prober::Http(Box::new(settings))
}

/// A server that answers 200 and passes on the heads of its requests.
pub(crate) async fn recording() -> (Server, mpsc::Receiver<String>) {
    let (heads, received) = mpsc::channel(16);
    let server = Server::start(move |mut stream| {
        let heads = heads.clone();
        async move {
            let head = read_head(&mut stream).await;
            let _ = heads.send(head).await;
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await;
        }
    });
    (server.await, received)
}

#[tokio::test]
async fn a_response_gives_its_phases_and_facts() {
    let server = Server::http(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nLast-Modified: Thu, 01 Jan 1970 00:00:10 GMT\r\n\
         \r\nhello",
    );
    let server = server.await;
    let outcome = probe(&http(HttpSettings::default()), &server.url("/")).await;
    assert_success(&outcome);
    assert_eq!(
        phases(&outcome),
        [
            Phase::Resolve,
            Phase::Connect,
            Phase::Processing,
            Phase::Transfer
        ]
    );
    let total: std::time::Duration = outcome.phases.iter().map(|phase| phase.duration).sum();
    assert!(total <= outcome.duration, "{outcome:?}");
    let facts = &outcome.facts;
    assert_eq!(facts.http_status, Some(200));
    assert_eq!(facts.http_version, Some(Version::HTTP_11));
    assert_eq!(facts.http_redirects, Some(0));
    assert_eq!(facts.http_ssl, Some(false));
    assert_eq!(facts.http_content_length, Some(5));
    assert_eq!(facts.http_body_length, Some(5));
    assert_eq!(facts.http_last_modified.unwrap().unix_seconds(), 10);
    assert_eq!(facts.ip_version, Some(4));
    assert_eq!(facts.certificate_expiry, None);
}

#[tokio::test]
async fn the_status_must_be_valid() {
    let server = Server::http("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
    let outcome = probe(&http(HttpSettings::default()), &server.url("/")).await;
    assert_failure(&outcome, Reason::HttpStatus, Phase::Processing);
    assert_eq!(outcome.facts.http_status, Some(404));
    let settings = HttpSettings {
        valid_status_codes: vec![200, 404],
        ..HttpSettings::default()
    };
    assert_success(&probe(&http(settings), &server.url("/")).await);
}

#[tokio::test]
async fn the_version_and_tls_must_be_as_wanted() {
    let server = Server::http("HTTP/1.0 200 OK\r\n\r\nold").await;
    for (versions, is_valid) in [
        (vec![Version::HTTP_11, Version::HTTP_2], false),
        (vec![Version::HTTP_10], true),
    ] {
        let settings = HttpSettings {
            valid_http_versions: versions,
            ..HttpSettings::default()
        };
        let outcome = probe(&http(settings), &server.url("/")).await;
        assert_eq!(outcome.is_success(), is_valid, "{outcome:?}");
    }
    let settings = HttpSettings {
        fail_if_not_ssl: true,
        ..HttpSettings::default()
    };
    let outcome = probe(&http(settings), &server.url("/")).await;
    assert_failure(&outcome, Reason::HttpVersion, Phase::Processing);
}

#[tokio::test]
async fn bodies_are_matched_as_bytes_and_not_anchored() {
    let server = Server::http("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nab\u{0}cdef").await;
    let body = |matches: &[&str], not: &[&str]| {
        let compile = |patterns: &[&str]| {
            let patterns = patterns
                .iter()
                .map(|pattern| compile_regexp(pattern).unwrap());
            patterns.collect::<Vec<_>>()
        };
        http(HttpSettings {
            fail_if_body_matches_regexp: compile(matches),
            fail_if_body_not_matches_regexp: compile(not),
            ..HttpSettings::default()
        })
    };
    assert_success(&probe(&body(&["^b", "xyz"], &["b\\x00c", "f$"]), &server.url("/")).await);
    for (matches, not) in [(&["cd"][..], &[][..]), (&[], &["cd", "nothing"])] {
        let outcome = probe(&body(matches, not), &server.url("/")).await;
        assert_failure(&outcome, Reason::BodyMismatch, Phase::Transfer);
    }
}

#[tokio::test]
async fn headers_are_matched_and_may_be_missing_if_allowed() {
    let server =
        Server::http("HTTP/1.1 200 OK\r\nX-A: one\r\nX-A: two\r\nContent-Length: 0\r\n\r\n");
    let server = server.await;
    let rule = |header: &'static str, pattern: &str, allow_missing| HeaderMatch {
        header: HeaderName::from_static(header),
        regexp: compile_regexp(pattern).unwrap(),
        allow_missing,
    };
    let cases = [
        (vec![], vec![rule("x-a", "two", false)], true),
        (vec![rule("x-a", "two", false)], vec![], false),
        (vec![rule("x-a", "three", false)], vec![], true),
        (vec![], vec![rule("x-a", "three", false)], false),
        (vec![], vec![rule("x-b", "x", false)], false),
        (vec![], vec![rule("x-b", "x", true)], true),
        (vec![rule("x-b", "x", false)], vec![], false),
        (vec![rule("x-b", "x", true)], vec![], true),
    ];
    for (position, (matches, not, is_valid)) in cases.into_iter().enumerate() {
        let settings = HttpSettings {
            fail_if_header_matches: matches,
            fail_if_header_not_matches: not,
            ..HttpSettings::default()
        };
        let outcome = probe(&http(settings), &server.url("/")).await;
        if is_valid {
            assert_success(&outcome);
        } else {
            assert_failure(&outcome, Reason::HeaderMismatch, Phase::Processing);
        }
        assert_eq!(outcome.is_success(), is_valid, "case {position}");
    }
}

#[tokio::test]
async fn a_request_has_the_configured_method_headers_and_body() {
    let (server, mut heads) = recording().await;
    let settings = HttpSettings {
        method: Method::POST,
        headers: vec![
            HeaderSetting::Value(
                HeaderName::from_static("host"),
                HeaderValue::from_static("virtual.test"),
            ),
            HeaderSetting::Value(
                HeaderName::from_static("x-own"),
                HeaderValue::from_static("1"),
            ),
        ],
        body: Some(b"{}".to_vec()),
        compression: Some(Compression::Identity),
        ..HttpSettings::default()
    };
    assert_success(&probe(&http(settings), &server.url("/path?query=1")).await);
    let head = heads.recv().await.unwrap().to_ascii_lowercase();
    for line in [
        "post /path?query=1 http/1.1\r\n",
        "host: virtual.test\r\n",
        "x-own: 1\r\n",
        "content-length: 2\r\n",
        "accept-encoding: identity\r\n",
        "connection: close\r\n",
        "user-agent: kubevitals-prober/",
    ] {
        assert!(head.contains(line), "{line:?} is not in {head}");
    }
}

#[tokio::test]
async fn the_hostname_of_a_target_replaces_its_host() {
    let (server, mut heads) = recording().await;
    let prober = http(HttpSettings::default());
    let target = Target::parse(&server.url("/"), &prober).unwrap();
    let target = target.with_hostname("virtual.test");
    assert_success(&prober.run(&target, &context(GENEROUS)).await);
    let head = heads.recv().await.unwrap();
    assert!(head.contains("host: virtual.test\r\n"), "{head}");
    let target = target.with_hostname("virtual\r\nX-Injected: 1");
    let outcome = prober.run(&target, &context(GENEROUS)).await;
    assert_eq!(outcome.failure.unwrap().reason, Reason::Internal);
    assert!(heads.try_recv().is_err());
}

#[tokio::test]
async fn credentials_are_read_from_values_and_files_at_each_run() {
    let (server, mut heads) = recording().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    let prober = http(HttpSettings {
        authorization: Some(("Bearer".to_owned(), Secret::File(file.clone()))),
        ..HttpSettings::default()
    });
    for token in ["first", "second"] {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        assert_success(&probe(&prober, &server.url("/")).await);
        let head = heads.recv().await.unwrap();
        let line = format!("authorization: Bearer {token}\r\n");
        assert!(head.contains(&line), "{head}");
    }
    let prober = http(HttpSettings {
        basic_auth: Some(BasicAuth {
            username: Secret::Value("user".into()),
            password: Some(Secret::Value("secret".into())),
        }),
        ..HttpSettings::default()
    });
    assert!(!format!("{prober:?}").contains("secret\""), "{prober:?}");
    assert_success(&probe(&prober, &server.url("/")).await);
    let head = heads.recv().await.unwrap();
    assert!(
        head.contains("authorization: Basic dXNlcjpzZWNyZXQ=\r\n"),
        "{head}"
    );
    // A secret that cannot be read is no request without one.
    std::fs::remove_file(&file).unwrap();
    let prober = http(HttpSettings {
        authorization: Some(("Bearer".to_owned(), Secret::File(file))),
        ..HttpSettings::default()
    });
    let outcome = probe(&prober, &server.url("/")).await;
    assert_eq!(outcome.failure.unwrap().reason, Reason::Internal);
    assert!(heads.try_recv().is_err());
}

#[tokio::test]
async fn compressed_bodies_are_matched_after_decompression() {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(b"plain text").unwrap();
    let gzip = Arc::new(gzip.finish().unwrap());
    let body = Arc::clone(&gzip);
    let server = Server::start(move |mut stream| {
        let body = Arc::clone(&body);
        async move {
            let head = read_head(&mut stream).await;
            assert!(head.contains("accept-encoding: gzip"), "{head}");
            let cut = if head.starts_with("GET /cut") {
                12
            } else {
                body.len()
            };
            let response = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {cut}\r\n\r\n"
            );
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.write_all(&body[..cut]).await;
        }
    });
    let server = server.await;
    let prober = |limit| {
        http(HttpSettings {
            compression: Some(Compression::Gzip),
            body_size_limit: limit,
            fail_if_body_not_matches_regexp: vec![compile_regexp("^plain text$").unwrap()],
            ..HttpSettings::default()
        })
    };
    let outcome = probe(&prober(10), &server.url("/")).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.http_body_length, Some(10));
    let damaged = probe(&prober(0), &server.url("/cut")).await;
    assert_failure(&damaged, Reason::BodyMismatch, Phase::Transfer);
}

#[test]
fn settings_do_not_show_secrets() {
    let secret = || HeaderValue::from_static("hidden");
    let name = || HeaderName::from_static("x-key");
    let probers = [
        http(HttpSettings {
            headers: vec![
                HeaderSetting::Value(name(), secret()),
                HeaderSetting::Secret(name(), Secret::Value("hidden".into())),
            ],
            authorization: Some(("Bearer".to_owned(), Secret::Value("hidden".into()))),
            ..HttpSettings::default()
        }),
        Prober::Grpc(Box::new(kubevitals_probes::GrpcSettings {
            metadata: vec![(name(), secret())],
            ..Default::default()
        })),
        Prober::Tcp(Box::new(kubevitals_probes::TcpSettings {
            query_response: vec![kubevitals_probes::QueryResponse {
                send: Some("PASS hidden".to_owned()),
                ..Default::default()
            }],
            ..Default::default()
        })),
        Prober::Exec(Box::new(kubevitals_probes::ExecSettings {
            environment: vec![("KEY".to_owned(), "hidden".to_owned())],
            ..Default::default()
        })),
    ];
    for prober in probers {
        assert!(!format!("{prober:?}").contains("hidden"), "{prober:?}");
    }
}

#[tokio::test]
async fn targets_are_urls_and_have_no_secrets() {
    let prober = http(HttpSettings::default());
    for target in [
        "example.com",
        "http://example.com",
        "https://[::1]:8443/x?y#z",
        "h:81/p",
        "h/?to=http://x",
    ] {
        assert!(Target::parse(target, &prober).is_ok(), "{target}");
    }
    for target in [
        "",
        "ftp://h/",
        "http://",
        "http:///x",
        "http://h h/",
        "http://u:p@h/",
    ] {
        let error = Target::parse(target, &prober).unwrap_err();
        assert!(!error.to_string().contains("u:p"), "{error}");
    }
    assert!(Target::parse(&"x".repeat(3000), &prober).is_err());
}

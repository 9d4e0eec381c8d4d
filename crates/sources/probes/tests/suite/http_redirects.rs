//! Redirects, and what is sent along.

use http::{HeaderName, HeaderValue, Method};
use kubevitals_probes::{
    Config, EndpointRequest, HeaderSetting, HttpSettings, Reason, Secret, Variables,
};
use tokio::io::AsyncWriteExt as _;

use crate::http::{http, recording};
use crate::support::{GENEROUS, Server, assert_success, context, phases, probe, read_head};

#[tokio::test]
async fn redirects_are_followed_and_their_phases_added_up() {
    let last = Server::http("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend").await;
    let location = last.url("/end");
    let first = Server::start(move |mut stream| {
        let location = location.clone();
        async move {
            let head = read_head(&mut stream).await;
            let to = if head.starts_with("GET /a ") {
                "b".to_owned()
            } else {
                location
            };
            let response =
                format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    let first = first.await;
    let outcome = probe(&http(HttpSettings::default()), &first.url("/a")).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.http_redirects, Some(2));
    assert_eq!(outcome.facts.http_body_length, Some(3));
    assert_eq!(phases(&outcome).len(), 4, "each phase once: {outcome:?}");
    let settings = HttpSettings {
        follow_redirects: false,
        valid_status_codes: vec![302],
        ..HttpSettings::default()
    };
    let outcome = probe(&http(settings), &first.url("/a")).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.http_redirects, Some(0));
}

#[tokio::test]
async fn the_method_survives_only_redirects_that_say_so() {
    for (status, method) in [(301, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
        let (last, mut heads) = recording().await;
        let location = last.url("/end");
        let first = Server::start(move |mut stream| {
            let location = location.clone();
            async move {
                read_head(&mut stream).await;
                let response = format!(
                    "HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
                );
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        let first = first.await;
        let settings = HttpSettings {
            method: Method::POST,
            body: Some(b"x".to_vec()),
            ..HttpSettings::default()
        };
        assert_success(&probe(&http(settings), &first.url("/")).await);
        let head = heads.recv().await.unwrap();
        assert!(
            head.starts_with(&format!("{method} /end ")),
            "{status}: {head}"
        );
        assert_eq!(
            head.contains("content-length: 1"),
            method == "POST",
            "{head}"
        );
    }
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_host() {
    let (last, mut heads) = recording().await;
    let port = last.port();
    let first = Server::start(move |mut stream| async move {
        let head = read_head(&mut stream).await;
        let host = if head.starts_with("GET /same") {
            "server.test"
        } else {
            "other.test"
        };
        let response = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{host}:{port}/\r\nContent-Length: 0\r\n\r\n"
        );
        let _ = stream.write_all(response.as_bytes()).await;
    });
    let first = first.await;
    let prober = http(HttpSettings {
        authorization: Some(("Bearer".to_owned(), Secret::Value("secret".into()))),
        headers: vec![
            HeaderSetting::Value(
                HeaderName::from_static("cookie"),
                HeaderValue::from_static("secret=1"),
            ),
            HeaderSetting::Secret(
                HeaderName::from_static("x-key"),
                Secret::Value("secret".into()),
            ),
            HeaderSetting::Value(
                HeaderName::from_static("x-open"),
                HeaderValue::from_static("yes"),
            ),
        ],
        ..HttpSettings::default()
    });
    for (path, is_sent) in [("same", true), ("other", false)] {
        let target = format!("http://server.test:{}/{path}", first.port());
        assert_success(&probe(&prober, &target).await);
        let head = heads.recv().await.unwrap();
        assert_eq!(head.contains("secret"), is_sent, "{head}");
        assert!(head.contains("x-open: yes"), "{head}");
        assert!(!head.contains(&format!("host: server.test:{}", first.port())));
    }
}

#[tokio::test]
async fn cookies_are_sent_back_within_a_run_only() {
    let server = Server::start(|mut stream| async move {
        let head = read_head(&mut stream).await;
        let response = if head.contains("cookie: session=1\r\n") {
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        } else if head.starts_with("GET /login ") {
            "HTTP/1.1 302 Found\r\nSet-Cookie: session=1; HttpOnly\r\nLocation: /\r\n\
             Content-Length: 0\r\n\r\n"
        } else {
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
        };
        let _ = stream.write_all(response.as_bytes()).await;
    });
    let server = server.await;
    let prober = http(HttpSettings::default());
    assert_success(&probe(&prober, &server.url("/login")).await);
    let outcome = probe(&prober, &server.url("/")).await;
    assert_eq!(outcome.facts.http_status, Some(401));
}

/// A host that `/probe` may reach must not be a way to the hosts that it may not.
#[tokio::test]
async fn a_request_of_probe_is_not_redirected_to_a_target_that_is_not_allowed() {
    let (hidden, mut heads) = recording().await;
    let location = hidden.url("/secret");
    let first = Server::start(move |mut stream| {
        let location = location.clone();
        async move {
            let head = read_head(&mut stream).await;
            let to = if head.starts_with("GET /a ") {
                "/b".to_owned()
            } else {
                location
            };
            let response =
                format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    let first = first.await;
    let (target, port) = (
        first.url("/a"),
        first.url("/a").parse::<http::Uri>().unwrap(),
    );
    let port = port.port_u16().unwrap();
    let text = format!("endpoint: {{allow_targets: ['127.0.0.1:{port}']}}");
    let config = Config::parse(&text, &Variables::default()).unwrap();
    let request = EndpointRequest {
        target: Some(&target),
        ..EndpointRequest::default()
    };
    let allowed = config.endpoint(&request).unwrap();
    let context = context(GENEROUS);
    let outcome = allowed.module.prober.run(&allowed.target, &context).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.reason, Reason::NotAllowed, "{failure:?}");
    // It was redirected on its own host.
    assert_eq!(outcome.facts.http_redirects, Some(2));
    assert!(heads.try_recv().is_err());
}

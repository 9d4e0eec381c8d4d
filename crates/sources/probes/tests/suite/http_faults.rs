//! Servers of HTTP that misbehave.

use std::time::Duration;

use kubevitals_probes::{HttpSettings, Phase, Prober, Reason, compile_regexp};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::support::{
    SHORT, Server, assert_failure, assert_success, probe, probe_within, read_head, refused,
};

fn http() -> Prober {
    Prober::Http(Box::default())
}

fn limited(body_size_limit: u64, pattern: &str) -> Prober {
    Prober::Http(Box::new(HttpSettings {
        body_size_limit,
        fail_if_body_not_matches_regexp: vec![compile_regexp(pattern).unwrap()],
        ..HttpSettings::default()
    }))
}

#[tokio::test]
async fn a_refused_connection_says_so() {
    let outcome = probe(&http(), &format!("http://{}/", refused().await)).await;
    assert_failure(&outcome, Reason::ConnectRefused, Phase::Connect);
    assert_eq!(outcome.facts.ip_version, Some(4));
}

#[tokio::test]
async fn a_connection_that_is_not_accepted_ends_at_the_deadline() {
    // With a backlog of nothing, one connection waits to be accepted, and others are ignored.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let _waiting = tokio::net::TcpStream::connect(address).await.unwrap();
    let outcome = probe_within(&http(), &format!("http://{address}/"), SHORT).await;
    assert_failure(&outcome, Reason::ConnectTimeout, Phase::Connect);
    assert!(outcome.duration >= SHORT);
}

#[tokio::test]
async fn a_silent_server_ends_at_the_deadline() {
    let server = Server::silent().await;
    let outcome = probe_within(&http(), &server.url("/"), SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Processing);
    assert!(outcome.duration < Duration::from_secs(10), "{outcome:?}");
    // The same over TLS is a handshake that does not end, not a connection that is not made.
    let target = format!("https://{}/", server.address);
    let outcome = probe_within(&http(), &target, SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Tls);
}

#[tokio::test]
async fn a_name_that_is_not_found_or_not_answered_says_so() {
    for (host, reason) in [
        ("missing.test", Reason::DnsNxdomain),
        ("fail.test", Reason::DnsServfail),
        ("none.test", Reason::DnsNoAddress),
        ("hang.test", Reason::DnsTimeout),
    ] {
        let outcome = probe_within(&http(), &format!("http://{host}/"), SHORT).await;
        assert_failure(&outcome, reason, Phase::Resolve);
        assert_eq!(outcome.facts.ip_version, None);
    }
}

#[tokio::test]
async fn a_body_that_is_cut_off_or_reset_says_which() {
    let server = Server::start(|mut stream| async move {
        let head = read_head(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
            .await;
        if head.starts_with("GET /reset") {
            stream.set_zero_linger().unwrap();
        }
    });
    let server = server.await;
    let outcome = probe(&http(), &server.url("/eof")).await;
    assert_failure(&outcome, Reason::ReadEof, Phase::Transfer);
    let outcome = probe(&http(), &server.url("/reset")).await;
    let failure = outcome.failure.as_ref().unwrap();
    assert_eq!(failure.reason, Reason::ConnectReset, "{outcome:?}");
}

#[tokio::test]
async fn a_server_that_closes_at_once_or_speaks_no_http_says_which() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
    });
    let outcome = probe(&http(), &server.await.url("/")).await;
    assert_failure(&outcome, Reason::ReadEof, Phase::Processing);
    for garbage in [
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "\u{0}\u{1}\u{2}garbage\r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
    ] {
        let server = Server::http(garbage).await;
        let outcome = probe(&http(), &server.url("/")).await;
        assert_failure(&outcome, Reason::HttpVersion, Phase::Processing);
    }
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = Server::start(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    });
    let outcome = probe(&http(), &server.await.url("/")).await;
    assert_failure(&outcome, Reason::HttpVersion, Phase::Processing);
}

#[tokio::test]
async fn redirect_loops_end() {
    let server = Server::http("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n");
    let outcome = probe(&http(), &server.await.url("/")).await;
    assert_failure(&outcome, Reason::HttpRedirects, Phase::Processing);
    assert_eq!(outcome.facts.http_redirects, Some(10));
}

#[tokio::test]
async fn redirects_lead_to_http_only() {
    for location in [
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "javascript:1",
        "http://",
    ] {
        let location: &'static str = location;
        let server = Server::start(move |mut stream| async move {
            read_head(&mut stream).await;
            let response =
                format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
        });
        let outcome = probe(&http(), &server.await.url("/")).await;
        assert_failure(&outcome, Reason::HttpRedirects, Phase::Processing);
    }
    // Without a place to go to, it is a response like any other.
    let server = Server::http("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n").await;
    let outcome = probe(&http(), &server.url("/")).await;
    assert_failure(&outcome, Reason::HttpStatus, Phase::Processing);
}

/// Serves a body without end, as fast as it is read.
async fn endless() -> Server {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nstart").await;
        while stream.write_all(&[b'x'; 8 * 1024]).await.is_ok() {}
    });
    server.await
}

#[tokio::test]
async fn a_huge_body_is_read_up_to_a_limit() {
    let server = endless().await;
    // Nothing to match, or a match in what is read: the size does not matter.
    assert_success(&probe(&http(), &server.url("/")).await);
    let outcome = probe(&limited(0, "start"), &server.url("/")).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.http_body_length, None, "not known");
    // No match so far is not known to be none.
    let outcome = probe(&limited(0, "end"), &server.url("/")).await;
    assert_failure(&outcome, Reason::BodyTooLarge, Phase::Transfer);
    let outcome = probe(&limited(1000, "start"), &server.url("/")).await;
    assert_failure(&outcome, Reason::BodyTooLarge, Phase::Transfer);
}

#[tokio::test]
async fn a_compressed_bomb_is_cut() {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..640 {
        gzip.write_all(&[b'x'; 8 * 1024]).unwrap();
    }
    let bomb: std::sync::Arc<[u8]> = gzip.finish().unwrap().into();
    assert!(bomb.len() < 100_000);
    let server = Server::start(move |mut stream| {
        let bomb = std::sync::Arc::clone(&bomb);
        async move {
            read_head(&mut stream).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                bomb.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&bomb).await;
        }
    });
    let prober = Prober::Http(Box::new(HttpSettings {
        compression: Some(kubevitals_probes::Compression::Gzip),
        fail_if_body_not_matches_regexp: vec![compile_regexp("end").unwrap()],
        ..HttpSettings::default()
    }));
    let outcome = probe(&prober, &server.await.url("/")).await;
    assert_failure(&outcome, Reason::BodyTooLarge, Phase::Transfer);
}

#[tokio::test]
async fn a_body_that_drips_ends_at_the_deadline() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            .await;
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while stream.write_all(b"x").await.is_ok() {
            ticks.tick().await;
        }
    });
    let outcome = probe_within(&http(), &server.await.url("/"), SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Transfer);
    assert!(outcome.duration < Duration::from_secs(10), "{outcome:?}");
}

#[tokio::test]
async fn text_of_a_server_is_bounded_and_printable() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        let location = format!("bad:\u{1b}[31m{}", "x".repeat(5000));
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n");
        let _ = stream
            .write_all(head.replace('\u{1b}', "\t").as_bytes())
            .await;
    });
    let outcome = probe(&http(), &server.await.url("/")).await;
    let message = outcome.failure.unwrap().message;
    assert!(message.chars().count() <= 501, "{}", message.len());
    assert!(!message.chars().any(char::is_control), "{message:?}");
}

//! Connections and dialogues.

use kubevitals_probes::{
    Phase, Prober, QueryResponse, Reason, Target, TcpSettings, compile_regexp,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::support::{
    Ca, SHORT, Server, assert_failure, assert_success, phases, probe, probe_within, refused,
};

fn tcp(query_response: Vec<QueryResponse>) -> Prober {
    Prober::Tcp(Box::new(TcpSettings {
        query_response,
        ..TcpSettings::default()
    }))
}

fn expect(pattern: &str) -> QueryResponse {
    QueryResponse {
        expect: Some(compile_regexp(pattern).unwrap()),
        ..QueryResponse::default()
    }
}

fn send(text: &str) -> QueryResponse {
    QueryResponse {
        send: Some(text.to_owned()),
        ..QueryResponse::default()
    }
}

async fn saying(bytes: &'static [u8]) -> Server {
    let server = Server::start(move |mut stream| async move {
        let _ = stream.write_all(bytes).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    server.await
}

#[tokio::test]
async fn a_connection_is_enough_without_a_dialogue() {
    let server = Server::silent().await;
    let outcome = probe(&tcp(vec![]), &server.address.to_string()).await;
    assert_success(&outcome);
    assert_eq!(phases(&outcome), [Phase::Resolve, Phase::Connect]);
    let outcome = probe(&tcp(vec![]), &refused().await.to_string()).await;
    assert_failure(&outcome, Reason::ConnectRefused, Phase::Connect);
}

#[tokio::test]
async fn lines_are_read_until_one_matches_and_groups_are_sent_back() {
    let server = Server::start(|stream| async move {
        let mut stream = BufReader::new(stream);
        let _ = stream.write_all(b"hello\r\nPING 42\r\nlater\n").await;
        let mut line = String::new();
        let _ = stream.read_line(&mut line).await;
        let _ = stream.write_all(format!("got {line}").as_bytes()).await;
    });
    let server = server.await;
    let prober = tcp(vec![
        QueryResponse {
            send: Some("PONG ${1}".to_owned()),
            labels: vec![("number".to_owned(), "n$1".to_owned())],
            ..expect("^PING ([0-9]+)$")
        },
        expect("^later$"),
        expect("^got PONG 42$"),
    ]);
    let outcome = probe(&prober, &server.address.to_string()).await;
    assert_success(&outcome);
    let labels = [("number".to_owned(), "n42".to_owned())];
    assert_eq!(outcome.facts.expect_labels, labels);
    assert_eq!(phases(&outcome).last(), Some(&Phase::Request));
}

#[tokio::test]
async fn bytes_are_expected_where_lines_ended() {
    let server = saying(b"line\n\x00\x01rest\n").await;
    let bytes = |bytes: &[u8]| QueryResponse {
        expect_bytes: Some(bytes.to_vec()),
        ..QueryResponse::default()
    };
    let prober = tcp(vec![expect("^line$"), bytes(b"\x00\x01"), expect("^rest$")]);
    assert_success(&probe(&prober, &server.address.to_string()).await);
    let prober = tcp(vec![bytes(b"lime")]);
    let outcome = probe(&prober, &server.address.to_string()).await;
    assert_failure(&outcome, Reason::ExpectMismatch, Phase::Request);
}

#[tokio::test]
async fn what_is_not_said_is_told_apart() {
    let silent = Server::silent().await;
    let outcome = probe_within(&tcp(vec![expect("x")]), &silent.address.to_string(), SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Request);
    let closing = Server::start(|mut stream| async move {
        let _ = stream.shutdown().await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    let closing = closing.await;
    let outcome = probe(&tcp(vec![expect("x")]), &closing.address.to_string()).await;
    assert_failure(&outcome, Reason::ReadEof, Phase::Request);
    let other = Server::start(|mut stream| async move {
        let _ = stream.write_all(b"other\nlast without an end").await;
        let _ = stream.shutdown().await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    let other = other.await;
    let outcome = probe(&tcp(vec![expect("x")]), &other.address.to_string()).await;
    assert_failure(&outcome, Reason::ExpectMismatch, Phase::Request);
    let outcome = probe(&tcp(vec![expect("an end$")]), &other.address.to_string()).await;
    assert_success(&outcome);
}

#[tokio::test]
async fn lines_without_end_and_without_number_are_bounded() {
    for chunk in [&[b'x'; 4096][..], &b"no\n".repeat(1000)] {
        let chunk: std::sync::Arc<[u8]> = chunk.into();
        let server = Server::start(move |mut stream| {
            let chunk = std::sync::Arc::clone(&chunk);
            async move { while stream.write_all(&chunk).await.is_ok() {} }
        });
        let server = server.await;
        let outcome = probe(&tcp(vec![expect("^yes$")]), &server.address.to_string()).await;
        assert_failure(&outcome, Reason::ExpectMismatch, Phase::Request);
    }
}

#[tokio::test]
async fn tls_is_started_at_once_or_in_the_dialogue() {
    let ca = Ca::new("authority");
    let acceptor = ca.acceptor(&["server.test"], &[]);
    let server = Server::start(move |mut stream: TcpStream| {
        let acceptor = acceptor.clone();
        async move {
            let _ = stream.write_all(b"220 ready\r\n").await;
            let mut command = [0; 9];
            let _ = stream.read_exact(&mut command).await;
            assert_eq!(&command, b"STARTTLS\n");
            let _ = stream.write_all(b"220 go\r\n").await;
            let mut stream = acceptor.accept(stream).await.unwrap();
            let _ = stream.write_all(b"250 secret\r\n").await;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    let server = server.await;
    let prober = Prober::Tcp(Box::new(TcpSettings {
        query_response: vec![
            expect("^220 "),
            send("STARTTLS"),
            QueryResponse {
                starttls: true,
                ..expect("^220 go")
            },
            expect("^250 secret$"),
        ],
        tls_config: ca.trusted(),
        ..TcpSettings::default()
    }));
    let target = format!("server.test:{}", server.port());
    let outcome = probe(&prober, &target).await;
    assert_success(&outcome);
    assert!(outcome.facts.certificate_expiry.is_some());
    assert!(phases(&outcome).contains(&Phase::Tls));

    let acceptor = ca.acceptor(&["server.test"], &[]);
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let _ = stream.write_all(b"hello\n").await;
            let _ = stream.shutdown().await;
        }
    });
    let server = server.await;
    let prober = Prober::Tcp(Box::new(TcpSettings {
        query_response: vec![expect("hello")],
        tls: true,
        tls_config: ca.trusted(),
        ..TcpSettings::default()
    }));
    assert_success(&probe(&prober, &format!("server.test:{}", server.port())).await);
}

#[tokio::test]
async fn plain_text_before_tls_is_not_read_as_if_it_were_secret() {
    let server = saying(b"220 go\r\n250 injected\r\n").await;
    let prober = tcp(vec![
        QueryResponse {
            starttls: true,
            ..expect("^220 go")
        },
        expect("^250"),
    ]);
    let outcome = probe(&prober, &server.address.to_string()).await;
    assert_failure(&outcome, Reason::TlsProtocol, Phase::Request);
}

#[tokio::test]
async fn targets_have_a_host_and_a_port() {
    let prober = tcp(vec![]);
    for target in ["h:1", "127.0.0.1:65535", "[::1]:80", "a-b.c_d.test.:1"] {
        assert!(Target::parse(target, &prober).is_ok(), "{target}");
    }
    for target in [
        "h", "h:", ":1", "h:65536", "h:x", "::1", "[::1]", "[::1:80", "a b:1", "u@h:1", "[]:1",
    ] {
        assert!(Target::parse(target, &prober).is_err(), "{target}");
    }
}

//! DNS queries, over UDP, TCP and TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kubevitals_probes::{DnsSettings, DnsType, Phase, Prober, Reason, RecordRules, compile_regexp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use crate::support::{
    Ca, SHORT, Server, assert_failure, assert_success, phases, probe, probe_within,
};

/// A server that answers a query by a function of it, over UDP and TCP at the same port.
pub(crate) struct Dns {
    pub(crate) address: SocketAddr,
    pub(crate) udp_queries: Arc<AtomicU32>,
    _tasks: JoinSet<()>,
}

/// What is said to a query, over UDP or TCP; `None` for nothing.
pub(crate) type Answers = fn(query: &[u8], is_udp: bool) -> Option<Vec<u8>>;

impl Dns {
    pub(crate) async fn start(answers: Answers) -> Self {
        // The port of TCP is free for UDP as well, but for a rare test beside this one.
        let (listener, socket) = loop {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
                break (listener, socket);
            }
        };
        let address = listener.local_addr().unwrap();
        let udp_queries = Arc::new(AtomicU32::new(0));
        let mut tasks = JoinSet::new();
        let queries = Arc::clone(&udp_queries);
        tasks.spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                queries.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answers(&buffer[..length], true) {
                    let _ = socket.send_to(&answer, from).await;
                }
            }
        });
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = serve(&mut stream, answers).await;
            }
        });
        Self {
            address,
            udp_queries,
            _tasks: tasks,
        }
    }
}

async fn serve(
    stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin),
    answers: Answers,
) -> std::io::Result<()> {
    let length = stream.read_u16().await?;
    let mut query = vec![0; usize::from(length)];
    stream.read_exact(&mut query).await?;
    if let Some(answer) = answers(&query, false) {
        stream
            .write_u16(u16::try_from(answer.len()).unwrap())
            .await?;
        stream.write_all(&answer).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// An answer with flags and records of one type, to the query's own name.
pub(crate) fn answer(query: &[u8], flags: u16, kind: u16, records: &[&[u8]]) -> Vec<u8> {
    let mut message = query.to_vec();
    message[2..4].copy_from_slice(&(0x8180 | flags).to_be_bytes());
    message[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    for data in records {
        message.extend_from_slice(&[0xc0, 12]);
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&[0, 1, 0, 0, 1, 44]);
        message.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
        message.extend_from_slice(data);
    }
    message
}

fn query(name: &str) -> DnsSettings {
    DnsSettings {
        query_name: name.to_owned(),
        query_type: DnsType::A,
        ..DnsSettings::default()
    }
}

async fn ask(settings: DnsSettings, server: &Dns) -> kubevitals_probes::Outcome {
    probe(
        &Prober::Dns(Box::new(settings)),
        &server.address.to_string(),
    )
    .await
}

#[tokio::test]
async fn an_answer_gives_its_facts_over_udp_and_tcp() {
    let server =
        Dns::start(|query, _| Some(answer(query, 0, 1, &[&[192, 0, 2, 1], &[192, 0, 2, 2]])));
    let server = server.await;
    for tcp in [false, true] {
        let settings = DnsSettings {
            tcp,
            ..query("example.test")
        };
        let outcome = ask(settings, &server).await;
        assert_success(&outcome);
        assert_eq!(outcome.facts.dns_rcode, Some(0));
        assert_eq!(outcome.facts.dns_answers, Some(2));
        assert_eq!(outcome.facts.dns_authority, Some(0));
        assert_eq!(
            phases(&outcome),
            [Phase::Resolve, Phase::Connect, Phase::Request]
        );
    }
    assert_eq!(server.udp_queries.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn response_codes_are_told_apart() {
    for (rcode, reason) in [
        (3, Reason::DnsNxdomain),
        (2, Reason::DnsServfail),
        (5, Reason::Rcode),
        (15, Reason::Rcode),
    ] {
        let answers: Answers = match rcode {
            3 => |query, _| Some(answer(query, 3, 1, &[])),
            2 => |query, _| Some(answer(query, 2, 1, &[])),
            5 => |query, _| Some(answer(query, 5, 1, &[])),
            _ => |query, _| Some(answer(query, 15, 1, &[])),
        };
        let server = Dns::start(answers).await;
        let outcome = ask(query("example.test"), &server).await;
        assert_failure(&outcome, reason, Phase::Request);
        assert_eq!(outcome.facts.dns_rcode, Some(rcode));
        let settings = DnsSettings {
            valid_rcodes: vec![rcode],
            ..query("example.test")
        };
        assert_success(&ask(settings, &server).await);
    }
}

#[tokio::test]
async fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let server = Dns::start(|query, is_udp| {
        let flags = if is_udp { 0x200 } else { 0 };
        Some(answer(query, flags, 1, &[&[192, 0, 2, 1]]))
    });
    let server = server.await;
    let settings = DnsSettings {
        validate_answer_rrs: RecordRules {
            fail_if_none_matches_regexp: vec![compile_regexp("\tA\t192.0.2.1$").unwrap()],
            ..RecordRules::default()
        },
        ..query("example.test")
    };
    let outcome = ask(settings, &server).await;
    assert_success(&outcome);
    assert_eq!(server.udp_queries.load(Ordering::SeqCst), 1);
    // Nobody listens on TCP.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut buffer = [0; 512];
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let truncated = answer(&buffer[..length], 0x200, 1, &[]);
        socket.send_to(&truncated, from).await.unwrap();
    });
    let prober = Prober::Dns(Box::new(query("example.test")));
    let outcome = probe(&prober, &address.to_string()).await;
    assert_failure(&outcome, Reason::ConnectRefused, Phase::Connect);
    task.await.unwrap();
}

#[tokio::test]
async fn silence_and_refusal_are_told_apart() {
    let server = Dns::start(|_, _| None).await;
    let prober = Prober::Dns(Box::new(query("example.test")));
    let outcome = probe_within(&prober, &server.address.to_string(), SHORT).await;
    assert_failure(&outcome, Reason::DnsTimeout, Phase::Request);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let outcome = probe(&prober, &address.to_string()).await;
    assert_failure(&outcome, Reason::ConnectRefused, Phase::Request);
}

#[tokio::test]
async fn answers_to_other_queries_are_ignored_and_malformed_ones_are_not() {
    // Forged, for another name, and no answer at all: the right one is never sent.
    let wrong: [Answers; 3] = [
        |query, _| {
            let mut forged = answer(query, 0, 1, &[]);
            forged[0] ^= 1;
            Some(forged)
        },
        |query, _| {
            let mut other = answer(query, 0, 1, &[]);
            other[13] ^= 1;
            Some(other)
        },
        |query, _| Some(query.to_vec()),
    ];
    for answers in wrong {
        let server = Dns::start(answers).await;
        let prober = Prober::Dns(Box::new(query("example.test")));
        let outcome = probe_within(&prober, &server.address.to_string(), SHORT).await;
        assert_failure(&outcome, Reason::DnsTimeout, Phase::Request);
    }
    let broken: [Answers; 2] = [
        |query, _| Some(answer(query, 0, 1, &[&[1, 2, 3]])),
        |query, _| {
            let mut looping = answer(query, 0, 5, &[&[0xc0, 12]]);
            let at = looping.len() - 1;
            looping[at] = u8::try_from(at - 1).unwrap();
            Some(looping)
        },
    ];
    for answers in broken {
        let server = Dns::start(answers).await;
        for tcp in [false, true] {
            let settings = DnsSettings {
                tcp,
                ..query("example.test")
            };
            let outcome = ask(settings, &server).await;
            assert_failure(&outcome, Reason::AnswerMismatch, Phase::Request);
        }
    }
}

#[tokio::test]
async fn records_are_judged_by_rules() {
    let server =
        Dns::start(|query, _| Some(answer(query, 0, 1, &[&[192, 0, 2, 1], &[198, 51, 100, 1]])));
    let server = server.await;
    let rule = |pattern: &str| vec![compile_regexp(pattern).unwrap()];
    let none = RecordRules::default;
    let cases = [
        (
            RecordRules {
                fail_if_matches_regexp: rule("198"),
                ..none()
            },
            false,
        ),
        (
            RecordRules {
                fail_if_matches_regexp: rule("203"),
                ..none()
            },
            true,
        ),
        (
            RecordRules {
                fail_if_all_match_regexp: rule("\tA\t"),
                ..none()
            },
            false,
        ),
        (
            RecordRules {
                fail_if_all_match_regexp: rule("198"),
                ..none()
            },
            true,
        ),
        (
            RecordRules {
                fail_if_not_all_match_regexp: rule("\tA\t"),
                ..none()
            },
            true,
        ),
        (
            RecordRules {
                fail_if_not_all_match_regexp: rule("198"),
                ..none()
            },
            false,
        ),
        (
            RecordRules {
                fail_if_not_matches_regexp: rule("^example.test.\t300\tIN\tA\t"),
                ..none()
            },
            true,
        ),
        (
            RecordRules {
                fail_if_not_matches_regexp: rule("198"),
                ..none()
            },
            false,
        ),
        (
            RecordRules {
                fail_if_none_matches_regexp: rule("198"),
                ..none()
            },
            true,
        ),
        (
            RecordRules {
                fail_if_none_matches_regexp: rule("203"),
                ..none()
            },
            false,
        ),
    ];
    for (position, (rules, is_valid)) in cases.into_iter().enumerate() {
        let settings = DnsSettings {
            validate_answer_rrs: rules,
            ..query("example.test")
        };
        let outcome = ask(settings, &server).await;
        assert_eq!(
            outcome.is_success(),
            is_valid,
            "case {position}: {outcome:?}"
        );
        if !is_valid {
            assert_failure(&outcome, Reason::AnswerMismatch, Phase::Request);
        }
    }
}

#[tokio::test]
async fn a_section_without_records_fails_only_rules_that_need_one() {
    let server = Dns::start(|query, _| Some(answer(query, 0, 1, &[]))).await;
    let rule = |pattern: &str| vec![compile_regexp(pattern).unwrap()];
    let none = RecordRules::default;
    let cases = [
        (
            RecordRules {
                fail_if_not_matches_regexp: rule("x"),
                ..none()
            },
            false,
        ),
        (
            RecordRules {
                fail_if_none_matches_regexp: rule("x"),
                ..none()
            },
            false,
        ),
        (
            RecordRules {
                fail_if_all_match_regexp: rule("x"),
                ..none()
            },
            true,
        ),
        (
            RecordRules {
                fail_if_not_all_match_regexp: rule("x"),
                ..none()
            },
            true,
        ),
    ];
    for (rules, is_valid) in cases {
        let settings = DnsSettings {
            validate_authority_rrs: rules,
            ..query("example.test")
        };
        assert_eq!(ask(settings, &server).await.is_success(), is_valid);
    }
}

#[tokio::test]
async fn dns_over_tls_verifies_the_server() {
    let ca = Ca::new("authority");
    let acceptor = ca.acceptor(&["server.test"], &[]);
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let answers: Answers = |query, _| Some(answer(query, 0, 1, &[&[192, 0, 2, 1]]));
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = serve(&mut stream, answers).await;
            }
        }
    });
    let server = server.await;
    let prober = Prober::Dns(Box::new(DnsSettings {
        dns_over_tls: true,
        tls_config: ca.trusted(),
        ..query("example.test")
    }));
    let outcome = probe(&prober, &format!("server.test:{}", server.port())).await;
    assert_success(&outcome);
    assert!(outcome.facts.certificate_expiry.is_some());
    let outcome = probe(&prober, &format!("other.test:{}", server.port())).await;
    assert_failure(&outcome, Reason::TlsNameMismatch, Phase::Tls);
}

#[tokio::test]
async fn names_that_cannot_be_asked_for_are_found_before_the_first_query() {
    for name in ["a..b", &"x".repeat(64)] {
        let error = query(name).check().unwrap_err();
        assert!(error.to_string().starts_with("query_name: "), "{error}");
    }
    assert!(query(".").check().is_ok());
    assert_eq!(DnsSettings::rcode("NXDOMAIN"), Some(3));
}

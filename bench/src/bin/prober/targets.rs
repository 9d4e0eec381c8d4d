//! What is probed: small servers in a process of their own, which count what reaches them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubevitals_tls::{Alpn, PemSource, ReloadingKeyPair, ServerOptions, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::TlsAcceptor;

use crate::case::Case;

/// Bytes of a page: about that of a small health endpoint.
const PAGE: &str = "ok: every part of this server works\n";

/// A health response: a frame of two bytes that says SERVING.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 0x01];

/// Maximum size of a health request.
const MAX_REQUEST_BYTES: usize = 1 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where the servers are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Targets {
    /// By [`Case::key`].
    pub(crate) addresses: BTreeMap<String, SocketAddr>,
    /// Tells the counts.
    pub(crate) control: SocketAddr,
    /// CA of the HTTPS server.
    pub(crate) authority: PathBuf,
}

/// What reached the servers.
#[derive(Debug, Default)]
struct Counts([AtomicU64; Case::ALL.len()]);

impl Counts {
    fn add(&self, case: Case) {
        if let Some(count) = self.0.get(case.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn to_json(&self) -> String {
        let counts = Case::ALL.iter().zip(&self.0);
        let counts: BTreeMap<&str, u64> = counts
            .map(|(case, count)| (case.key(), count.load(Ordering::Relaxed)))
            .collect();
        serde_json::json!(counts).to_string()
    }
}

/// Serves until it is killed; its first line of output says where. It writes files to `folder`.
pub(crate) fn serve(folder: &Path) -> Result<(), BoxError> {
    kubevitals_tls::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(folder))
}

async fn run(folder: &Path) -> Result<(), BoxError> {
    let counts = Arc::new(Counts::default());
    let authority = folder.join("targets-ca.crt");
    let acceptor = tls(&authority)?;
    let mut addresses = BTreeMap::new();
    let mut listeners = Vec::new();
    for case in Case::ALL {
        if case == Case::Dns {
            continue;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.insert(case.key().to_owned(), listener.local_addr()?);
        listeners.push((case, listener));
    }
    let dns = UdpSocket::bind("127.0.0.1:0").await?;
    addresses.insert(Case::Dns.key().to_owned(), dns.local_addr()?);
    let control = TcpListener::bind("127.0.0.1:0").await?;
    let targets = Targets {
        addresses,
        control: control.local_addr()?,
        authority,
    };
    for (case, listener) in listeners {
        let (counts, acceptor) = (Arc::clone(&counts), acceptor.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (counts, acceptor) = (Arc::clone(&counts), acceptor.clone());
                tokio::spawn(async move {
                    // A prober may disconnect at any time; what is counted is what matters.
                    let _ = connection(case, stream, acceptor, counts).await;
                });
            }
        });
    }
    tokio::spawn(answer_queries(dns, Arc::clone(&counts)));
    let mut out = std::io::stdout();
    writeln!(out, "{}", serde_json::to_string(&targets)?)?;
    out.flush()?;
    loop {
        let (mut stream, _) = control.accept().await?;
        let body = counts.to_json();
        let length = body.len();
        let response =
            format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes();
        tokio::spawn(async move {
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(&response).await;
        });
    }
}

async fn connection(
    case: Case,
    mut stream: TcpStream,
    acceptor: TlsAcceptor,
    counts: Arc<Counts>,
) -> Result<(), BoxError> {
    stream.set_nodelay(true)?;
    let status = if case == Case::Failing { 500 } else { 200 };
    let page = service_fn(|_: Request<Incoming>| {
        counts.add(case);
        async move {
            let response = Response::builder().status(status);
            response.body(Full::new(Bytes::from_static(PAGE.as_bytes())))
        }
    });
    let http = hyper::server::conn::http1::Builder::new();
    match case {
        Case::Http | Case::Failing => http.serve_connection(TokioIo::new(stream), page).await?,
        Case::Https => {
            let stream = acceptor.accept(stream).await?;
            http.serve_connection(TokioIo::new(stream), page).await?;
        }
        Case::Grpc => {
            let check = service_fn(|request: Request<Incoming>| {
                counts.add(case);
                check_health(request)
            });
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), check)
                .await?;
        }
        Case::Tcp => {
            counts.add(case);
            let mut rest = [0; 64];
            while stream.read(&mut rest).await? > 0 {}
        }
        Case::Dns => {}
    }
    Ok(())
}

/// `grpc.health.v1.Health/Check`: any service is serving.
async fn check_health(
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, BoxError> {
    // The request is read before it is answered, as a real server does.
    let body = Limited::new(request.into_body(), MAX_REQUEST_BYTES);
    #[expect(clippy::disallowed_methods, reason = "it is limited")]
    let _request = body.collect().await?;
    let mut trailers = HeaderMap::new();
    trailers.insert(
        HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    );
    let body = Full::new(Bytes::from_static(SERVING));
    let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
    let response = Response::builder().header(CONTENT_TYPE, "application/grpc");
    Ok(response.body(body)?)
}

async fn answer_queries(socket: UdpSocket, counts: Arc<Counts>) {
    let mut query = [0; 1500];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut query).await else {
            return;
        };
        let answer = query.get(..length).and_then(answer);
        if let Some(answer) = answer {
            counts.add(Case::Dns);
            // A prober that left is no error.
            let _ = socket.send_to(&answer, peer).await;
        }
    }
}

/// Answers a query with one address.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let mut end = HEADER;
    // The labels of the name, then type and class.
    loop {
        let length = usize::from(*query.get(end)?);
        end = end.checked_add(length)?.checked_add(1)?;
        if length == 0 {
            break;
        }
    }
    let question = query.get(HEADER..end.checked_add(4)?)?;
    let id = query.get(..2)?;
    let mut answer = id.to_vec();
    // A response with recursion, one question, one answer.
    answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    answer.extend(question);
    // The name of the question, A, IN, 60 s, 192.0.2.1.
    answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    Some(answer)
}

/// A certificate of a CA of its own, which is written to a file.
fn tls(authority_file: &Path) -> Result<TlsAcceptor, BoxError> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let names = &mut authority.distinguished_name;
    names.push(rcgen::DnType::CommonName, "kubevitals-bench");
    let authority_key = KeyPair::generate()?;
    let pem = authority.self_signed(&authority_key)?.pem();
    std::fs::write(authority_file, pem)?;
    let issuer = Issuer::new(authority, authority_key);
    let mut leaf = CertificateParams::default();
    leaf.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    let key = KeyPair::generate()?;
    let leaf = leaf.signed_by(&key, &issuer)?;
    let inline = |label, pem: String| PemSource::Inline {
        label,
        pem: pem.into_bytes().into(),
    };
    let pair = ReloadingKeyPair::load(
        "the serving certificate",
        inline("certificate", leaf.pem()),
        inline("key", key.serialize_pem()),
        SystemTime::now(),
    )?;
    let options = ServerOptions {
        alpn: vec![Alpn::Http11],
        ..ServerOptions::default()
    };
    Ok(TlsAcceptor::from(ServerTls::new(pair, &options)?.config()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_query_is_answered_with_its_question_and_an_address() {
        let mut query = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        query.extend(b"\x05probe\x07example\0\0\x01\0\x01");
        let question = query.get(12..).unwrap().to_vec();
        // What follows the question is not echoed.
        query.extend(b"\0\0\x29\x10\0\0\0\0\0\0\0");
        let answer = answer(&query).unwrap();
        assert_eq!(answer.get(..2), Some(&[0xab, 0xcd][..]));
        assert_eq!(answer.get(12..12 + question.len()), Some(&question[..]));
        assert!(answer.ends_with(&[0, 4, 192, 0, 2, 1]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn queries_never_panic(query in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = answer(&query);
        }
    }
}

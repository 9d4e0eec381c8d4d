//! Sessions with a scripted peer.

use kubevitals_model::NodeAddress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::address::AddressType;
use crate::credentials::Credentials;

const METRICS: &str = "node_cpu_usage_seconds_total 12\n";

/// The reaction of the peer to a request.
#[derive(Clone)]
enum Action {
    /// Responds, and waits for the next request.
    Respond(String),
    RespondAndClose(String),
    Close,
}

/// A session with a peer.
struct Harness {
    config: ScrapeConfig,
    session: Session,
}

impl Harness {
    /// Starts a peer with a list of actions for each connection.
    async fn new(connections: Vec<Vec<Action>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve(listener, connections));
        let mut config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        // One buffer: a scrape must not wait for a second one.
        config.concurrency = 1;
        Self {
            session: Session::new(Arc::new(target(port)), &config),
            config,
        }
    }

    async fn scrape(&mut self) -> Result<Scraped, ScrapeError> {
        let inner = ScraperInner::noop(self.config.clone());
        self.session.scrape(&context(&inner)).await
    }
}

async fn serve(listener: TcpListener, connections: Vec<Vec<Action>>) {
    for requests in connections {
        let (mut stream, _) = listener.accept().await.unwrap();
        for action in requests {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            match action {
                Action::Respond(response) => stream.write_all(response.as_bytes()).await.unwrap(),
                Action::RespondAndClose(response) => {
                    stream.write_all(response.as_bytes()).await.unwrap();
                    break;
                }
                Action::Close => break,
            }
        }
    }
}

fn response(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn a_scrape_reconnects_if_the_idle_connection_was_closed() {
    let metrics = || Action::Respond(response("200 OK", METRICS));
    let mut harness = Harness::new(vec![vec![metrics(), Action::Close], vec![metrics()]]).await;
    harness.config.warm_start = false;
    assert_eq!(harness.scrape().await.unwrap().report.used, 1);
    assert_eq!(harness.scrape().await.unwrap().report.used, 1);
}

/// A connection that failed while extras were read was once used again.
#[tokio::test]
async fn a_connection_that_fails_during_extras_is_not_reused() {
    let metrics = || Action::Respond(response("200 OK", METRICS));
    let mut harness = Harness::new(vec![
        // The extras are requested on the same connection, then on another.
        vec![metrics(), Action::Close],
        vec![Action::Close],
        vec![metrics()],
    ])
    .await;
    assert_eq!(harness.scrape().await.unwrap().report.used, 1);
    assert_eq!(harness.scrape().await.unwrap().report.used, 1);
}

#[tokio::test]
async fn unexpected_bytes_are_not_taken_for_the_next_response() {
    let twice = response("200 OK", METRICS) + &response("500 Oh", "no");
    let metrics = Action::Respond(response("200 OK", METRICS));
    let mut harness = Harness::new(vec![vec![Action::Respond(twice)], vec![metrics]]).await;
    harness.config.warm_start = false;
    assert_eq!(harness.scrape().await.unwrap().report.used, 1);
    assert_eq!(harness.scrape().await.unwrap().report.used, 1);
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_the_connection() {
    let complete = format!("HTTP/1.1 200 OK\r\n\r\n{METRICS}");
    let mut harness = Harness::new(vec![vec![Action::RespondAndClose(complete)]]).await;
    harness.config.warm_start = false;
    let scraped = harness.scrape().await.unwrap();
    assert_eq!(scraped.report.used, 1);
    assert!(scraped.truncated.is_none());
    let truncated = format!("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{METRICS}");
    let mut harness = Harness::new(vec![vec![Action::RespondAndClose(truncated)]]).await;
    harness.config.warm_start = false;
    let error = harness.scrape().await.unwrap().truncated.unwrap();
    assert_eq!(error.reason(), "truncated", "{error}");
}

/// Sessions of several nodes, which share limits.
struct SharedHarness {
    inner: Arc<ScraperInner>,
    /// The peers: each accepts connections of one node.
    listeners: Vec<TcpListener>,
    sessions: Vec<Session>,
}

impl SharedHarness {
    async fn new(nodes: usize, change: impl FnOnce(&mut ScrapeConfig)) -> Self {
        let mut config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        config.warm_start = false;
        change(&mut config);
        let (mut listeners, mut sessions) = (Vec::new(), Vec::new());
        for _ in 0..nodes {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            listeners.push(listener);
            let target = Target {
                is_tls: matches!(config.transport, Transport::Tls(_)),
                ..target(port)
            };
            sessions.push(Session::new(Arc::new(target), &config));
        }
        Self {
            inner: Arc::new(ScraperInner::noop(config)),
            listeners,
            sessions,
        }
    }

    /// Starts a scrape of each node.
    fn start(&mut self) -> JoinSet<Result<u64, ScrapeError>> {
        let mut scrapes = JoinSet::new();
        for mut session in std::mem::take(&mut self.sessions) {
            let inner = Arc::clone(&self.inner);
            scrapes.spawn(async move {
                let ctx = context(&inner);
                let scraped = session.scrape(&ctx).await?;
                Ok(scraped.report.used)
            });
        }
        scrapes
    }
}

fn target(port: u16) -> Target {
    let address = NodeAddress {
        kind: "InternalIP".into(),
        address: "127.0.0.1".into(),
    };
    Target {
        addresses: Addresses::choose(&[address], &[AddressType::InternalIp]),
        port,
        ..Target::unreachable()
    }
}

fn context(inner: &ScraperInner) -> ScrapeContext<'_> {
    ScrapeContext {
        inner,
        requested_at: inner.config.clock.now(),
        deadline: Deadline::at(Instant::now() + inner.config.timeout),
        standing: Standing::Good,
    }
}

/// Accepts a connection and reads the request.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream
}

/// Sends a body without an end.
async fn flood(mut stream: TcpStream, head: &str) {
    stream.write_all(head.as_bytes()).await.unwrap();
    let lines = "node_cpu_usage_seconds_total 12\n".repeat(1_000);
    // Fails once the peer has had enough.
    while stream.write_all(lines.as_bytes()).await.is_ok() {}
}

#[tokio::test]
async fn all_nodes_may_send_the_largest_body_at_once() {
    let mut harness = SharedHarness::new(60, |config| config.max_body_bytes = 5 << 20).await;
    let listeners = std::mem::take(&mut harness.listeners);
    for listener in listeners {
        tokio::spawn(async move {
            flood(accept(&listener).await, "HTTP/1.1 200 OK\r\n\r\n").await;
        });
    }
    let mut scrapes = harness.start();
    let mut large = 0;
    while let Some(scraped) = scrapes.join_next().await {
        let error = scraped.unwrap().unwrap_err();
        match error.reason() {
            "too-large" => large += 1,
            "memory-limit" => assert!(error.remedy().is_some()),
            other => panic!("{other}: {error}"),
        }
    }
    assert!(large >= 20, "{large}");
}

#[tokio::test]
async fn a_body_that_states_too_much_is_not_read() {
    let mut harness = SharedHarness::new(1, |_| {}).await;
    let mut scrapes = harness.start();
    let mut stream = accept(harness.listeners.first().unwrap()).await;
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2000000000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let error = scrapes.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.reason(), "too-large", "{error}");
}

/// Waiting for memory that other nodes take is not the fault of the kubelet.
#[tokio::test]
async fn a_node_that_waits_for_memory_is_not_slow() {
    let limit = Duration::from_secs(2);
    let mut harness = SharedHarness::new(1, |config| config.timeout = limit).await;
    let mut holder = harness.inner.buffers.acquire(Standing::Good).await;
    holder.reserve_inflated(5 << 20).await.unwrap();
    let mut scrapes = harness.start();
    let stream = accept(harness.listeners.first().unwrap()).await;
    let body = METRICS.repeat((5 << 20) / METRICS.len());
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    tokio::spawn(async move {
        let mut stream = stream;
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
    });
    let early = timeout(limit + limit / 2, scrapes.join_next()).await;
    assert!(early.is_err(), "{early:?}");
    drop(holder);
    let scraped = scrapes.join_next().await.unwrap().unwrap();
    assert!(scraped.unwrap() > 100_000);
}

#[tokio::test]
async fn as_many_responses_are_read_at_once_as_there_are_readers() {
    let mut harness = SharedHarness::new(6, |config| config.concurrency = 2).await;
    let mut scrapes = harness.start();
    let mut streams = Vec::new();
    for listener in &harness.listeners {
        let mut stream = accept(listener).await;
        let begin = b"HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\nnode_cpu_usage_seconds_total ";
        stream.write_all(begin).await.unwrap();
        streams.push(stream);
    }
    // All are connected, and two of them are read.
    while harness.inner.buffers.available() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(scrapes.try_join_next().is_none());
    for stream in &mut streams {
        stream.write_all(b"12\n").await.unwrap();
    }
    while let Some(scraped) = scrapes.join_next().await {
        assert_eq!(scraped.unwrap().unwrap(), 1);
    }
    assert_eq!(harness.inner.buffers.available(), 2);
}

#[tokio::test]
async fn a_handshake_begins_with_a_permit() {
    kubevitals_tls::install_crypto_provider();
    let options = kubevitals_tls::ClientOptions::default();
    let tls = ClientTls::dangerous_without_verification(&options).unwrap();
    let transport = Transport::Tls(tls);
    let mut harness = SharedHarness::new(1, |config| config.transport = transport).await;
    let inner = Arc::clone(&harness.inner);
    let all = u32::try_from(inner.handshakes.available_permits()).unwrap();
    assert_eq!(all, 64);
    let permits = inner.handshakes.acquire_many(all).await.unwrap();
    let scrapes = harness.start();
    let listener = harness.listeners.first().unwrap();
    let early = timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(early.is_err(), "{early:?}");
    drop(permits);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut byte = [0; 1];
    stream.read_exact(&mut byte).await.unwrap();
    assert_eq!(byte, [0x16], "the type of a handshake record");
    // The peer stays silent, and the permit is returned.
    drop(inner.handshakes.acquire_many(all).await.unwrap());
    drop(scrapes);
}

fn gzip(body: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// Scrapes a peer that sends a compressed body.
async fn scrape_gzip(body: Vec<u8>, length: usize) -> Result<u64, ScrapeError> {
    let mut harness = SharedHarness::new(1, |_| {}).await;
    let mut scrapes = harness.start();
    let mut stream = accept(harness.listeners.first().unwrap()).await;
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::spawn(async move {
        // Fails if the peer has had enough.
        let _ = stream.write_all(&body).await;
    });
    scrapes.join_next().await.unwrap().unwrap()
}

#[tokio::test]
async fn compressed_bodies_are_bounded_by_what_they_decompress_to() {
    let body = METRICS.repeat(10_000);
    let good = gzip(body.as_bytes());
    assert_eq!(scrape_gzip(good.clone(), good.len()).await.unwrap(), 10_000);
    let bomb = gzip(&vec![b'\n'; 17 << 20]);
    let error = scrape_gzip(bomb.clone(), bomb.len()).await.unwrap_err();
    assert_eq!(error.reason(), "too-large", "{error}");
    let mut lie = bomb;
    *lie.last_chunk_mut().unwrap() = 1_000_u32.to_le_bytes();
    let error = scrape_gzip(lie.clone(), lie.len()).await.unwrap_err();
    assert!(error.to_string().contains("malformed gzip"), "{error}");
    let error = scrape_gzip(b"not compressed at all".to_vec(), 21).await;
    assert_eq!(error.unwrap_err().reason(), "http-other");
}

/// Bytes that cannot be compressed, in a compressed body.
#[tokio::test]
async fn a_compressed_body_that_is_not_smaller_is_too_large() {
    let mut noise = 0_u64;
    let body: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        noise.to_be_bytes()
    })
    .take(640 << 10)
    .flatten()
    .collect();
    let compressed = gzip(&body);
    assert!(compressed.len() > 4 << 20);
    let error = scrape_gzip(compressed.clone(), compressed.len())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "too-large", "{error}");
}

#[tokio::test]
async fn a_truncated_compressed_body_gives_its_beginning() {
    let lines = (0..5_000).map(|n| format!("node_memory_working_set_bytes {n}\n"));
    let body = lines.collect::<Vec<_>>().concat();
    let good = gzip(body.as_bytes());
    let (part, _) = good.split_at(good.len() / 2);
    let used = scrape_gzip(part.to_vec(), good.len()).await.unwrap();
    assert!((100..5_000).contains(&used), "{used}");
}

#[tokio::test]
async fn endless_interim_responses_and_tiny_chunks_end_a_scrape() {
    let chunk = format!("1;x={}\r\na\r\n", "y".repeat(240));
    for endless in ["HTTP/1.1 100 Continue\r\n\r\n".to_owned(), chunk] {
        let mut harness = SharedHarness::new(1, |_| {}).await;
        let mut scrapes = harness.start();
        let stream = accept(harness.listeners.first().unwrap()).await;
        tokio::spawn(async move {
            let mut stream = stream;
            if endless.starts_with('1') {
                let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                stream.write_all(head).await.unwrap();
            }
            while stream.write_all(endless.as_bytes()).await.is_ok() {}
        });
        let error = scrapes.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.reason(), "http-other", "{error}");
    }
}

//! Sessions with a scripted peer.

use kubevitals_model::NodeAddress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
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
        let address = NodeAddress {
            kind: "InternalIP".into(),
            address: "127.0.0.1".into(),
        };
        let target = Target {
            addresses: Addresses::choose(&[address], &[AddressType::InternalIp]),
            port,
            ..Target::unreachable()
        };
        Self {
            session: Session::new(Arc::new(target), &config),
            config,
        }
    }

    async fn scrape(&mut self) -> Result<Scraped, ScrapeError> {
        let ctx = ScrapeContext {
            inner: &ScraperInner::noop(self.config.clone()),
            requested_at: self.config.clock.now(),
            deadline: Deadline::at(Instant::now() + self.config.timeout),
        };
        self.session.scrape(&ctx).await
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

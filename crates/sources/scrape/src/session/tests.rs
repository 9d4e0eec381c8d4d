//! Against a peer that does exactly what it is told.

use kubevitals_telemetry::Metrics;
use kubevitals_watch::NodeAddress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::address::AddressType;
use crate::config::WallClock;
use crate::credentials::Credentials;

const METRICS: &str = "node_cpu_usage_seconds_total 12\n";

/// What a peer does with a request.
#[derive(Clone)]
enum Does {
    /// Answers, and waits for the next request.
    Says(String),
    /// Answers, and closes.
    SaysAndCloses(String),
    /// Closes.
    Closes,
}

/// A session with a peer, and what it needs.
struct Bed {
    config: ScrapeConfig,
    workspaces: Workspaces,
    handshakes: Semaphore,
    metrics: ScrapeMetrics,
    session: Session,
}

impl Bed {
    /// A peer that treats the requests on its first connection, on its second, … as told.
    async fn new(connections: Vec<Vec<Does>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve(listener, connections));
        let config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        let address = NodeAddress {
            kind: "InternalIP".into(),
            address: "127.0.0.1".into(),
        };
        let target = Target {
            addresses: Addresses::choose(&[address], &[AddressType::InternalIp]),
            port,
            ..Target::nowhere()
        };
        Self {
            workspaces: Workspaces::new(1),
            handshakes: Semaphore::new(1),
            metrics: ScrapeMetrics::register(&mut Metrics::new(), config.resolution),
            session: Session::new(Arc::new(target), &config),
            config,
        }
    }

    async fn scrape(&mut self) -> Result<Scraped, Failure> {
        let means = Means {
            config: &self.config,
            workspaces: &self.workspaces,
            handshakes: &self.handshakes,
            metrics: &self.metrics,
            asked: WallClock::system().now(),
            deadline: Deadline::at(Instant::now() + self.config.timeout),
        };
        self.session.scrape(&means).await
    }
}

async fn serve(listener: TcpListener, connections: Vec<Vec<Does>>) {
    for requests in connections {
        let (mut stream, _) = listener.accept().await.unwrap();
        for does in requests {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            match does {
                Does::Says(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                Does::SaysAndCloses(answer) => {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    break;
                }
                Does::Closes => break,
            }
        }
    }
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_costs_no_scrape() {
    let metrics = || Does::Says(answer("200 OK", METRICS));
    let mut bed = Bed::new(vec![vec![metrics(), Does::Closes], vec![metrics()]]).await;
    bed.config.warm_start = false;
    assert_eq!(bed.scrape().await.unwrap().report.used, 1);
    assert_eq!(bed.scrape().await.unwrap().report.used, 1);
}

#[tokio::test]
async fn a_connection_that_broke_while_extras_were_asked_for_was_used_again() {
    let metrics = || Does::Says(answer("200 OK", METRICS));
    let mut bed = Bed::new(vec![
        // The extras are asked for on the same connection, then on another.
        vec![metrics(), Does::Closes],
        vec![Does::Closes],
        vec![metrics()],
    ])
    .await;
    assert_eq!(bed.scrape().await.unwrap().report.used, 1);
    assert_eq!(bed.scrape().await.unwrap().report.used, 1);
}

#[tokio::test]
async fn more_than_was_asked_for_is_not_taken_for_the_next_answer() {
    let twice = answer("200 OK", METRICS) + &answer("500 Oh", "no");
    let metrics = Does::Says(answer("200 OK", METRICS));
    let mut bed = Bed::new(vec![vec![Does::Says(twice)], vec![metrics]]).await;
    bed.config.warm_start = false;
    assert_eq!(bed.scrape().await.unwrap().report.used, 1);
    assert_eq!(bed.scrape().await.unwrap().report.used, 1);
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_its_connection() {
    let whole = format!("HTTP/1.1 200 OK\r\n\r\n{METRICS}");
    let mut bed = Bed::new(vec![vec![Does::SaysAndCloses(whole)]]).await;
    bed.config.warm_start = false;
    let scraped = bed.scrape().await.unwrap();
    assert_eq!((scraped.report.used, scraped.cut), (1, None));
    drop(scraped.work);
    let cut = format!("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{METRICS}");
    let mut bed = Bed::new(vec![vec![Does::SaysAndCloses(cut)]]).await;
    bed.config.warm_start = false;
    let failure = bed.scrape().await.unwrap().cut.unwrap();
    assert_eq!(failure.reason(), "partial", "{failure}");
}

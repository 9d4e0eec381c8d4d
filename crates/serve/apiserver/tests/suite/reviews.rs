//! Reviews by an API server that misbehaves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubevitals_apiserver::{BearerToken, KubeReviewer, Reviewer as _, TokenReviewResult};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::client::{Client, Received};
use crate::support::Running;

const WIDGETS: &str = "/apis/example.dev/v1/widgets";

/// Responds to every second connection, and resets the others in the middle of a request.
struct Resetting {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Resetting {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let is_reset = counter.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
                serve(stream, is_reset).await;
            }
        });
        Self {
            address,
            connections,
            task,
        }
    }

    fn reviewer(&self) -> KubeReviewer {
        let url = format!("http://{}", self.address).parse().unwrap();
        KubeReviewer::new(kube::Client::try_from(kube::Config::new(url)).unwrap())
    }
}

impl Drop for Resetting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, is_reset: bool) {
    let mut head = vec![0; 16 * 1024];
    if stream.read(&mut head).await.unwrap() == 0 {
        return;
    }
    if is_reset {
        stream.set_zero_linger().unwrap();
        return;
    }
    let review =
        json!({"status": {"authenticated": true, "user": {"username": "ada"}}}).to_string();
    let response = format!(
        "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{review}",
        review.len()
    );
    stream.write_all(response.as_bytes()).await.unwrap();
    // Reads the rest, so that the response is not lost to a reset.
    while stream.read(&mut head).await.is_ok_and(|count| count > 0) {}
}

/// One restart of an API server used to be a burst of failed requests.
#[tokio::test]
async fn reviews_are_retried_after_a_reset() {
    kubevitals_tls::install_crypto_provider();
    let server = Resetting::start().await;
    let reviewer = server.reviewer();
    for _ in 0..2 {
        let token = BearerToken::new("x");
        let result = reviewer.review_token(&token).await.unwrap();
        assert!(matches!(result, TokenReviewResult::Valid(user) if user.name == "ada"));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 4);
}

/// Nobody listens: the response should say so at once.
#[tokio::test]
async fn reviews_are_not_retried_after_a_refused_connection() {
    kubevitals_tls::install_crypto_provider();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let config = kube::Config::new(url.parse().unwrap());
    let reviewer = KubeReviewer::new(kube::Client::try_from(config).unwrap());
    let error = reviewer
        .review_token(&BearerToken::new("x"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

/// Anonymous clients with random tokens: what is not limited becomes requests to the API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_random_tokens_is_limited() {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 150;
    let server = Running::start().await;
    let started = Instant::now();
    let reader = Client::reader(&server);
    assert_eq!(reader.get(WIDGETS).await.code, 200);
    let storm = (0..CLIENTS).map(|number| {
        let anonymous = Client::of(&server).http1();
        tokio::spawn(async move {
            let mut open = anonymous.connect().await;
            let mut codes = Vec::new();
            for request in 0..REQUESTS {
                let client = anonymous
                    .clone()
                    .bearer(&format!("random-{number}-{request}"));
                let request = client.request(http::Method::GET, WIDGETS);
                let response = Received::read(open.send(request).await.unwrap()).await;
                codes.push(response.code.as_u16());
            }
            codes
        })
    });
    let storm = futures_util::future::join_all(storm);
    let meanwhile = async {
        for _ in 0..10 {
            assert_eq!(Client::of(&server).get("/livez").await.code, 200);
            assert_eq!(
                reader.get(WIDGETS).await.code,
                200,
                "its reviews are cached"
            );
        }
    };
    let (codes, ()) = tokio::join!(storm, meanwhile);
    let codes: Vec<u16> = codes.into_iter().flat_map(Result::unwrap).collect();
    let rejected = codes.iter().filter(|code| **code == 401).count();
    let limited = codes.iter().filter(|code| **code == 429).count();
    assert_eq!(rejected + limited, CLIENTS * REQUESTS);
    // The burst, the rate, and those that wait for half a second at the end.
    let allowed = 400 + 200 * (started.elapsed().as_millis() + 500) / 1000 + 1;
    let asked = server.reviewer.tokens_asked.load(Ordering::SeqCst);
    assert!(
        u128::try_from(asked).unwrap() <= allowed,
        "{asked} of {allowed}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_huge_header_costs_no_review() {
    let server = Running::start().await;
    let huge = "x".repeat(1024 * 1024);
    for client in [Client::of(&server), Client::of(&server).http1()] {
        for header in ["authorization", "impersonate-user", "x-remote-user"] {
            let client = client.clone().with(header, &format!("Bearer {huge}"));
            let mut open = client.connect().await;
            // Some clients notice that the connection is closed before they have written it all.
            if let Ok(response) = open.send(client.request(http::Method::GET, WIDGETS)).await {
                assert_eq!(response.status(), 431, "{header}");
            }
        }
    }
    assert_eq!(server.reviewer.tokens_asked.load(Ordering::SeqCst), 0);
    assert_eq!(server.reviewer.access_asked.load(Ordering::SeqCst), 0);
    assert_eq!(Client::reader(&server).get(WIDGETS).await.code, 200);
    server.stop().await;
}

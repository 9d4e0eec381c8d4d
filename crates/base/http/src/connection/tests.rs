//! Timeouts of a connection, on an in-memory stream and a paused clock.

use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::source::Source;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// Responds with a body of a fixed size.
struct FixedBody(usize);

impl<P: Send + Sync + 'static> Handler<P> for FixedBody {
    type Body = Full<Bytes>;

    async fn handle(&self, _: &Arc<Connection<P>>, _: Request<Incoming>) -> Response<Full<Bytes>> {
        Response::new(Full::new(Bytes::from(vec![b'x'; self.0])))
    }
}

fn connect(body: usize) -> (DuplexStream, Arc<ConnState>, JoinHandle<()>) {
    let (client, io) = tokio::io::duplex(1024);
    let state = ConnState::new(Source::from(IpAddr::from([127, 0, 0, 1])));
    state.established(false);
    let served = Arc::clone(&state);
    let task = tokio::spawn(async move {
        let accepted = Accepted {
            io,
            peer: (),
            is_http2: false,
        };
        let handler = Arc::new(FixedBody(body));
        serve(accepted, None, handler, &Limits::default(), served).await;
    });
    (client, state, task)
}

async fn request(client: &mut DuplexStream) {
    client.write_all(REQUEST).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\nx") {
        response.push(client.read_u8().await.unwrap());
    }
    assert!(response.starts_with(b"HTTP/1.1 200 OK"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_ends_the_connection() {
    let (mut client, _state, task) = connect(1);
    let begin = Instant::now();
    // Single bytes do not extend the timeout.
    for byte in *b"GET /" {
        client.write_all(&[byte]).await.unwrap();
        tokio::time::advance(Duration::from_millis(900)).await;
        tokio::task::yield_now().await;
    }
    client.read_to_end(&mut Vec::new()).await.unwrap();
    task.await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_disconnected() {
    let (mut client, _state, task) = connect(1);
    let begin = Instant::now();
    client.read_to_end(&mut Vec::new()).await.unwrap();
    task.await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_longer_then_ends() {
    let (mut client, _state, task) = connect(1);
    for _ in 0..3 {
        request(&mut client).await;
        tokio::time::advance(Duration::from_secs(80)).await;
    }
    let begin = Instant::now();
    client.read_to_end(&mut Vec::new()).await.unwrap();
    task.await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_is_disconnected() {
    let (mut client, _state, task) = connect(4096);
    let begin = Instant::now();
    // The response is longer than the pipe.
    client.write_all(REQUEST).await.unwrap();
    task.await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 90);
}

#[tokio::test]
async fn closing_ends_an_idle_connection_at_once() {
    let (mut client, state, task) = connect(1);
    request(&mut client).await;
    assert!(state.is_idle());
    state.close();
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    task.await.unwrap();
}

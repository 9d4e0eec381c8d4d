//! Large streams over sockets, through the HTTP server of the project.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kubevitals_http::{Handler, Limits, Plain, Server, ServerMetrics};
use tokio::net::TcpStream;

use super::client::{Message, Spdy, WebSocket, frame};
use super::*;

const BYTES: usize = 100 << 20;
/// Not a divisor of any buffer.
const PATTERN: usize = 65_521;

impl Handler<IpAddr> for Harness {
    type Body = Full<Bytes>;

    async fn handle(
        &self,
        _: &Arc<kubevitals_http::Connection<IpAddr>>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        Self::handle(self, request).await
    }
}

/// Serves on a socket until the test ends.
pub(super) async fn serve(harness: &Harness) -> SocketAddr {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind("test", address, Limits::default(), ServerMetrics::default());
    let server = server.await.unwrap();
    let address = server.local_addr();
    let handler = Arc::new(harness.clone());
    tokio::spawn(server.serve(Plain, handler, std::future::pending()));
    address
}

/// Bytes that differ everywhere, twice, so that a pattern can be taken at any offset.
fn pattern() -> Vec<u8> {
    let mut state = 1_u32;
    let next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    let once: Vec<u8> = std::iter::repeat_with(next).take(PATTERN).collect();
    once.repeat(2)
}

/// Compares a stream with the pattern.
struct Checker {
    pattern: Vec<u8>,
    offset: usize,
}

impl Checker {
    fn new() -> Self {
        Self {
            pattern: pattern(),
            offset: 0,
        }
    }

    fn check(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PATTERN));
            let start = self.offset % PATTERN;
            assert!(
                now == &self.pattern[start..start + now.len()],
                "at {}",
                self.offset
            );
            self.offset += now.len();
            bytes = later;
        }
    }
}

async fn send<W: AsyncWrite + Unpin>(writer: &mut W) {
    let pattern = pattern();
    let mut rest = BYTES;
    while rest > 0 {
        let length = rest.min(PATTERN);
        writer.write_all(&pattern[..length]).await.unwrap();
        rest -= length;
    }
}

async fn receive<R: AsyncRead + Unpin>(reader: &mut R) -> usize {
    let mut checker = Checker::new();
    let mut buffer = vec![0; 32 << 10];
    loop {
        let length = reader.read(&mut buffer).await.unwrap();
        if length == 0 {
            return checker.offset;
        }
        checker.check(&buffer[..length]);
    }
}

/// Reads all of stdin while it writes as much to stdout.
async fn both_ways(streams: Streams) -> Result<u8, ProviderError> {
    let (mut stdin, mut stdout) = (streams.stdin.unwrap(), streams.stdout.unwrap());
    let (received, ()) = tokio::join!(receive(&mut stdin), send(&mut stdout));
    assert_eq!(received, BYTES);
    Ok(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_streams_arrive_whole_over_spdy() {
    within(async {
        let server = Harness::command(ALL, both_ways);
        let io = TcpStream::connect(serve(&server).await).await.unwrap();
        let kinds = ["error", "stdin", "stdout", "stderr"];
        let mut client = Spdy::connect(io, "v4.channel.k8s.io", &kinds).await;
        let (mut stdin, mut stdout) = (client.take("stdin"), client.take("stdout"));
        let write = async {
            send(&mut stdin.writer).await;
            stdin.writer.shutdown().await.unwrap();
        };
        let (received, ()) = tokio::join!(receive(&mut stdout.reader), write);
        assert_eq!(received, BYTES);
        assert!(client.read("error").await.contains("Success"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_streams_arrive_whole_over_websocket() {
    within(async {
        let server = Harness::command(ALL, both_ways);
        let io = TcpStream::connect(serve(&server).await).await.unwrap();
        let client = WebSocket::connect(io, "v5.channel.k8s.io").await;
        let (input, mut output) = client.io.into_split();
        let write = tokio::spawn(async move {
            let message = frame(0x82, &[&[0], &pattern()[..PATTERN]].concat());
            for _ in 0..BYTES / PATTERN {
                output.write_all(&message).await.unwrap();
            }
            let rest = [&[0], &pattern()[..BYTES % PATTERN]].concat();
            output.write_all(&frame(0x82, &rest)).await.unwrap();
            output.write_all(&frame(0x82, &[255, 0])).await.unwrap();
            output
        });
        // The handshake is over: only messages are read.
        let mut client = WebSocket::over(tokio::io::join(input, tokio::io::sink()));
        let mut checker = Checker::new();
        let mut status = String::new();
        loop {
            match client.receive().await.unwrap() {
                Message::Binary(message) if message[0] == 1 => checker.check(&message[1..]),
                Message::Binary(message) => {
                    status = String::from_utf8(message[1..].to_vec()).unwrap();
                }
                Message::Close(code) => {
                    assert_eq!(code, 1000);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(checker.offset, BYTES);
        assert!(status.contains("Success"), "{status}");
        write.await.unwrap();
    })
    .await;
}

//! Port-forward.

use futures_util::future::join_all;
use kubevitals_spdy::{Connection, Headers, Stream};
use tokio::net::TcpStream;

use super::client::{Message, Spdy, WebSocket, frame, websocket_handshake};
use super::*;
use crate::provider::{Duplex, ProviderFuture};

/// Connects to echo servers, by port: 80 echoes, 81 says hello and closes, 82 breaks after a byte,
/// 83 never connects, others refuse.
struct Ports;

impl PortDialer for Ports {
    fn dial(&self, port: u16) -> ProviderFuture<'_, Box<dyn Duplex>> {
        let (client, mut pod) = tokio::io::duplex(1024);
        async move {
            match port {
                80 => {
                    tokio::spawn(async move {
                        let (mut input, mut output) = tokio::io::split(pod);
                        let _ = tokio::io::copy(&mut input, &mut output).await;
                        let _ = output.shutdown().await;
                    });
                }
                81 => {
                    tokio::spawn(async move {
                        pod.write_all(b"hello").await.unwrap();
                    });
                }
                82 => return Ok(Box::new(Breaking) as Box<dyn Duplex>),
                83 => std::future::pending().await,
                _ => return Err(ProviderError::Unavailable("connection refused".to_owned())),
            }
            Ok(Box::new(client) as Box<dyn Duplex>)
        }
        .boxed()
    }
}

/// A connection that the pod resets.
struct Breaking;

impl AsyncRead for Breaking {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()))
    }
}

impl AsyncWrite for Breaking {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::task::Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

fn server(ports: &[u16]) -> Harness {
    Harness::new(
        StreamingConfig::default(),
        Route::Forward(ports.to_vec(), Arc::new(Ports)),
    )
}

fn headers(kind: &str, port: u16, request: &str) -> Headers {
    let headers = Headers::default()
        .with("streamType", kind)
        .with("port", &port.to_string());
    if request.is_empty() {
        headers
    } else {
        headers.with("requestID", request)
    }
}

/// Opens the streams of a connection, as kubectl does: the error stream is half-closed at once.
async fn open(connection: &Connection, port: u16, request: &str) -> (Stream, Stream) {
    let error = connection.open(headers("error", port, request)).await;
    let mut error = error.unwrap();
    error.writer.shutdown().await.unwrap();
    let data = connection.open(headers("data", port, request)).await;
    (data.unwrap(), error)
}

/// Sends bytes to the echo, and checks that they return and nothing is on the error stream.
async fn echo(connection: &Connection, request: &str, bytes: usize) {
    let (mut data, mut error) = open(connection, 80, request).await;
    let sent = vec![3; bytes];
    let write = async {
        data.writer.write_all(&sent).await.unwrap();
        data.writer.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (read, ()) = tokio::join!(data.reader.read_to_end(&mut received), write);
    read.unwrap();
    assert!(received == sent, "{request}");
    let mut text = String::new();
    error.reader.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "");
}

#[tokio::test]
async fn many_connections_share_one_upgraded_connection() {
    within(async {
        let server = server(&[]);
        let client = Spdy::connect(server.connect(), "portforward.k8s.io", &[]).await;
        let connections = (0..100).map(|number| {
            let connection = &client.connection;
            async move { echo(connection, &number.to_string(), 10_000).await }
        });
        join_all(connections).await;
        // Without a number the data stream follows the error stream.
        echo(&client.connection, "", 10).await;
    })
    .await;
}

#[tokio::test]
async fn a_failed_connection_is_told_on_its_error_stream_and_others_go_on() {
    within(async {
        let server = server(&[]);
        let client = Spdy::connect(server.connect(), "portforward.k8s.io", &[]).await;
        let (mut data, mut error) = open(&client.connection, 9, "1").await;
        let mut text = String::new();
        error.reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "error forwarding port 9: connection refused");
        assert!(data.reader.read_u8().await.is_err());
        // The pod closes: end of file. The pod resets: a reset, and no text, which would make
        // kubectl end all its forwarding.
        let (mut data, _error) = open(&client.connection, 81, "2").await;
        let mut hello = Vec::new();
        data.reader.read_to_end(&mut hello).await.unwrap();
        assert_eq!(hello, b"hello");
        let (mut data, mut error) = open(&client.connection, 82, "3").await;
        assert!(data.reader.read_u8().await.is_err());
        text.clear();
        error.reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "");
        echo(&client.connection, "4", 10).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pairs_and_connections_that_are_not_completed_time_out() {
    eventually(async {
        let server = server(&[]);
        let client = Spdy::connect(server.connect(), "portforward.k8s.io", &[]).await;
        let begin = tokio::time::Instant::now();
        let alone = client.connection.open(headers("error", 80, "1")).await;
        let mut alone = alone.unwrap();
        assert!(alone.reader.read_u8().await.is_err());
        assert_eq!(begin.elapsed().as_secs(), 30);
        let (_data, mut error) = open(&client.connection, 83, "2").await;
        let mut text = String::new();
        error.reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "error forwarding port 83: timed out");
        assert_eq!(begin.elapsed().as_secs(), 60);
        echo(&client.connection, "3", 10).await;
    })
    .await;
}

#[tokio::test]
async fn streams_of_no_pair_are_refused() {
    within(async {
        let server = server(&[]);
        let client = Spdy::connect(server.connect(), "portforward.k8s.io", &[]).await;
        let base = |kind: &str| Headers::default().with("streamtype", kind);
        let (_data, _error) = open(&client.connection, 80, "1").await;
        let first = client.connection.open(headers("data", 80, "2")).await;
        for headers in [
            base("data"),
            base("other").with("port", "80"),
            base("data").with("port", "0"),
            base("data").with("port", "65536"),
            headers("data", 80, &"x".repeat(65)),
            // Twice, and with another port.
            headers("data", 80, "2"),
            headers("error", 81, "2"),
        ] {
            let opened = client.connection.open(headers.clone()).await;
            assert!(opened.is_err(), "{headers:?}");
        }
        first.unwrap();
    })
    .await;
}

/// Puts bytes into binary messages, as a client of the tunnel does.
async fn tunnel_client(io: DuplexStream) -> DuplexStream {
    let (near, far) = tokio::io::duplex(1024);
    let mut websocket = WebSocket::connect(io, "SPDY/3.1+portforward.k8s.io").await;
    websocket.send_frame(0x89, b"ping").await.unwrap();
    let pong = websocket.receive().await;
    assert_eq!(pong, Some(Message::Pong(b"ping".to_vec())));
    let (input, mut output) = tokio::io::split(websocket.io);
    let (mut far_input, mut far_output) = tokio::io::split(far);
    tokio::spawn(async move {
        let mut buffer = [0; 777];
        while let Ok(length @ 1..) = far_input.read(&mut buffer).await {
            let frame = frame(0x82, &buffer[..length]);
            if output.write_all(&frame).await.is_err() {
                return;
            }
        }
        let _ = output
            .write_all(&frame(0x88, &1000_u16.to_be_bytes()))
            .await;
    });
    tokio::spawn(async move {
        let mut websocket = WebSocket::over(tokio::io::join(input, tokio::io::sink()));
        while let Some(Message::Binary(bytes)) = websocket.receive().await {
            if far_output.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    near
}

#[tokio::test]
async fn a_tunnel_carries_spdy_in_messages() {
    within(async {
        let server = server(&[]);
        let io = tunnel_client(server.connect()).await;
        let client = Spdy::open(io, &[]).await;
        let connections = (0..10).map(|number| {
            let connection = &client.connection;
            async move { echo(connection, &number.to_string(), 100_000).await }
        });
        join_all(connections).await;
        client.connection.close();
        while server.metrics.sessions() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn text_in_a_tunnel_ends_it() {
    within(async {
        let server = server(&[]);
        let protocol = "SPDY/3.1+portforward.k8s.io";
        let mut client = WebSocket::connect(server.connect(), protocol).await;
        client.send_frame(0x81, b"x").await.unwrap();
        while client.receive().await.is_some() {}
    })
    .await;
}

#[tokio::test]
async fn channels_forward_each_port_of_the_request() {
    within(async {
        let server = server(&[80, 9, 81]);
        let mut client = WebSocket::connect(server.connect(), "v4.channel.k8s.io").await;
        // Each channel is opened by its port, little endian.
        for (channel, port) in [(0, 80), (1, 80), (2, 9), (3, 9), (4, 81), (5, 81)] {
            let opened = Message::Binary(vec![channel, port, 0]);
            assert_eq!(client.receive().await, Some(opened));
        }
        client.send(0, b"echoed").await;
        let mut channels: [Vec<u8>; 6] = Default::default();
        while channels[0] != b"echoed" || channels[4] != b"hello" || channels[3].is_empty() {
            let Some(Message::Binary(bytes)) = client.receive().await else {
                panic!("{channels:?}");
            };
            channels[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
        }
        assert_eq!(channels[3], b"error forwarding port 9: connection refused");
        assert!(channels[1].is_empty() && channels[5].is_empty());
    })
    .await;
}

#[tokio::test]
async fn channels_close_when_all_connections_have_ended() {
    within(async {
        let server = server(&[81]);
        let mut client = WebSocket::connect(server.connect(), "v4.channel.k8s.io").await;
        let mut last = None;
        while let Some(message) = client.receive().await {
            last = Some(message);
            if matches!(last, Some(Message::Close(_))) {
                break;
            }
        }
        assert_eq!(last, Some(Message::Close(1000)));
    })
    .await;
}

#[tokio::test]
async fn channels_need_ports() {
    within(async {
        for ports in [vec![], vec![80; 65]] {
            let mut io = server(&ports).connect();
            let response = websocket_handshake(&mut io, "v4.channel.k8s.io").await;
            assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_data_is_forwarded_over_sockets() {
    within(async {
        let server = server(&[]);
        let address = large::serve(&server).await;
        let io = TcpStream::connect(address).await.unwrap();
        let client = Spdy::connect(io, "portforward.k8s.io", &[]).await;
        tokio::join!(
            echo(&client.connection, "1", 16 << 20),
            echo(&client.connection, "2", 16 << 20),
        );
    })
    .await;
}

//! A server and a client over memory, and a server against raw frames.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::BytesMut;
use kubevitals_spdy::frame::{self, Decoder, Frame, reset};
use kubevitals_spdy::header::{HeaderDecoder, HeaderEncoder};
use kubevitals_spdy::{Config, Connection, Headers, SpdyError, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

type Driver = JoinHandle<Result<(), SpdyError>>;

fn headers(kind: &str) -> Headers {
    Headers::default().with("streamType", kind)
}

fn server(config: Config) -> (DuplexStream, Connection, Driver) {
    let (client, io) = tokio::io::duplex(1 << 10);
    let (connection, driver) = Connection::server(io, config);
    (client, connection, tokio::spawn(driver))
}

/// A server, a client, and their drivers.
fn pair(config: Config) -> (Connection, Connection, Driver, Driver) {
    let (io, server, server_driver) = server(config);
    let (client, driver) = Connection::client(io, Config::default());
    (server, client, server_driver, tokio::spawn(driver))
}

/// Opens a stream: the server's and the client's end.
async fn open(server: &mut Connection, client: &Connection, kind: &str) -> (Stream, Stream) {
    let accept = async {
        let pending = server.accept().await.unwrap();
        assert_eq!(pending.headers().get("streamtype"), Some(kind));
        pending.accept().unwrap()
    };
    let (accepted, opened) = tokio::join!(accept, client.open(headers(kind)));
    (accepted, opened.unwrap())
}

/// Runs a test that must end in time; a regression would hang.
async fn within(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(Duration::from_mins(1), test).await;
    ended.expect("the test ends in time");
}

/// Runs a test on a paused clock: when nothing else can happen, the day is over.
async fn eventually(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(Duration::from_hours(24), test).await;
    ended.expect("the test ends");
}

/// A client of raw frames.
struct Raw {
    io: DuplexStream,
    headers: HeaderEncoder,
    decoder: Decoder,
    buffer: BytesMut,
}

impl Raw {
    fn new(io: DuplexStream) -> Self {
        Self {
            io,
            headers: HeaderEncoder::new(),
            decoder: Decoder::new(HeaderDecoder::new(32, 16 << 10), 8 << 10),
            buffer: BytesMut::new(),
        }
    }

    async fn syn(&mut self, id: u32, fin: bool) {
        let block = self.headers.encode(&headers("data")).unwrap();
        self.send(|out| frame::put_syn_stream(out, id, fin, &block))
            .await;
    }

    async fn send(&mut self, put: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        put(&mut out);
        self.io.write_all(&out).await.unwrap();
    }

    /// The next frame; `None` at the end.
    async fn receive(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            if self.io.read_buf(&mut self.buffer).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

#[tokio::test]
async fn streams_carry_bytes_both_ways_and_half_close() {
    within(async {
        let (mut server, client, ..) = pair(Config::default());
        let (mut a, mut b) = open(&mut server, &client, "stdin").await;
        let (mut c, mut d) = open(&mut server, &client, "stdout").await;
        assert_eq!((a.id(), c.id()), (1, 3));
        b.writer.write_all(b"to the server").await.unwrap();
        b.writer.shutdown().await.unwrap();
        let mut text = String::new();
        a.reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "to the server");
        // The other direction is still open.
        a.writer.write_all(b"and back").await.unwrap();
        drop(a.writer);
        text.clear();
        b.reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "and back");
        let error = b.writer.write_all(b"more").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        let sent = vec![7; 5 << 20];
        let write = async {
            c.writer.write_all(&sent).await.unwrap();
            c.writer.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (read, ()) = tokio::join!(d.reader.read_to_end(&mut received), write);
        assert_eq!(read.unwrap(), sent.len());
        assert_eq!(received, sent);
    })
    .await;
}

#[tokio::test]
async fn a_reset_ends_both_directions_of_one_stream() {
    within(async {
        let (mut server, client, ..) = pair(Config::default());
        let (mut a, mut b) = open(&mut server, &client, "data").await;
        let (mut c, mut d) = open(&mut server, &client, "data").await;
        b.writer.reset(reset::CANCEL);
        let error = a.reader.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let error = a.writer.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert!(b.reader.read_u8().await.is_err());
        d.writer.write_all(b"x").await.unwrap();
        assert_eq!(c.reader.read_u8().await.unwrap(), b'x');
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_not_accepted_is_refused() {
    within(async {
        let (mut server, client, ..) = pair(Config::default());
        let refuse = async { drop(server.accept().await.unwrap()) };
        let (opened, ()) = tokio::join!(client.open(headers("data")), refuse);
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    })
    .await;
}

#[tokio::test]
async fn more_streams_than_the_limit_are_refused_until_others_end() {
    within(async {
        let config = Config {
            max_streams: 2,
            ..Config::default()
        };
        let (mut server, client, ..) = pair(config);
        let (a, b) = open(&mut server, &client, "data").await;
        let (_c, _d) = open(&mut server, &client, "data").await;
        let error = client.open(headers("data")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        drop((a, b));
        // The server may hear of the end after the next stream.
        loop {
            let accept = async { server.accept().await.unwrap().accept().unwrap() };
            tokio::select! {
                opened = client.open(headers("data")) => assert!(opened.is_err()),
                _accepted = accept => break,
            }
        }
    })
    .await;
}

/// There is no flow control: what a stream cannot take stays in the socket of the client.
#[tokio::test(start_paused = true)]
async fn a_full_stream_stops_reading_and_the_rest_follows() {
    eventually(async {
        let config = Config {
            stream_buffer: 1000,
            ..Config::default()
        };
        let (mut server, client, server_driver, client_driver) = pair(config);
        let (mut a, mut b) = open(&mut server, &client, "stdin").await;
        let (mut c, mut d) = open(&mut server, &client, "other").await;
        let sent = vec![1; 1 << 20];
        let write = tokio::spawn(async move {
            b.writer.write_all(&sent).await.unwrap();
            b
        });
        d.writer.write_all(b"later").await.unwrap();
        // Nothing happens for an hour, except pings.
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(!write.is_finished(), "a megabyte is not buffered");
        assert!(!server_driver.is_finished() && !client_driver.is_finished());
        let mut received = vec![0; 1 << 20];
        a.reader.read_exact(&mut received).await.unwrap();
        write.await.unwrap();
        let mut later = [0; 5];
        c.reader.read_exact(&mut later).await.unwrap();
        assert_eq!(&later, b"later");
    })
    .await;
}

#[tokio::test]
async fn data_of_a_stream_that_nobody_reads_is_dropped() {
    within(async {
        let (mut server, client, ..) = pair(Config::default());
        let (a, mut b) = open(&mut server, &client, "stdin").await;
        let (mut c, mut d) = open(&mut server, &client, "other").await;
        drop(a.reader);
        b.writer.write_all(&vec![0; 1 << 20]).await.unwrap();
        d.writer.write_all(b"x").await.unwrap();
        assert_eq!(c.reader.read_u8().await.unwrap(), b'x');
    })
    .await;
}

/// A client that is gone is seen by reading, and nothing is read while a stream is full.
#[tokio::test(start_paused = true)]
async fn the_loss_of_a_client_is_noticed_while_a_stream_is_full() {
    eventually(async {
        let config = Config {
            stream_buffer: 10,
            ..Config::default()
        };
        let (io, mut server, driver) = server(config);
        let mut client = Raw::new(io);
        client.syn(1, false).await;
        let stream = server.accept().await.unwrap().accept().unwrap();
        client
            .send(|out| {
                frame::put_data_header(out, 1, false, 100);
                out.extend_from_slice(&[0; 100]);
            })
            .await;
        let begin = Instant::now();
        drop(client);
        assert!(matches!(driver.await.unwrap(), Err(SpdyError::Io(_))));
        assert!(begin.elapsed() <= Duration::from_secs(15));
        drop(stream);
    })
    .await;
}

#[tokio::test]
async fn pings_of_the_peer_are_echoed_and_others_are_not() {
    within(async {
        let (io, _server, _driver) = server(Config::default());
        let mut client = Raw::new(io);
        client
            .send(|out| {
                frame::put_ping(out, 2);
                frame::put_ping(out, 7);
            })
            .await;
        assert_eq!(client.receive().await, Some(Frame::Ping { id: 7 }));
    })
    .await;
}

#[tokio::test]
async fn ids_must_increase_and_be_odd() {
    within(async {
        let (io, mut server, _driver) = server(Config::default());
        let mut client = Raw::new(io);
        for id in [5, 5, 3, 8, 7] {
            client.syn(id, true).await;
        }
        let mut accepted = Vec::new();
        for _ in 0..2 {
            accepted.push(server.accept().await.unwrap().id());
        }
        assert_eq!(accepted, [5, 7]);
        let mut faults = Vec::new();
        while faults.len() < 3 {
            if let Frame::RstStream { id, status: 1 } = client.receive().await.unwrap() {
                faults.push(id);
            }
        }
        assert_eq!(faults, [5, 3, 8]);
    })
    .await;
}

#[tokio::test]
async fn garbage_ends_the_connection_with_goaway() {
    within(async {
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64]] {
            let (io, mut server, driver) = server(Config::default());
            let mut client = Raw::new(io);
            client.syn(1, false).await;
            let mut stream = server.accept().await.unwrap().accept().unwrap();
            client.io.write_all(garbage).await.unwrap();
            client.io.shutdown().await.unwrap();
            assert!(driver.await.unwrap().is_err());
            assert!(stream.reader.read_u8().await.is_err());
            assert!(server.accept().await.is_none());
        }
        let (io, _server, driver) = server(Config::default());
        let mut client = Raw::new(io);
        client
            .io
            .write_all(&[0x80, 3, 0, 99, 0, 0, 0, 0])
            .await
            .unwrap();
        let told = client.receive().await;
        assert_eq!(
            told,
            Some(Frame::GoAway {
                last_id: 0,
                status: 1
            })
        );
        assert!(matches!(
            driver.await.unwrap(),
            Err(SpdyError::UnknownType(99))
        ));
    })
    .await;
}

#[tokio::test]
async fn a_header_bomb_ends_the_connection() {
    within(async {
        let (io, _server, driver) = server(Config::default());
        let mut client = Raw::new(io);
        let bomb = Headers::default().with("a", &"x".repeat(100 << 10));
        let block = client.headers.encode(&bomb).unwrap();
        assert!(block.len() < 8 << 10);
        client
            .send(|out| frame::put_syn_stream(out, 1, false, &block))
            .await;
        let ended = driver.await.unwrap();
        assert!(
            matches!(ended, Err(SpdyError::HeadersTooLong(_))),
            "{ended:?}"
        );
    })
    .await;
}

/// A peer that asks for replies and does not read them. Replies to pings are dropped; refusals of
/// streams cannot be.
#[tokio::test(start_paused = true)]
async fn a_flood_of_pings_and_streams_does_not_fill_the_memory() {
    eventually(async {
        let config = Config {
            write_buffer: 1000,
            ..Config::default()
        };
        let (io, connection, driver) = server(config);
        let mut client = Raw::new(io);
        for _ in 0..10_000 {
            client.send(|out| frame::put_ping(out, 1)).await;
        }
        assert!(!driver.is_finished());
        // Nobody accepts.
        drop(connection);
        for id in (1..).step_by(2) {
            assert!(id < 2000, "its replies are held");
            let block = client.headers.encode(&headers("data")).unwrap();
            let mut out = BytesMut::new();
            frame::put_syn_stream(&mut out, id, false, &block);
            if client.io.write_all(&out).await.is_err() {
                break;
            }
        }
        assert!(matches!(driver.await.unwrap(), Err(SpdyError::Flood)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_and_a_ping_keeps_it() {
    eventually(async {
        let config = Config {
            idle_timeout: Duration::from_mins(10),
            ..Config::default()
        };
        let (io, _server, driver) = server(config);
        let mut client = Raw::new(io);
        let begin = Instant::now();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_mins(9)).await;
            client.send(|out| frame::put_ping(out, 1)).await;
            client.receive().await.unwrap();
        }
        assert!(matches!(driver.await.unwrap(), Err(SpdyError::Idle(_))));
        assert_eq!(begin.elapsed().as_secs(), 55 * 60);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_close_sends_everything_then_waits_for_the_peer() {
    eventually(async {
        let (io, mut server, driver) = server(Config::default());
        let mut client = Raw::new(io);
        client.syn(1, true).await;
        client.syn(3, false).await;
        let mut stdout = server.accept().await.unwrap().accept().unwrap();
        let _stdin = server.accept().await.unwrap().accept().unwrap();
        stdout.writer.write_all(&vec![5; 50_000]).await.unwrap();
        stdout.writer.shutdown().await.unwrap();
        server.close();
        let mut received = 0;
        let mut rest = Vec::new();
        while let Some(frame) = client.receive().await {
            match frame {
                Frame::Data { id: 1, fin, bytes } => {
                    received += bytes.len();
                    if fin {
                        rest.push("fin");
                    }
                }
                Frame::RstStream { id: 3, status: 5 } => rest.push("reset"),
                Frame::GoAway {
                    status: 0,
                    last_id: 3,
                } => rest.push("goaway"),
                Frame::SynReply { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(received, 50_000);
        assert_eq!(rest, ["fin", "reset", "goaway"]);
        // It still takes what the peer sends.
        client.send(|out| frame::put_ping(out, 1)).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!driver.is_finished());
        drop(client);
        driver.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_close_or_does_not_read_is_cut() {
    eventually(async {
        let begin = Instant::now();
        let (_io, server_connection, driver) = server(Config::default());
        server_connection.close();
        driver.await.unwrap().unwrap();
        assert_eq!(begin.elapsed().as_secs(), 30);
        let begin = Instant::now();
        let (io, mut connection, driver) = server(Config::default());
        let mut client = Raw::new(io);
        client.syn(1, false).await;
        let mut stream = connection.accept().await.unwrap().accept().unwrap();
        stream.writer.write_all(&vec![5; 50_000]).await.unwrap();
        connection.close();
        assert!(matches!(driver.await.unwrap(), Err(SpdyError::Unread(_))));
        assert_eq!(begin.elapsed().as_secs(), 600);
    })
    .await;
}

#[tokio::test]
async fn goaway_and_the_end_of_all_streams_end_the_connection() {
    within(async {
        let (io, mut server, driver) = server(Config::default());
        let mut client = Raw::new(io);
        client.syn(1, false).await;
        let mut stream = server.accept().await.unwrap().accept().unwrap();
        client
            .send(|out| {
                frame::put_rst_stream(out, 1, reset::CANCEL);
                frame::put_goaway(out, 0, 0);
            })
            .await;
        driver.await.unwrap().unwrap();
        assert!(stream.reader.read_u8().await.is_err());
    })
    .await;
}

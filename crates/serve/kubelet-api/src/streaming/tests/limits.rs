//! Clients that leave, stall or misbehave.

use std::time::Duration;

use bytes::BufMut as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::{
    Message, Spdy, WebSocket, frame, handshake, spdy_handshake, websocket_handshake,
};
use super::*;

const STREAMS: [&str; 4] = ["error", "stdin", "stdout", "stderr"];

/// A server whose session waits until it is dropped, and what tells of that.
fn waiting(options: StreamOptions, config: StreamingConfig) -> (Harness, oneshot::Receiver<()>) {
    let (sender, dropped) = oneshot::channel();
    let on_drop = Arc::new(Mutex::new(Some(OnDrop(Some(sender)))));
    let run = command(move |streams: Streams| {
        let on_drop = on_drop.lock().take();
        async move {
            let (_streams, _on_drop) = (streams, on_drop);
            std::future::pending().await
        }
    });
    let harness = Harness::new(config, Route::Command(options, run));
    (harness, dropped)
}

#[tokio::test]
async fn a_client_that_leaves_drops_the_session() {
    within(async {
        let (server, dropped) = waiting(ALL, StreamingConfig::default());
        let client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        drop(client);
        dropped.await.unwrap();
        let (server, dropped) = waiting(ALL, StreamingConfig::default());
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        client
            .send_frame(0x88, &1000_u16.to_be_bytes())
            .await
            .unwrap();
        dropped.await.unwrap();
        assert_eq!(client.finish().await.1, 1000);
        let (server, dropped) = waiting(ALL, StreamingConfig::default());
        let client = Spdy::connect(server.connect(), "v4.channel.k8s.io", &STREAMS).await;
        client.connection.close();
        dropped.await.unwrap();
        while server.metrics.sessions() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_streams_is_disconnected() {
    eventually(async {
        let (server, mut dropped) = waiting(ALL, StreamingConfig::default());
        let begin = Instant::now();
        // All but one.
        let client = Spdy::connect(server.connect(), "v4.channel.k8s.io", &STREAMS[..3]).await;
        client.driver.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 30);
        assert!(dropped.try_recv().is_err(), "the session has not begun");
    })
    .await;
}

#[tokio::test]
async fn streams_that_nobody_asked_for_are_refused() {
    within(async {
        let options = StreamOptions {
            stdin: false,
            stderr: false,
            ..ALL
        };
        let finish = Arc::new(tokio::sync::Notify::new());
        let finished = Arc::clone(&finish);
        let server = Harness::command(options, move |mut streams: Streams| {
            let finished = Arc::clone(&finished);
            async move {
                assert!(streams.stdin.is_none() && streams.stderr.is_none());
                let stdout = streams.stdout.as_mut().unwrap();
                stdout.write_all(b"x").await.unwrap();
                finished.notified().await;
                Ok(0)
            }
        });
        let mut client = Spdy::connect(server.connect(), "v4.channel.k8s.io", &["error"]).await;
        let headers = |kind| kubevitals_spdy::Headers::default().with("streamtype", kind);
        for kind in ["stdin", "error", "unknown"] {
            let opened = client.connection.open(headers(kind)).await;
            assert!(opened.is_err(), "{kind}");
        }
        let stdout = client.connection.open(headers("stdout")).await;
        let mut stdout = stdout.unwrap();
        assert_eq!(stdout.reader.read_u8().await.unwrap(), b'x');
        // The session runs: it is too late.
        assert!(client.connection.open(headers("stdout")).await.is_err());
        finish.notify_one();
        assert!(client.read("error").await.contains("Success"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends() {
    eventually(async {
        let config = StreamingConfig {
            idle_timeout: Duration::from_mins(10),
            ..StreamingConfig::default()
        };
        let begin = Instant::now();
        let (server, dropped) = waiting(ALL, config);
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        client.receive().await.unwrap();
        for _ in 0..9 {
            tokio::time::sleep(Duration::from_mins(1)).await;
            // A ping is answered, and is no data.
            client.send_frame(0x89, b"p").await.unwrap();
            assert_eq!(client.receive().await, Some(Message::Pong(b"p".to_vec())));
        }
        dropped.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 600);
        let (server, dropped) = waiting(ALL, config);
        let _client = Spdy::connect(server.connect(), "v4.channel.k8s.io", &STREAMS).await;
        dropped.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 1200);
    })
    .await;
}

/// Clients of Go give up after a minute without a pong.
#[tokio::test(start_paused = true)]
async fn pongs_are_sent_while_stdin_is_blocked() {
    eventually(async {
        let (server, _dropped) = waiting(ALL, StreamingConfig::default());
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        client.receive().await.unwrap();
        client.send(0, &vec![0; 200 << 10]).await;
        client.send_frame(0x89, b"p").await.unwrap();
        assert_eq!(client.receive().await, Some(Message::Pong(b"p".to_vec())));
        // More than is buffered: pings are not seen any more.
        let rest = frame(0x82, &vec![0; 1 << 20]);
        let begin = Instant::now();
        let (mut input, mut output) = tokio::io::split(client.io);
        let write = tokio::spawn(async move { output.write_all(&rest).await });
        let mut pongs = [0; 2 * 10];
        input.read_exact(&mut pongs).await.unwrap();
        assert_eq!(pongs, [0x8a, 0].repeat(10)[..]);
        assert_eq!(begin.elapsed().as_secs(), 100);
        assert!(!write.is_finished());
    })
    .await;
}

/// Nothing is read meanwhile, so only writing tells.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_stdin_is_blocked_drops_the_session() {
    eventually(async {
        let (server, dropped) = waiting(ALL, StreamingConfig::default());
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        client.receive().await.unwrap();
        let rest = frame(0x82, &vec![0; 1 << 20]);
        let write = tokio::time::timeout(Duration::from_mins(1), client.io.write_all(&rest));
        assert!(write.await.is_err(), "a megabyte is not buffered");
        let begin = Instant::now();
        drop(client);
        dropped.await.unwrap();
        assert!(begin.elapsed() <= Duration::from_secs(10));
    })
    .await;
}

/// The process waits for the client, and nothing is held for it.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_stops_the_output() {
    eventually(async {
        let written = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&written);
        let server = Harness::command(ALL, move |mut streams: Streams| {
            let count = Arc::clone(&count);
            async move {
                let stdout = streams.stdout.as_mut().unwrap();
                loop {
                    let Ok(bytes) = stdout.write(&[0; 4096]).await else {
                        return std::future::pending().await;
                    };
                    count.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
                }
            }
        });
        let _websocket = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let bytes = written.swap(0, std::sync::atomic::Ordering::Relaxed);
        assert!((100_000..400_000).contains(&bytes), "{bytes}");
        let mut io = server.connect();
        spdy_handshake(&mut io, "v4.channel.k8s.io").await;
        let mut headers = kubevitals_spdy::header::HeaderEncoder::new();
        let mut out = bytes::BytesMut::new();
        for (id, kind) in (1..).step_by(2).zip(STREAMS) {
            let own = kubevitals_spdy::Headers::default().with("streamtype", kind);
            let block = headers.encode(&own).unwrap();
            kubevitals_spdy::frame::put_syn_stream(&mut out, id, false, &block);
        }
        io.write_all(&out).await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let bytes = written.load(std::sync::atomic::Ordering::Relaxed);
        assert!((100_000..400_000).contains(&bytes), "{bytes}");
    })
    .await;
}

#[tokio::test]
async fn garbage_over_websocket_ends_the_session() {
    within(async {
        for (garbage, code) in [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 1002),
            // Not masked; text; a close of two channels; a message of many gigabytes.
            (vec![0x82, 0x01, 0x00], 1002),
            (frame(0x81, b"\x00x").to_vec(), 1002),
            (frame(0x82, &[255, 0, 1]).to_vec(), 1002),
            (vec![0x82, 0xff, 0, 0, 0, 9, 0, 0, 0, 0, 1, 2, 3, 4], 1002),
        ] {
            let (server, dropped) = waiting(ALL, StreamingConfig::default());
            let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
            client.io.write_all(&garbage).await.unwrap();
            dropped.await.unwrap();
            assert_eq!(client.finish().await.1, code, "{garbage:?}");
            assert_eq!(client.receive().await, None);
        }
    })
    .await;
}

#[tokio::test]
async fn garbage_over_spdy_ends_the_session() {
    within(async {
        let bomb = {
            let huge = kubevitals_spdy::Headers::default().with("a", &"x".repeat(100 << 10));
            let block = kubevitals_spdy::header::HeaderEncoder::new()
                .encode(&huge)
                .unwrap();
            let mut out = bytes::BytesMut::new();
            kubevitals_spdy::frame::put_syn_stream(&mut out, 1, false, &block);
            out.to_vec()
        };
        let mut data_first = bytes::BytesMut::new();
        kubevitals_spdy::frame::put_data_header(&mut data_first, 1, false, 3);
        data_first.put_slice(b"abc");
        data_first.put_slice(&[0x80, 3, 0, 0]);
        data_first.put_slice(&[0; 8]);
        for garbage in [vec![0xff; 100], bomb, data_first.to_vec()] {
            let (server, _dropped) = waiting(ALL, StreamingConfig::default());
            let mut io = server.connect();
            spdy_handshake(&mut io, "v4.channel.k8s.io").await;
            io.write_all(&garbage).await.unwrap();
            let mut rest = Vec::new();
            io.read_to_end(&mut rest).await.unwrap();
            // GOAWAY with a protocol error.
            assert_eq!(rest, [0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        }
    })
    .await;
}

#[tokio::test]
async fn more_sessions_than_the_limit_are_rejected_and_a_shutdown_ends_all() {
    within(async {
        let config = StreamingConfig {
            max_sessions: 1,
            ..StreamingConfig::default()
        };
        let (server, dropped) = waiting(ALL, config);
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        client.receive().await.unwrap();
        let response = websocket_handshake(&mut server.connect(), "v5.channel.k8s.io").await;
        assert!(response.starts_with("HTTP/1.1 429 "), "{response}");
        let response = spdy_handshake(&mut server.connect(), "v4.channel.k8s.io").await;
        assert!(response.starts_with("HTTP/1.1 429 "), "{response}");
        assert_eq!(server.metrics.sessions(), 1);
        server.streaming.shutdown().await;
        dropped.await.unwrap();
        assert_eq!(client.receive().await, None);
        assert_eq!(server.metrics.sessions(), 0);
        let response = spdy_handshake(&mut server.connect(), "v4.channel.k8s.io").await;
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    })
    .await;
}

#[tokio::test]
async fn a_session_that_panics_ends_alone() {
    within(async {
        let config = StreamingConfig {
            max_sessions: 1,
            ..StreamingConfig::default()
        };
        let run = command(|streams: Streams| async move {
            assert!(streams.stdin.is_none(), "it has a client");
            Ok(0)
        });
        let server = Harness::new(config, Route::Command(ALL, run));
        for _ in 0..2 {
            let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
            while client.receive().await.is_some() {}
            while server.metrics.sessions() > 0 {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_without_upgrade_is_rejected() {
    within(async {
        let (server, dropped) = waiting(ALL, StreamingConfig::default());
        let mut io = server.connect();
        let response = handshake(&mut io, "POST", &[]).await;
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
        assert!(response.contains("application/json"));
        drop((server, io));
        // The session was never run, only dropped.
        drop(dropped);
    })
    .await;
}

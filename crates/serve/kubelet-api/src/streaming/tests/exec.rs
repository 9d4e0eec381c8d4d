//! Exec and attach.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::mpsc;

use super::client::{Message, Spdy, WebSocket};
use super::*;
use crate::provider::TerminalSize;

const SUCCESS: &str = r#"{"metadata":{},"status":"Success"}"#;
const STREAMS: [&str; 4] = ["error", "stdin", "stdout", "stderr"];

fn exit(code: u8) -> Harness {
    Harness::command(ALL, move |mut streams: Streams| async move {
        let stdout = streams.stdout.as_mut().unwrap();
        stdout.write_all(b"output").await.unwrap();
        Ok(code)
    })
}

/// What the status of a command says of its exit code.
fn exit_code(status: &str) -> String {
    let status: serde_json::Value = serde_json::from_str(status).unwrap();
    assert_eq!(status["status"], "Failure");
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(status["details"]["causes"][0]["reason"], "ExitCode");
    let code = &status["details"]["causes"][0]["message"];
    code.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn websocket_v5_closes_stdin_and_ends_with_a_status() {
    within(async {
        let server = Harness::command(ALL, cat);
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        assert_eq!(client.receive().await, Some(Message::Binary(vec![1])));
        client.send(0, b"hel").await;
        client.send(0, b"").await;
        // A message in two frames, and one on a channel that does not exist.
        client.send_frame(0x02, b"\x00l").await.unwrap();
        client.send_frame(0x80, b"o").await.unwrap();
        client.send(9, b"ignored").await;
        client.send(255, &[0]).await;
        let (channels, code) = client.finish().await;
        assert_eq!(channels, ["", "hello", "5 bytes", SUCCESS]);
        assert_eq!(code, 1000);
        client
            .send_frame(0x88, &1000_u16.to_be_bytes())
            .await
            .unwrap();
        assert_eq!(client.receive().await, None);
        assert_eq!(server.metrics.received.get(), 5);
        assert_eq!(server.metrics.sent.get(), 12);
    })
    .await;
}

#[tokio::test]
async fn spdy_closes_stdin_and_ends_with_a_status() {
    within(async {
        for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
            let server = Harness::command(ALL, cat);
            let mut client = Spdy::connect(server.connect(), protocol, &STREAMS).await;
            let mut stdin = client.take("stdin");
            stdin.writer.write_all(b"hello").await.unwrap();
            stdin.writer.shutdown().await.unwrap();
            assert_eq!(client.read("stdout").await, "hello");
            assert_eq!(client.read("stderr").await, "5 bytes");
            assert_eq!(client.read("error").await, SUCCESS);
            // The server resets what is open.
            assert!(stdin.reader.read_u8().await.is_err());
            client.driver.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn exit_codes_arrive() {
    within(async {
        for code in [7, 137] {
            for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
                let server = exit(code);
                let mut client = WebSocket::connect(server.connect(), protocol).await;
                let (channels, close) = client.finish().await;
                assert_eq!((&*channels[1], close), ("output", 1000));
                assert_eq!(exit_code(&channels[3]), code.to_string());
                let mut client = Spdy::connect(server.connect(), protocol, &STREAMS).await;
                assert_eq!(client.read("stdout").await, "output");
                assert_eq!(exit_code(&client.read("error").await), code.to_string());
            }
            for protocol in ["v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"] {
                let mut client = Spdy::connect(exit(code).connect(), protocol, &STREAMS).await;
                assert_eq!(client.read("stdout").await, "output");
                let text = format!("command terminated with non-zero exit code: {code}");
                assert_eq!(client.read("error").await, text);
            }
        }
        let mut client = Spdy::connect(exit(0).connect(), "v3.channel.k8s.io", &STREAMS).await;
        assert_eq!(client.read("error").await, "");
        let mut client = WebSocket::connect(exit(0).connect(), "").await;
        assert_eq!(client.finish().await.0, ["", "output", "", ""]);
    })
    .await;
}

#[tokio::test]
async fn an_error_of_the_provider_is_an_internal_error() {
    within(async {
        let server = Harness::command(ALL, |_| async {
            Err(ProviderError::NotFound("no such file".to_owned()))
        });
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        let (channels, code) = client.finish().await;
        let status: serde_json::Value = serde_json::from_str(&channels[3]).unwrap();
        assert_eq!((status["code"].as_u64(), code), (Some(500), 1000));
        assert_eq!(status["reason"], "InternalError");
        assert_eq!(status["message"], "Internal error occurred: no such file");
    })
    .await;
}

#[tokio::test]
async fn base64_protocols_have_text() {
    within(async {
        let server = Harness::command(ALL, |mut streams: Streams| async move {
            let mut line = [0; 5];
            streams.stdin.unwrap().read_exact(&mut line).await.unwrap();
            let stdout = streams.stdout.as_mut().unwrap();
            stdout.write_all(&line).await.unwrap();
            Ok(0)
        });
        let mut client = WebSocket::connect(server.connect(), "v4.base64.channel.k8s.io").await;
        assert_eq!(client.receive().await, Some(Message::Text(b"1".to_vec())));
        let text = format!("0{}", STANDARD.encode("hello"));
        let (first, rest) = text.as_bytes().split_at(3);
        client.send_frame(0x01, first).await.unwrap();
        client.send_frame(0x80, rest).await.unwrap();
        let stdout = format!("1{}", STANDARD.encode("hello"));
        assert_eq!(
            client.receive().await,
            Some(Message::Text(stdout.into_bytes()))
        );
        let status = format!("3{}", STANDARD.encode(SUCCESS));
        assert_eq!(
            client.receive().await,
            Some(Message::Text(status.into_bytes()))
        );
        assert_eq!(client.receive().await, Some(Message::Close(1000)));
    })
    .await;
}

#[tokio::test]
async fn sizes_of_the_terminal_arrive_in_order() {
    within(async {
        let sizes: Vec<(u16, u16)> = (1..=10).map(|n| (80 + n, 24 + n)).collect();
        let (sender, mut received) = mpsc::channel(64);
        let server = Harness::command(TTY, move |mut streams: Streams| {
            let sender = sender.clone();
            async move {
                for _ in 0..10 {
                    let TerminalSize { width, height } = streams.resize.recv().await.unwrap();
                    sender.send((width, height)).await.unwrap();
                }
                Ok(0)
            }
        });
        let objects: Vec<String> = sizes
            .iter()
            .map(|(width, height)| format!(r#"{{"Width":{width},"Height":{height}}}"#))
            .collect();
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        for object in &objects {
            client.send(4, object.as_bytes()).await;
        }
        assert_eq!(client.finish().await.0[3], SUCCESS);
        let kinds = ["error", "stdin", "stdout", "resize"];
        let mut client = Spdy::connect(server.connect(), "v4.channel.k8s.io", &kinds).await;
        let mut resize = client.take("resize");
        resize
            .writer
            .write_all(objects.concat().as_bytes())
            .await
            .unwrap();
        assert_eq!(client.read("error").await, SUCCESS);
        for _ in 0..2 {
            for size in &sizes {
                assert_eq!(received.recv().await, Some(*size));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn without_a_terminal_there_are_no_sizes() {
    within(async {
        let server = Harness::command(ALL, |mut streams: Streams| async move {
            assert_eq!(streams.resize.recv().await, None);
            Ok(0)
        });
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        assert_eq!(client.finish().await.0[3], SUCCESS);
        let mut client = Spdy::connect(server.connect(), "v4.channel.k8s.io", &STREAMS).await;
        assert_eq!(client.read("error").await, SUCCESS);
    })
    .await;
}

/// A connection that is closed while the client still writes would be reset, and the client would
/// lose the end of the output.
#[tokio::test]
async fn output_is_complete_although_the_client_still_writes() {
    within(async {
        let server = Harness::command(ALL, |mut streams: Streams| async move {
            let stdout = streams.stdout.as_mut().unwrap();
            stdout.write_all(&vec![b'x'; 100_000]).await.unwrap();
            Ok(0)
        });
        let mut client = WebSocket::connect(server.connect(), "v5.channel.k8s.io").await;
        for _ in 0..100 {
            client.send(0, &[0; 1000]).await;
        }
        let (channels, code) = client.finish().await;
        assert_eq!((channels[1].len(), code), (100_000, 1000));
        let mut client = Spdy::connect(server.connect(), "v4.channel.k8s.io", &STREAMS).await;
        let mut stdin = client.take("stdin");
        let write =
            tokio::spawn(async move { while stdin.writer.write_all(&[0; 1000]).await.is_ok() {} });
        assert_eq!(client.read("stdout").await.len(), 100_000);
        assert_eq!(client.read("error").await, SUCCESS);
        client.connection.close();
        write.await.unwrap();
    })
    .await;
}

//! Clients: the handshakes, and messages of WebSocket.

use bytes::{Buf as _, BufMut as _, BytesMut};
use kubevitals_spdy::{Config, Connection, Headers, Stream};

use super::*;

/// What a server sends over WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Binary(Vec<u8>),
    Text(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16),
}

pub(super) struct WebSocket<S> {
    pub(super) io: S,
    buffer: BytesMut,
}

/// A client of exec over SPDY.
pub(super) struct Spdy {
    pub(super) connection: Connection,
    pub(super) driver: tokio::task::JoinHandle<()>,
    pub(super) streams: Vec<(&'static str, Stream)>,
}

/// Sends a request and reads the head of the response: its status line and headers.
pub(super) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut S,
    method: &str,
    headers: &[(&str, &str)],
) -> String {
    let mut head = format!("{method} /exec/ns/pod/container HTTP/1.1\r\nHost: x\r\n");
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    head.push_str("\r\n");
    io.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.push(io.read_u8().await.unwrap());
    }
    String::from_utf8(response).unwrap()
}

/// The head of the response to a request over WebSocket.
pub(super) async fn websocket_handshake<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut S,
    protocol: &str,
) -> String {
    let headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", protocol),
    ];
    let count = if protocol.is_empty() { 4 } else { 5 };
    handshake(io, "GET", &headers[..count]).await
}

/// The head of the response to a request over SPDY.
pub(super) async fn spdy_handshake<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut S,
    protocol: &str,
) -> String {
    let headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", protocol),
    ];
    handshake(io, "POST", &headers).await
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    pub(super) async fn connect(mut io: S, protocol: &str) -> Self {
        let response = websocket_handshake(&mut io, protocol).await;
        assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
        Self::over(io)
    }

    /// Speaks WebSocket on an upgraded connection.
    pub(super) fn over(io: S) -> Self {
        Self {
            io,
            buffer: BytesMut::new(),
        }
    }

    /// Sends a message on a channel.
    pub(super) async fn send(&mut self, channel: u8, payload: &[u8]) {
        let message = [&[channel], payload].concat();
        self.send_frame(0x82, &message).await.unwrap();
    }

    pub(super) async fn send_frame(&mut self, first: u8, payload: &[u8]) -> std::io::Result<()> {
        self.io.write_all(&frame(first, payload)).await
    }

    /// The next message; `None` at the end.
    pub(super) async fn receive(&mut self) -> Option<Message> {
        let [first, second] = self.take(2).await?[..] else {
            panic!("two bytes were taken");
        };
        let length = match second {
            126 => usize::from(u16::from_be_bytes(self.take(2).await?.try_into().unwrap())),
            127 => usize::try_from(u64::from_be_bytes(self.take(8).await?.try_into().unwrap()))
                .unwrap(),
            short => usize::from(short),
        };
        let payload = self.take(length).await?;
        Some(match first {
            0x82 => Message::Binary(payload),
            0x81 => Message::Text(payload),
            0x8a => Message::Pong(payload),
            0x88 => Message::Close((&payload[..]).get_u16()),
            other => panic!("{other}"),
        })
    }

    async fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < length {
            if !matches!(self.io.read_buf(&mut self.buffer).await, Ok(1..)) {
                return None;
            }
        }
        Some(self.buffer.split_to(length).to_vec())
    }

    /// Receives until the close frame: what was sent on each channel, and the code.
    pub(super) async fn finish(&mut self) -> ([String; 4], u16) {
        let mut channels = [const { Vec::new() }; 4];
        loop {
            match self.receive().await.expect("a close frame") {
                Message::Binary(bytes) => {
                    channels[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
                }
                Message::Close(code) => {
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    return (channels.map(text), code);
                }
                Message::Pong(_) => {}
                Message::Text(text) => panic!("{text:?}"),
            }
        }
    }
}

/// A frame with a mask.
pub(super) fn frame(first: u8, payload: &[u8]) -> BytesMut {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let mut out = BytesMut::with_capacity(payload.len() + 14);
    out.put_u8(first);
    if payload.len() < 126 {
        out.put_u8(0x80 | u8::try_from(payload.len()).unwrap());
    } else {
        out.put_u8(0xff);
        out.put_u64(u64::try_from(payload.len()).unwrap());
    }
    out.put_slice(&mask);
    out.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    out
}

impl Spdy {
    pub(super) async fn connect<S>(mut io: S, protocol: &str, kinds: &[&'static str]) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let response = spdy_handshake(&mut io, protocol).await;
        assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
        Self::open(io, kinds).await
    }

    /// Speaks SPDY on an upgraded connection.
    pub(super) async fn open<S>(io: S, kinds: &[&'static str]) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (connection, driver) = Connection::client(io, Config::default());
        let driver = tokio::spawn(async move {
            let _ = driver.await;
        });
        let mut streams = Vec::new();
        for kind in kinds {
            let headers = Headers::default().with("streamType", kind);
            streams.push((*kind, connection.open(headers).await.unwrap()));
        }
        Self {
            connection,
            driver,
            streams,
        }
    }

    pub(super) fn take(&mut self, kind: &str) -> Stream {
        let index = self.streams.iter().position(|(own, _)| *own == kind);
        self.streams.remove(index.unwrap()).1
    }

    /// Reads a stream to its end.
    pub(super) async fn read(&mut self, kind: &str) -> String {
        let mut stream = self.take(kind);
        let mut text = String::new();
        stream.reader.read_to_string(&mut text).await.unwrap();
        text
    }
}

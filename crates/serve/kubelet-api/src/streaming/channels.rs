//! Channels in messages of WebSocket: exec, attach, and port-forward of clients without SPDY.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::future::{BoxFuture, join_all};
use kubevitals_spdy::Outbox;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, WriteHalf,
};
use tokio::sync::mpsc;

use super::metered::Metered;
use super::negotiate::{ChannelProtocol, Encoding};
use super::websocket::{self, Decoder, Event, Kind, WebSocketError};
use super::{StreamingConfig, StreamingMetrics, port_forward, resize, status};
use crate::provider::{PortDialer, Session, StreamOptions, Streams};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Its messages name a channel that the client closes.
const CLOSE: u8 = 255;

/// Bytes that are read at a time, and the longest payload of a message to a client.
const READ_BYTES: usize = 32 << 10;
const MAX_PAYLOAD: usize = 32 << 10;
/// Bytes that wait for the process, and for the client. While the first are full nothing is read,
/// and pings are not seen.
const PIPE_BYTES: usize = 256 << 10;
const OUTBOX_BYTES: usize = 128 << 10;
const RESIZE_BYTES: usize = 4 << 10;
/// The longest message in base64, which must be whole to be decoded.
const MAX_TEXT: usize = 1 << 20;
/// Interval of pongs that nobody asked for while nothing is read. Clients of Go give up after a
/// minute without one; and the loss of a client is noticed by writing.
const STALL_PONG_INTERVAL: Duration = Duration::from_secs(10);
/// Time for a client to read what is left, and then to close its side: see
/// [`kubevitals_spdy::Config`].
const FLUSH_TIMEOUT: Duration = Duration::from_mins(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the close frame if the session ends early.
const EARLY_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Codes of close frames.
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;

/// What a client sends, by channel.
struct Channels {
    outbox: Arc<Outbox>,
    encoding: Encoding,
    has_close: bool,
    /// The channels that are read. Messages on others are ignored.
    pipes: Vec<(u8, DuplexStream)>,
    /// The channel of the current message.
    channel: Option<u8>,
    /// The current message, if it must be whole: one that closes a channel, or base64.
    message: Vec<u8>,
}

/// A channel to the client.
struct ChannelWriter {
    outbox: Arc<Outbox>,
    encoding: Encoding,
    channel: u8,
}

/// Why the client is not read any more.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("closed by the client")]
    Closed,
    #[error("connection lost: {0}")]
    Lost(io::Error),
    #[error("protocol violation: {0}")]
    Violation(WebSocketError),
    #[error("idle")]
    Idle,
}

/// Runs an exec or attach.
pub(super) async fn remote_command<S>(
    io: S,
    protocol: ChannelProtocol,
    options: StreamOptions,
    session: Session,
    config: StreamingConfig,
    metrics: StreamingMetrics,
) where
    S: AsyncRead + AsyncWrite + Send,
{
    let mut channels = Channels::new(protocol.encoding, protocol.has_close);
    let outbox = Arc::clone(&channels.outbox);
    // The client learns that the connection is established.
    let first = match (options.stdout, options.stderr) {
        (true, _) => STDOUT,
        (false, true) => STDERR,
        (false, false) => ERROR,
    };
    channels.send(first, b"");
    let output = |is_wanted: bool, channel| {
        is_wanted.then(|| {
            let writer = channels.writer(channel);
            let writer = Metered::new(writer, metrics.received.clone(), metrics.sent.clone());
            Box::new(writer) as Box<dyn AsyncWrite + Send + Unpin>
        })
    };
    let (stdout, stderr) = (
        output(options.stdout, STDOUT),
        output(options.stderr, STDERR),
    );
    let stdin = options.stdin.then(|| {
        let pipe = channels.pipe(STDIN, PIPE_BYTES);
        let reader = Metered::new(pipe, metrics.received.clone(), metrics.sent.clone());
        Box::new(reader) as Box<dyn AsyncRead + Send + Unpin>
    });
    let terminal = options.tty.then(|| channels.pipe(RESIZE, RESIZE_BYTES));
    let (sizes, resize) = mpsc::channel(resize::QUEUED_SIZES);
    let streams = Streams {
        stdin,
        stdout,
        stderr,
        resize,
    };
    let status_writer = channels.writer(ERROR);
    let work = async move {
        let session = session(streams);
        let sizes = async {
            match terminal {
                Some(terminal) => resize::forward(terminal, sizes).await,
                None => drop(sizes),
            }
            std::future::pending::<Infallible>().await
        };
        let outcome = tokio::select! {
            outcome = session => outcome,
            never = sizes => match never {},
        };
        status_writer.send(&status::encode(&outcome, protocol.status));
    };
    run(io, channels, &outbox, Box::pin(work), config.idle_timeout).await;
}

/// Runs a port-forward: of each port, a channel for data and one for its error.
pub(super) async fn port_forward<S>(
    io: S,
    encoding: Encoding,
    ports: Vec<u16>,
    dialer: Arc<dyn PortDialer>,
    config: StreamingConfig,
    metrics: StreamingMetrics,
) where
    S: AsyncRead + AsyncWrite + Send,
{
    let mut channels = Channels::new(encoding, false);
    let outbox = Arc::clone(&channels.outbox);
    let mut forwards = Vec::new();
    for (port, channel) in ports.into_iter().zip((0..=u8::MAX).step_by(2)) {
        // Each channel is opened by its port.
        channels.send(channel, &port.to_le_bytes());
        channels.send(channel + 1, &port.to_le_bytes());
        let pipe = channels.pipe(channel, PIPE_BYTES);
        let (data, error) = (channels.writer(channel), channels.writer(channel + 1));
        let (dialer, metrics) = (Arc::clone(&dialer), metrics.clone());
        forwards.push(async move {
            match port_forward::dial(&*dialer, port, config, &metrics).await {
                Ok(connection) => forward(connection, pipe, data).await,
                Err(message) => error.send(message.as_bytes()),
            }
        });
    }
    let work = async move {
        join_all(forwards).await;
    };
    run(io, channels, &outbox, Box::pin(work), config.idle_timeout).await;
}

/// Copies until the pod closes the connection. The client cannot half-close a channel.
async fn forward(
    connection: impl AsyncRead + AsyncWrite,
    mut pipe: DuplexStream,
    mut data: ChannelWriter,
) {
    let (mut input, mut output) = tokio::io::split(connection);
    let to_pod = async {
        let _ = tokio::io::copy(&mut pipe, &mut output).await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        _ = tokio::io::copy(&mut input, &mut data) => {}
        never = to_pod => match never {},
    }
}

/// Reads and writes until the work is done and the client has read everything, or the client has
/// left, which drops the work.
async fn run<S>(
    io: S,
    mut channels: Channels,
    outbox: &Outbox,
    mut work: BoxFuture<'_, ()>,
    idle_timeout: Duration,
) where
    S: AsyncRead + AsyncWrite + Send,
{
    let (mut input, mut output) = tokio::io::split(io);
    let write = write(outbox, &mut output);
    let read = channels.read(&mut input);
    tokio::pin!(write, read);
    let end = tokio::select! {
        () = &mut work => None,
        end = &mut read => Some(end),
        written = &mut write => Some(End::Lost(written.err().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()))),
        () = outbox.idle(idle_timeout) => Some(End::Idle),
    };
    drop(work);
    if let Some(end) = end {
        tracing::debug!(cause = %end, "session ended early");
        if matches!(end, End::Lost(_)) {
            return;
        }
        let code = if matches!(end, End::Violation(_)) {
            PROTOCOL_ERROR
        } else {
            NORMAL
        };
        outbox.push(|out| websocket::put_close(out, code));
        outbox.close();
        let _ = tokio::time::timeout(EARLY_CLOSE_TIMEOUT, write).await;
        return;
    }
    outbox.push(|out| websocket::put_close(out, NORMAL));
    outbox.close();
    tokio::select! {
        _ = &mut write => {}
        // Who has left reads nothing more.
        _ = &mut read => return,
        () = tokio::time::sleep(FLUSH_TIMEOUT) => return,
    }
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, read).await;
}

async fn write<S: AsyncWrite>(outbox: &Outbox, output: &mut WriteHalf<S>) -> io::Result<()> {
    outbox.write_to(output).await?;
    output.shutdown().await
}

impl Channels {
    fn new(encoding: Encoding, has_close: bool) -> Self {
        Self {
            outbox: Arc::new(Outbox::new(OUTBOX_BYTES)),
            encoding,
            has_close,
            pipes: Vec::new(),
            channel: None,
            message: Vec::new(),
        }
    }

    /// Begins to read a channel.
    fn pipe(&mut self, channel: u8, capacity: usize) -> DuplexStream {
        let (own, pipe) = tokio::io::duplex(capacity);
        self.pipes.push((channel, own));
        pipe
    }

    fn writer(&self, channel: u8) -> ChannelWriter {
        ChannelWriter {
            outbox: Arc::clone(&self.outbox),
            encoding: self.encoding,
            channel,
        }
    }

    fn send(&self, channel: u8, payload: &[u8]) {
        self.writer(channel).send(payload);
    }

    /// Reads until the client closes.
    async fn read<R: AsyncRead + Unpin>(&mut self, input: &mut R) -> End {
        let mut decoder = Decoder::default();
        let mut buffer = BytesMut::new();
        loop {
            loop {
                match decoder.decode(&mut buffer) {
                    Ok(None) => break,
                    Ok(Some(Event::Data {
                        kind,
                        bytes,
                        is_first,
                        is_last,
                    })) => {
                        self.outbox.touch();
                        if let Err(error) = self.data(kind, bytes, is_first, is_last).await {
                            return End::Violation(error);
                        }
                    }
                    Ok(Some(Event::Ping(payload))) => {
                        self.outbox
                            .push_if_room(|out| websocket::put_pong(out, &payload));
                    }
                    Ok(Some(Event::Pong)) => {}
                    Ok(Some(Event::Close)) => return End::Closed,
                    Err(error) => return End::Violation(error),
                }
            }
            buffer.reserve(READ_BYTES);
            match input.read_buf(&mut buffer).await {
                Ok(1..) => {}
                Ok(0) => return End::Lost(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => return End::Lost(error),
            }
        }
    }

    async fn data(
        &mut self,
        kind: Kind,
        mut bytes: Bytes,
        is_first: bool,
        is_last: bool,
    ) -> Result<(), WebSocketError> {
        if is_first {
            self.channel = None;
            self.message.clear();
        }
        match (self.encoding, kind) {
            (Encoding::Base64, Kind::Text) => return self.text(&bytes, is_last).await,
            (Encoding::Binary, Kind::Binary) => {}
            _ => return Err(WebSocketError::Kind),
        }
        if self.channel.is_none() && !bytes.is_empty() {
            self.channel = Some(bytes.get_u8());
        }
        match self.channel {
            Some(CLOSE) if self.has_close => {
                self.message.extend(bytes.iter().take(2));
                match (&*self.message, is_last) {
                    ([channel], true) => {
                        // Its reader sees the end of the file.
                        self.pipes.retain(|(own, _)| own != channel);
                        Ok(())
                    }
                    ([] | [_], false) => Ok(()),
                    _ => Err(WebSocketError::ChannelClose),
                }
            }
            Some(channel) => {
                self.deliver(channel, &bytes).await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Decodes a message in base64 once it is whole.
    async fn text(&mut self, bytes: &[u8], is_last: bool) -> Result<(), WebSocketError> {
        if self.message.len() + bytes.len() > MAX_TEXT {
            return Err(WebSocketError::Base64);
        }
        self.message.extend_from_slice(bytes);
        if !is_last {
            return Ok(());
        }
        let message = std::mem::take(&mut self.message);
        let Some((digit, text)) = message.split_first() else {
            return Ok(());
        };
        let data = STANDARD.decode(text).map_err(|_| WebSocketError::Base64)?;
        self.deliver(digit.wrapping_sub(b'0'), &data).await;
        Ok(())
    }

    /// Passes data to the reader of a channel, and waits while its buffer is full. Data that nobody
    /// reads is dropped.
    async fn deliver(&mut self, channel: u8, bytes: &[u8]) {
        let Some((_, pipe)) = self.pipes.iter_mut().find(|(own, _)| *own == channel) else {
            return;
        };
        let write = pipe.write_all(bytes);
        tokio::pin!(write);
        let written = loop {
            tokio::select! {
                biased;
                written = &mut write => break written,
                () = tokio::time::sleep(STALL_PONG_INTERVAL) => {
                    self.outbox.push_if_room(|out| websocket::put_pong(out, b""));
                }
            }
        };
        if written.is_err() {
            self.pipes.retain(|(own, _)| *own != channel);
        }
    }
}

impl ChannelWriter {
    /// Sends a message of its own, whether there is room or not.
    fn send(&self, payload: &[u8]) {
        self.outbox.push(|out| self.encode(out, payload));
    }

    fn encode(&self, out: &mut BytesMut, payload: &[u8]) {
        match self.encoding {
            Encoding::Binary => {
                websocket::put_message_head(out, Kind::Binary, payload.len() + 1);
                out.put_u8(self.channel);
                out.put_slice(payload);
            }
            Encoding::Base64 => {
                let text = STANDARD.encode(payload);
                websocket::put_message_head(out, Kind::Text, text.len() + 1);
                out.put_u8(b'0'.wrapping_add(self.channel));
                out.put_slice(text.as_bytes());
            }
        }
    }
}

impl AsyncWrite for ChannelWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let piece = bytes.get(..MAX_PAYLOAD).unwrap_or(bytes);
        ready!(
            self.outbox
                .poll_push(context, |out| self.encode(out, piece))
        )?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

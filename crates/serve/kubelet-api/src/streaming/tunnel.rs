//! A byte stream in binary messages of WebSocket, which port-forward speaks SPDY over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::websocket::{self, Decoder, Event, Kind, WebSocketError};

/// Bytes that are read at a time, and the longest message.
const READ_BYTES: usize = 32 << 10;
const MAX_PAYLOAD: usize = 32 << 10;
/// Pongs wait behind at most this many bytes; then pings are not answered.
const MAX_OUTPUT: usize = 2 * MAX_PAYLOAD;

const NORMAL: u16 = 1000;

/// The byte stream. Its messages may be cut anywhere. One task reads and writes it.
#[derive(Debug)]
pub(super) struct Tunnel<S> {
    inner: S,
    decoder: Decoder,
    /// Where bytes are received.
    chunk: Box<[u8]>,
    /// Received, and not decoded.
    input: BytesMut,
    /// Decoded, and not read.
    data: Bytes,
    /// Encoded, and not written.
    output: BytesMut,
    is_ended: bool,
    has_sent_close: bool,
}

impl<S> Tunnel<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            decoder: Decoder::default(),
            chunk: vec![0; READ_BYTES].into_boxed_slice(),
            input: BytesMut::new(),
            data: Bytes::new(),
            output: BytesMut::new(),
            is_ended: false,
            has_sent_close: false,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Tunnel<S> {
    /// Writes everything that is encoded.
    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, &self.output))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Decodes until there is data, or more must be received.
    fn decode(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.data.is_empty() && !self.is_ended {
            let event = self.decoder.decode(&mut self.input);
            match event.map_err(io::Error::other)? {
                None => return Ok(()),
                Some(Event::Data { kind, bytes, .. }) => {
                    if kind == Kind::Text {
                        return Err(io::Error::other(WebSocketError::Kind));
                    }
                    self.data = bytes;
                }
                Some(Event::Ping(payload)) => {
                    if self.output.len() < MAX_OUTPUT {
                        websocket::put_pong(&mut self.output, &payload);
                    }
                    // If it cannot be written now, it is with what is written next.
                    if let Poll::Ready(written) = self.poll_output(context) {
                        written?;
                        let _ = Pin::new(&mut self.inner).poll_flush(context)?;
                    }
                }
                Some(Event::Pong) => {}
                Some(Event::Close) => self.is_ended = true,
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tunnel<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            this.decode(context)?;
            if !this.data.is_empty() {
                let length = this.data.len().min(buffer.remaining());
                buffer.put_slice(&this.data.split_to(length));
                return Poll::Ready(Ok(()));
            }
            if this.is_ended {
                return Poll::Ready(Ok(()));
            }
            let mut received = ReadBuf::new(&mut this.chunk);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut received))?;
            if received.filled().is_empty() {
                this.is_ended = true;
            }
            this.input.extend_from_slice(received.filled());
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tunnel<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_output(context))?;
        let piece = bytes.get(..MAX_PAYLOAD).unwrap_or(bytes);
        websocket::put_message_head(&mut this.output, Kind::Binary, piece.len());
        this.output.extend_from_slice(piece);
        // The rest is written before the next piece, or by a flush.
        if let Poll::Ready(written) = this.poll_output(context) {
            written?;
        }
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_output(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.has_sent_close, true) {
            websocket::put_close(&mut self.output, NORMAL);
        }
        ready!(self.poll_output(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

//! A TCP stream that can end with a reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Triggers a reset of a connection from the request handler.
#[derive(Debug, Default)]
pub(crate) struct ResetSwitch {
    thrown: AtomicBool,
    wake: Notify,
}

/// A stream that sends RST instead of FIN when it is dropped after the switch was triggered.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    switch: Arc<ResetSwitch>,
}

impl ResetSwitch {
    pub(crate) fn trigger(&self) {
        self.thrown.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Waits until the switch is triggered.
    pub(crate) async fn triggered(&self) {
        self.wake.notified().await;
    }
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, switch: Arc<ResetSwitch>) -> Self {
        Self { stream, switch }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.switch.thrown.load(Ordering::SeqCst) {
            // If it fails, the peer sees an ordinary close.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

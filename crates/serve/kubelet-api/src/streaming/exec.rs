//! Exec and attach over SPDY: a stream each for the error, stdin, stdout, stderr and resizing.

use std::convert::Infallible;
use std::time::Duration;

use kubevitals_spdy::{Config, Connection, Stream};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::metered::Metered;
use super::negotiate::SpdyProtocol;
use super::{StreamingConfig, StreamingMetrics, resize, status};
use crate::provider::{Session, StreamOptions, Streams};

/// More streams than any version has.
const MAX_STREAMS: usize = 8;
const STREAM_BUFFER: usize = 256 << 10;

/// The streams of a session that its client has opened.
#[derive(Default)]
struct Opened {
    error: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

/// Runs an exec or attach.
pub(super) async fn remote_command<S>(
    io: S,
    protocol: SpdyProtocol,
    options: StreamOptions,
    session: Session,
    config: StreamingConfig,
    metrics: StreamingMetrics,
) where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let limits = Config {
        max_streams: MAX_STREAMS,
        stream_buffer: STREAM_BUFFER,
        idle_timeout: config.idle_timeout,
        ..Config::default()
    };
    let (mut connection, driver) = Connection::server(io, limits);
    tokio::pin!(driver);
    let work = async {
        let creation = Opened::accept(&mut connection, options, protocol);
        let Some(opened) = within(config.creation_timeout, creation).await else {
            tracing::info!("client did not open its streams in time");
            return;
        };
        tokio::select! {
            () = opened.run(session, protocol, &metrics) => {}
            never = refuse(&mut connection) => match never {},
        }
    };
    tokio::select! {
        ended = &mut driver => {
            tracing::debug!(?ended, "session ended by its client");
            return;
        }
        () = work => {}
    }
    connection.close();
    if let Err(error) = driver.await {
        tracing::debug!(%error, "connection ended early");
    }
}

/// Refuses streams that are opened later.
async fn refuse(connection: &mut Connection) -> Infallible {
    while connection.accept().await.is_some() {}
    std::future::pending().await
}

/// The result of a future; `None` after the timeout.
async fn within<T>(timeout: Duration, future: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::time::timeout(timeout, future).await.ok().flatten()
}

impl Opened {
    /// Accepts the streams of a request; `None` if the connection ends before. Others are refused.
    async fn accept(
        connection: &mut Connection,
        options: StreamOptions,
        protocol: SpdyProtocol,
    ) -> Option<Self> {
        let mut opened = Self::default();
        let has_resize = options.tty && protocol.has_resize;
        while opened.error.is_none()
            || opened.stdin.is_some() != options.stdin
            || opened.stdout.is_some() != options.stdout
            || opened.stderr.is_some() != options.stderr
            || opened.resize.is_some() != has_resize
        {
            let stream = connection.accept().await?;
            let (slot, is_wanted) = match stream.headers().get("streamtype") {
                Some("error") => (&mut opened.error, true),
                Some("stdin") => (&mut opened.stdin, options.stdin),
                Some("stdout") => (&mut opened.stdout, options.stdout),
                Some("stderr") => (&mut opened.stderr, options.stderr),
                Some("resize") => (&mut opened.resize, has_resize),
                _ => continue,
            };
            if is_wanted && slot.is_none() {
                *slot = Some(stream.accept()?);
            }
        }
        Some(opened)
    }

    /// Runs the session. Its output and the ends of it are sent before the status.
    async fn run(self, session: Session, protocol: SpdyProtocol, metrics: &StreamingMetrics) {
        let (sizes, resize) = mpsc::channel(resize::QUEUED_SIZES);
        // Clients take the end of their stdin for the end of the session: it comes last.
        let mut writers = Vec::new();
        let output = |stream: Option<Stream>| {
            stream.map(|stream| {
                let (read, sent) = (metrics.received.clone(), metrics.sent.clone());
                let writer = Metered::new(stream.writer, read, sent);
                Box::new(writer) as Box<dyn AsyncWrite + Send + Unpin>
            })
        };
        let (stdout, stderr) = (output(self.stdout), output(self.stderr));
        let stdin = self.stdin.map(|stream| {
            writers.push(stream.writer);
            let (read, sent) = (metrics.received.clone(), metrics.sent.clone());
            let reader = Metered::new(stream.reader, read, sent);
            Box::new(reader) as Box<dyn AsyncRead + Send + Unpin>
        });
        let terminal = self.resize.map(|stream| {
            writers.push(stream.writer);
            stream.reader
        });
        let session = session(Streams {
            stdin,
            stdout,
            stderr,
            resize,
        });
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
        if let Some(mut error) = self.error {
            let status = status::encode(&outcome, protocol.status);
            let _ = error.writer.write_all(&status).await;
            let _ = error.writer.shutdown().await;
        }
        for writer in &writers {
            writer.reset(kubevitals_spdy::frame::reset::CANCEL);
        }
    }
}

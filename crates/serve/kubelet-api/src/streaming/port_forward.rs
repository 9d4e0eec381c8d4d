//! Port-forward over SPDY: of each connection, a stream for data and one for its error.

use std::io;
use std::sync::Arc;

use hashbrown::HashMap;
use kubevitals_spdy::frame::reset;
use kubevitals_spdy::{Config, Connection, Headers, PendingStream, Stream};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::metered::Metered;
use super::{StreamingConfig, StreamingMetrics};
use crate::provider::{Duplex, PortDialer};

/// Two for each connection.
const MAX_STREAMS: usize = 512;
const STREAM_BUFFER: usize = 32 << 10;
const COPY_BYTES: usize = 16 << 10;
/// The longest identifier of a pair; those of clients are small numbers.
const MAX_REQUEST_ID: usize = 64;

/// The streams of one connection that the client has opened so far.
struct Pair {
    port: u16,
    data: Option<Stream>,
    error: Option<Stream>,
    deadline: Instant,
}

/// What the headers of a stream say.
struct Role {
    request: String,
    port: u16,
    is_data: bool,
}

/// Runs a port-forward.
pub(super) async fn spdy<S>(
    io: S,
    dialer: Arc<dyn PortDialer>,
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
    let (connection, driver) = Connection::server(io, limits);
    tokio::select! {
        ended = driver => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended early");
            }
        }
        () = accept(connection, dialer, config, metrics) => {}
    }
}

/// Connects to a port of the pod, and counts what is copied. The error is what the client is told.
pub(super) async fn dial(
    dialer: &dyn PortDialer,
    port: u16,
    config: StreamingConfig,
    metrics: &StreamingMetrics,
) -> Result<Metered<Box<dyn Duplex>>, String> {
    let dialed = tokio::time::timeout(config.creation_timeout, dialer.dial(port)).await;
    match dialed {
        Ok(Ok(connection)) => Ok(Metered::new(
            connection,
            metrics.sent.clone(),
            metrics.received.clone(),
        )),
        Ok(Err(error)) => Err(format!("error forwarding port {port}: {error}")),
        Err(_elapsed) => Err(format!("error forwarding port {port}: timed out")),
    }
}

/// Accepts pairs of streams until the connection ends.
async fn accept(
    mut connection: Connection,
    dialer: Arc<dyn PortDialer>,
    config: StreamingConfig,
    metrics: StreamingMetrics,
) {
    // Bounded by the number of streams. Dropped with the connection.
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    let mut forwards = JoinSet::new();
    loop {
        let deadline = pairs.values().map(|pair| pair.deadline).min();
        let expired = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            stream = connection.accept() => {
                let Some(stream) = stream else { return };
                if let Some((port, data, error)) = add(&mut pairs, stream, config) {
                    let (dialer, metrics) = (Arc::clone(&dialer), metrics.clone());
                    forwards.spawn(async move {
                        forward(&*dialer, port, data, error, config, &metrics).await;
                    });
                }
            }
            Some(ended) = forwards.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "port-forward panicked");
                }
            }
            () = expired => {
                let now = Instant::now();
                for (_, pair) in pairs.extract_if(|_, pair| pair.deadline <= now) {
                    for stream in [pair.data, pair.error].into_iter().flatten() {
                        stream.writer.reset(reset::CANCEL);
                    }
                }
            }
        }
    }
}

/// Adds a stream to its pair, and returns the pair once it is complete. A stream that belongs to
/// none is refused.
fn add(
    pairs: &mut HashMap<String, Pair>,
    stream: PendingStream,
    config: StreamingConfig,
) -> Option<(u16, Stream, Stream)> {
    let role = Role::parse(stream.headers(), stream.id())?;
    let pair = pairs.entry(role.request.clone()).or_insert_with(|| Pair {
        port: role.port,
        data: None,
        error: None,
        deadline: Instant::now() + config.creation_timeout,
    });
    let slot = if role.is_data {
        &mut pair.data
    } else {
        &mut pair.error
    };
    if pair.port != role.port || slot.is_some() {
        return None;
    }
    *slot = Some(stream.accept()?);
    if pair.data.is_none() || pair.error.is_none() {
        return None;
    }
    let pair = pairs.remove(&role.request)?;
    Some((pair.port, pair.data?, pair.error?))
}

/// Connects, and copies until both sides have ended. A byte on the error stream makes kubectl end
/// all its forwarding: only a failed connection is told.
async fn forward(
    dialer: &dyn PortDialer,
    port: u16,
    data: Stream,
    mut error: Stream,
    config: StreamingConfig,
    metrics: &StreamingMetrics,
) {
    let mut connection = match dial(dialer, port, config, metrics).await {
        Ok(connection) => connection,
        Err(message) => {
            tracing::debug!(port, error = message, "failed to connect to a port");
            let _ = error.writer.write_all(message.as_bytes()).await;
            let _ = error.writer.shutdown().await;
            data.writer.reset(reset::CANCEL);
            return;
        }
    };
    let mut client = tokio::io::join(data.reader, data.writer);
    let copied: io::Result<_> = tokio::io::copy_bidirectional_with_sizes(
        &mut client,
        &mut connection,
        COPY_BYTES,
        COPY_BYTES,
    )
    .await;
    if copied.is_err() {
        client.writer().reset(reset::CANCEL);
    }
}

impl Role {
    fn parse(headers: &Headers, id: u32) -> Option<Self> {
        let is_data = match headers.get("streamtype")? {
            "data" => true,
            "error" => false,
            _ => return None,
        };
        let port = headers.get("port")?.parse().ok().filter(|port| *port > 0)?;
        let request = match headers.get("requestid") {
            Some(request) if request.len() <= MAX_REQUEST_ID => request.to_owned(),
            Some(_) => return None,
            // Old clients open the error stream first, and the data stream next.
            None if is_data => id.checked_sub(2)?.to_string(),
            None => id.to_string(),
        };
        Some(Self {
            request,
            port,
            is_data,
        })
    }
}

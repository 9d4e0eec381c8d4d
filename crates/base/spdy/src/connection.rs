//! A connection and its driver.

#[cfg(feature = "client")]
mod client;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, watch};

use crate::error::SpdyError;
use crate::frame::{self, Decoder, Frame, reset};
use crate::header::{HeaderDecoder, HeaderEncoder, Headers};
use crate::outbox::Outbox;
use crate::stream::{PendingStream, Stream, StreamState};

/// Bytes that are read at a time.
const READ_BYTES: usize = 32 << 10;
/// The longest control frame, and a header block once it is inflated. Those of Kubernetes have less
/// than a hundred bytes.
const MAX_CONTROL_BYTES: usize = 8 << 10;
const MAX_HEADER_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 32;
/// Interval of pings while nothing is read because a stream is full: the loss of the peer is then
/// noticed by writing.
const STALL_PING_INTERVAL: Duration = Duration::from_secs(15);
/// Time for the `GOAWAY` that tells the peer of its error.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Maximum number of streams at a time; more are refused.
    pub max_streams: usize,
    /// Bytes that a stream buffers for its reader.
    pub stream_buffer: usize,
    /// Bytes that wait to be written, of all streams; as many are under way.
    pub write_buffer: usize,
    /// The connection ends if nothing is read or written for this long.
    pub idle_timeout: Duration,
    /// Time from [`Connection::close`] until everything is written.
    pub flush_timeout: Duration,
    /// Time from the last byte that was written to the end of the connection by the peer. A
    /// connection that is closed earlier can cut what the peer has not read.
    pub close_timeout: Duration,
}

/// Accepts the streams of a connection. It ends when its driver does.
#[derive(Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    incoming: mpsc::Receiver<PendingStream>,
}

/// What streams and the driver share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) outbox: Outbox,
    encoder: Mutex<HeaderEncoder>,
    streams: Mutex<HashMap<u32, Arc<StreamState>>>,
    last_id: AtomicU32,
    /// Closed by this side.
    closing: watch::Sender<bool>,
    #[cfg(feature = "client")]
    client: client::Client,
}

/// Tells all streams that the connection is gone when it is dropped.
struct LostOnDrop(Arc<Shared>);

impl Drop for LostOnDrop {
    fn drop(&mut self) {
        self.0.lost();
    }
}

/// The driver's side of reading.
struct Reader {
    shared: Arc<Shared>,
    config: Config,
    is_client: bool,
    decoder: Decoder,
    incoming: mpsc::Sender<PendingStream>,
    /// Where data of streams is written, until the peer half-closes them.
    pipes: HashMap<u32, (Arc<StreamState>, DuplexStream)>,
    is_peer_leaving: bool,
    next_ping: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_streams: 256,
            stream_buffer: 64 << 10,
            write_buffer: 128 << 10,
            idle_timeout: Duration::from_hours(4),
            flush_timeout: Duration::from_mins(10),
            close_timeout: Duration::from_secs(30),
        }
    }
}

impl Connection {
    /// Serves a connection. The future is its driver: it must be polled, and its drop ends all.
    pub fn server<S>(
        io: S,
        config: Config,
    ) -> (
        Self,
        impl Future<Output = Result<(), SpdyError>> + Send + 'static,
    )
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::new(io, config, false)
    }

    fn new<S>(
        io: S,
        config: Config,
        is_client: bool,
    ) -> (
        Self,
        impl Future<Output = Result<(), SpdyError>> + Send + 'static,
    )
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let shared = Arc::new(Shared {
            outbox: Outbox::new(config.write_buffer),
            encoder: Mutex::new(HeaderEncoder::new()),
            streams: Mutex::default(),
            last_id: AtomicU32::new(0),
            closing: watch::Sender::new(false),
            #[cfg(feature = "client")]
            client: client::Client::default(),
        });
        let (sender, incoming) = mpsc::channel(config.max_streams.max(1));
        let reader = Reader {
            shared: Arc::clone(&shared),
            config,
            is_client,
            decoder: Decoder::new(
                HeaderDecoder::new(MAX_HEADERS, MAX_HEADER_BYTES),
                MAX_CONTROL_BYTES,
            ),
            incoming: sender,
            pipes: HashMap::new(),
            is_peer_leaving: false,
            // Ours are even, those of clients odd.
            next_ping: if is_client { 1 } else { 2 },
        };
        (Self { shared, incoming }, drive(io, reader))
    }

    /// Returns the next stream that the peer opens; `None` once the connection has ended.
    pub async fn accept(&mut self) -> Option<PendingStream> {
        self.incoming.recv().await
    }

    /// Ends the connection: what streams have written is sent, open streams are reset, then comes
    /// `GOAWAY`. The driver ends when the peer has closed its side, within
    /// [`Config::close_timeout`].
    pub fn close(&self) {
        self.shared.close(0);
    }
}

impl Shared {
    /// Sends the reply to a stream; `false` if the connection has ended.
    pub(crate) fn reply(&self, id: u32) -> bool {
        self.push_block(&Headers::default(), |out, block| {
            frame::put_syn_reply(out, id, false, block);
        })
    }

    /// Sends a frame with a header block. Blocks are sent in the order of their compression.
    fn push_block(&self, headers: &Headers, put: impl FnOnce(&mut BytesMut, &[u8])) -> bool {
        let mut encoder = self.encoder.lock();
        let Ok(block) = encoder.encode(headers) else {
            return false;
        };
        self.outbox.push(|out| put(out, &block))
    }

    pub(crate) fn forget(&self, id: u32) {
        self.streams.lock().remove(&id);
    }

    pub(crate) fn forget_if_over(&self, state: &StreamState) {
        if state.is_over() {
            self.forget(state.id);
        }
    }

    fn close(&self, status: u32) {
        let open: Vec<_> = self
            .streams
            .lock()
            .drain()
            .map(|(_, state)| state)
            .collect();
        for state in open {
            let was_finished = state.is_finished.load(Ordering::Acquire);
            state.reset();
            if !was_finished {
                self.outbox
                    .push(|out| frame::put_rst_stream(out, state.id, reset::CANCEL));
            }
        }
        let last_id = self.last_id.load(Ordering::Relaxed);
        self.outbox
            .push(|out| frame::put_goaway(out, last_id, status));
        self.outbox.close();
        self.closing.send_replace(true);
    }

    /// Waits until this side has closed the connection for this long.
    async fn closed_for(&self, timeout: Duration) {
        let mut closing = self.closing.subscribe();
        // The sender is in `self`: it is not dropped meanwhile.
        drop(closing.wait_for(|is_closing| *is_closing).await);
        tokio::time::sleep(timeout).await;
    }

    /// Tells all streams that the connection is gone.
    fn lost(&self) {
        for (_, state) in self.streams.lock().drain() {
            state.reset();
        }
        self.outbox.close();
        self.closing.send_replace(true);
        #[cfg(feature = "client")]
        self.client.lost();
    }
}

async fn drive<S>(io: S, mut reader: Reader) -> Result<(), SpdyError>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let shared = Arc::clone(&reader.shared);
    // Also if the driver is dropped.
    let _lost = LostOnDrop(Arc::clone(&shared));
    let (mut input, mut output) = tokio::io::split(io);
    let config = reader.config;
    let write = async {
        shared.outbox.write_to(&mut output).await?;
        output.shutdown().await
    };
    let read = reader.run(&mut input);
    tokio::pin!(write, read);
    let read_first = tokio::select! {
        ended = &mut read => Some(ended),
        written = &mut write => {
            written?;
            None
        }
        () = shared.outbox.idle(config.idle_timeout) => {
            Some(Err(SpdyError::Idle(config.idle_timeout)))
        }
        () = shared.closed_for(config.flush_timeout) => {
            Some(Err(SpdyError::Unread(config.flush_timeout)))
        }
    };
    match read_first {
        Some(Err(error)) => {
            // The error of a peer is told, if it still listens.
            if !matches!(
                error,
                SpdyError::Io(_) | SpdyError::Truncated | SpdyError::Unread(_) | SpdyError::Flood
            ) {
                // An idle connection ends without a fault.
                shared.close(u32::from(!matches!(error, SpdyError::Idle(_))));
                let _ = tokio::time::timeout(GOAWAY_TIMEOUT, write).await;
            }
            Err(error)
        }
        Some(Ok(())) => Ok(()),
        // All is written. A socket that is closed while bytes arrive is reset, and the peer
        // may lose what it has not read.
        None => {
            let _ = tokio::time::timeout(config.close_timeout, read).await;
            Ok(())
        }
    }
}

impl Reader {
    async fn run<R: AsyncRead + Unpin>(&mut self, input: &mut R) -> Result<(), SpdyError> {
        let mut buffer = BytesMut::new();
        loop {
            while let Some(frame) = self.decoder.decode(&mut buffer)? {
                self.shared.outbox.touch();
                self.handle(frame).await;
                if self.shared.outbox.has_overflowed() {
                    return Err(SpdyError::Flood);
                }
                if self.is_peer_leaving && self.shared.streams.lock().is_empty() {
                    return Ok(());
                }
            }
            buffer.reserve(READ_BYTES);
            if input.read_buf(&mut buffer).await? == 0 {
                let is_whole = buffer.is_empty() && self.decoder.is_between_frames();
                return is_whole.then_some(()).ok_or(SpdyError::Truncated);
            }
        }
    }

    async fn handle(&mut self, frame: Frame) {
        match frame {
            Frame::Data { id, fin, bytes } => {
                if !bytes.is_empty() {
                    self.deliver(id, &bytes).await;
                }
                if fin {
                    self.finish(id);
                }
            }
            Frame::SynStream { id, fin, headers } => self.open(id, fin, headers),
            Frame::RstStream { id, .. } => {
                if let Some(state) = self.shared.streams.lock().remove(&id) {
                    state.reset();
                }
                #[cfg(feature = "client")]
                {
                    self.adopt(id);
                    self.shared.client.replied(id, false);
                }
                self.pipes.remove(&id);
            }
            Frame::Ping { id } => {
                if id.is_multiple_of(2) == self.is_client {
                    self.shared
                        .outbox
                        .push_if_room(|out| frame::put_ping(out, id));
                }
            }
            Frame::GoAway { .. } => self.is_peer_leaving = true,
            Frame::SynReply { id, fin, .. } => {
                #[cfg(feature = "client")]
                self.shared.client.replied(id, true);
                if fin {
                    self.finish(id);
                }
            }
            Frame::Headers { id, fin, .. } => {
                if fin {
                    self.finish(id);
                }
            }
            Frame::Settings | Frame::WindowUpdate => {}
        }
    }

    fn open(&mut self, id: u32, fin: bool, headers: Headers) {
        let outbox = &self.shared.outbox;
        let last_id = self.shared.last_id.load(Ordering::Relaxed);
        if self.is_client || id.is_multiple_of(2) || id <= last_id {
            outbox.push_if_room(|out| frame::put_rst_stream(out, id, reset::PROTOCOL_ERROR));
            return;
        }
        self.shared.last_id.store(id, Ordering::Relaxed);
        if self.shared.streams.lock().len() >= self.config.max_streams {
            outbox.push_if_room(|out| frame::put_rst_stream(out, id, reset::REFUSED));
            return;
        }
        let stream = self.add(id, headers);
        if fin {
            self.finish(id);
        }
        // Refused if nobody accepts any more: it is dropped.
        let _ = self.incoming.try_send(PendingStream::new(stream));
    }

    fn add(&mut self, id: u32, headers: Headers) -> Stream {
        let (own, pipe) = tokio::io::duplex(self.config.stream_buffer.max(1));
        let state = StreamState::new(id);
        {
            let mut streams = self.shared.streams.lock();
            streams.insert(id, Arc::clone(&state));
            // Streams that this side has reset, and the peer never mentioned again.
            if self.pipes.len() > 2 * streams.len() + 16 {
                self.pipes.retain(|id, _| streams.contains_key(id));
            }
        }
        self.pipes.insert(id, (Arc::clone(&state), own));
        Stream::new(&state, headers, pipe, &self.shared)
    }

    /// Records that the peer has half-closed a stream.
    fn finish(&mut self, id: u32) {
        #[cfg(feature = "client")]
        self.adopt(id);
        // The pipe is dropped last: its reader then sees why.
        if let Some((state, _pipe)) = self.pipes.remove(&id) {
            state.remote_finished();
            self.shared.forget_if_over(&state);
        }
    }

    /// Passes data to the reader of a stream, and waits while its buffer is full. Data of streams
    /// that nobody reads is dropped.
    async fn deliver(&mut self, id: u32, bytes: &[u8]) {
        #[cfg(feature = "client")]
        self.adopt(id);
        let Some((state, pipe)) = self.pipes.get_mut(&id) else {
            return;
        };
        if state.is_unread.load(Ordering::Acquire) {
            return;
        }
        let mut closing = self.shared.closing.subscribe();
        let write = pipe.write_all(bytes);
        tokio::pin!(write);
        let written: io::Result<()> = loop {
            tokio::select! {
                biased;
                written = &mut write => break written,
                _ = closing.wait_for(|is_closing| *is_closing) => {
                    break Err(io::ErrorKind::BrokenPipe.into());
                }
                () = tokio::time::sleep(STALL_PING_INTERVAL) => {
                    let ping = self.next_ping;
                    self.shared.outbox.push_if_room(|out| frame::put_ping(out, ping));
                    self.next_ping = ping.wrapping_add(2).max(1);
                }
            }
        };
        if written.is_err() {
            // The reader is gone; the peer may go on writing.
            self.pipes.remove(&id);
        }
    }
}

//! Encoded frames that wait to be written, up to a bound.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The frames that wait to be written to a connection. Data waits for room; control frames do not,
/// so who pushes them bounds their number.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    /// Something is there to write, or the end is reached.
    filled: Notify,
    capacity: usize,
    since: Instant,
    /// When the connection was last used, in milliseconds since `since`.
    active_at: AtomicU64,
}

#[derive(Debug)]
struct State {
    buffer: BytesMut,
    /// Nothing more is accepted.
    is_closed: bool,
    /// More control frames were pushed than can be held.
    has_overflowed: bool,
    waiting: Vec<Waker>,
}

impl Outbox {
    /// Creates an outbox that accepts data while fewer than `capacity` bytes wait. As many may be
    /// under way.
    pub fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(State {
                buffer: BytesMut::new(),
                is_closed: false,
                has_overflowed: false,
                waiting: Vec::new(),
            }),
            filled: Notify::new(),
            capacity,
            since: Instant::now(),
            active_at: AtomicU64::new(0),
        }
    }

    /// Appends a frame with data once there is room.
    pub fn poll_push(
        &self,
        context: &mut Context<'_>,
        encode: impl FnOnce(&mut BytesMut),
    ) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.buffer.len() >= self.capacity {
            // Who polls twice waits twice, and is woken twice.
            if !state
                .waiting
                .iter()
                .any(|own| own.will_wake(context.waker()))
            {
                state.waiting.push(context.waker().clone());
            }
            return Poll::Pending;
        }
        encode(&mut state.buffer);
        drop(state);
        self.filled.notify_one();
        self.touch();
        Poll::Ready(Ok(()))
    }

    /// Appends a control frame. Returns `false` if nothing more is accepted: the end is reached, or
    /// the peer causes frames and does not read them.
    pub fn push(&self, encode: impl FnOnce(&mut BytesMut)) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        if state.buffer.len() >= 4 * self.capacity {
            state.has_overflowed = true;
            drop(state);
            self.close();
            return false;
        }
        encode(&mut state.buffer);
        drop(state);
        self.filled.notify_one();
        true
    }

    /// Appends a frame only while there is room. For replies that a peer could ask for without end.
    pub fn push_if_room(&self, encode: impl FnOnce(&mut BytesMut)) {
        let mut state = self.state.lock();
        // Replies are small: twice the capacity leaves room for them while data waits.
        if state.is_closed || state.buffer.len() >= 2 * self.capacity {
            return;
        }
        encode(&mut state.buffer);
        drop(state);
        self.filled.notify_one();
    }

    /// Accepts nothing more. What is there is still written.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        self.filled.notify_one();
    }

    /// Whether the peer has caused more frames than can be held, and did not read them.
    pub fn has_overflowed(&self) -> bool {
        self.state.lock().has_overflowed
    }

    /// Writes everything, until the outbox is closed and empty. Not to be called twice at a time.
    pub async fn write_to<W: AsyncWrite + Unpin>(&self, io: &mut W) -> io::Result<()> {
        let mut batch = BytesMut::new();
        loop {
            let (waiting, is_closed) = {
                let mut state = self.state.lock();
                std::mem::swap(&mut state.buffer, &mut batch);
                (std::mem::take(&mut state.waiting), state.is_closed)
            };
            waiting.into_iter().for_each(Waker::wake);
            if batch.is_empty() {
                io.flush().await?;
                if is_closed {
                    return Ok(());
                }
                self.filled.notified().await;
                continue;
            }
            while !batch.is_empty() {
                if io.write_buf(&mut batch).await? == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            // The allocation is used again, unless it was large once.
            if batch.capacity() > 4 * self.capacity {
                batch = BytesMut::new();
            } else {
                batch.clear();
            }
        }
    }

    /// Records that the connection is in use, as data that is pushed does.
    pub fn touch(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.active_at.store(now, Ordering::Relaxed);
    }

    /// Waits until the connection was not used for this long.
    pub async fn idle(&self, timeout: Duration) {
        loop {
            let active_at = Duration::from_millis(self.active_at.load(Ordering::Relaxed));
            let end = self.since + active_at + timeout;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

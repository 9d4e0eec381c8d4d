//! A writer of lines for which nobody waits.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a writer that cannot take more for now is left alone.
const PAUSE: Duration = Duration::from_millis(20);

/// How long lines are gathered after the first. To wake a thread for each takes longer than to make
/// the line, above all where there is one processor for both; nobody who reads lines notices some
/// milliseconds.
const GATHER: Duration = Duration::from_millis(5);

/// Lines that are written at once, in bytes.
const AT_ONCE: usize = 64 << 10;

/// Writes lines on a thread of its own, through a queue of bounded size. Clones share the queue.
#[derive(Debug, Clone)]
pub struct JsonLines {
    handle: Arc<Handle>,
}

/// What became of the lines so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCounts {
    /// Lines that were written to their end.
    pub written: u64,
    /// Lines that were not: the queue was full, the output was closed, or time ran out at the end.
    pub dropped: u64,
    /// Lines that wait in the queue.
    pub waiting: u64,
}

/// What the thread does not hold: when the last clone goes, the thread writes what is queued and
/// ends.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Lines>,
    queued_bytes: usize,
    counts: LineCounts,
    /// Nothing more will come.
    is_closing: bool,
    /// Nobody waits any longer for what is left.
    is_given_up: bool,
    /// The thread has ended.
    is_over: bool,
}

/// Lines that belong together: all are queued, or none.
#[derive(Debug)]
struct Lines {
    bytes: Vec<u8>,
    count: u64,
}

impl JsonLines {
    /// Begins a thread that writes to `out`, with a queue of up to `capacity` bytes.
    pub fn begin(out: impl Write + Send + 'static, capacity: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            capacity,
        });
        let writer = Arc::clone(&shared);
        thread::Builder::new()
            .name("json-lines".to_owned())
            .spawn(move || writer.write_all_to(out))?;
        Ok(Self {
            handle: Arc::new(Handle { shared }),
        })
    }

    /// Queues lines, each with its line break, together or not at all; gives whether they were.
    /// Never waits for the output.
    pub fn push(&self, lines: Vec<u8>) -> bool {
        let count = line_count(&lines);
        let shared = &self.handle.shared;
        let mut state = shared.lock();
        let has_room = state.queued_bytes.saturating_add(lines.len()) <= shared.capacity;
        if !has_room || state.is_closing || state.is_over {
            state.counts.dropped += count;
            return false;
        }
        let is_first = state.queue.is_empty();
        state.queued_bytes += lines.len();
        state.counts.waiting += count;
        state.queue.push_back(Lines {
            bytes: lines,
            count,
        });
        drop(state);
        // Otherwise the thread knows that there is something to write.
        if is_first {
            shared.changed.notify_all();
        }
        true
    }

    /// What became of the lines so far.
    pub fn counts(&self) -> LineCounts {
        self.handle.shared.lock().counts
    }

    /// Takes no more, and waits up to `grace` for what is queued to be written. What is not by then
    /// is dropped.
    pub fn finish(&self, grace: Duration) -> LineCounts {
        let shared = &self.handle.shared;
        let until = Instant::now().checked_add(grace);
        let mut state = shared.lock();
        state.is_closing = true;
        shared.changed.notify_all();
        while !state.is_over {
            let left = until.map_or(grace, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                state.is_given_up = true;
                state.drop_queue();
                break;
            }
            state = wait(&shared.changed, state, left);
        }
        shared.changed.notify_all();
        state.counts
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// A poisoned lock is taken as it is: every change is made in one step.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all_to(&self, mut out: impl Write) {
        while let Some(lines) = self.next() {
            let (written, is_open) = self.write(&mut out, &lines);
            let mut state = self.lock();
            // Once given up, what was being written has been counted as dropped.
            if !state.is_given_up {
                state.counts.waiting = state.counts.waiting.saturating_sub(lines.count);
                state.counts.dropped += lines.count.saturating_sub(written);
                state.counts.written += written;
            }
            state.queued_bytes = state.queued_bytes.saturating_sub(lines.bytes.len());
            if !is_open {
                break;
            }
        }
        let mut state = self.lock();
        state.drop_queue();
        state.is_over = true;
        drop(state);
        self.changed.notify_all();
    }

    /// The next lines, with those that wait behind them; none if there will be none.
    fn next(&self) -> Option<Lines> {
        let mut state = self.lock();
        while state.queue.is_empty() {
            if state.is_closing {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            if !state.queue.is_empty() && !state.is_closing {
                state = wait(&self.changed, state, GATHER);
            }
        }
        let mut lines = state.queue.pop_front()?;
        while let Some(more) = state.queue.front()
            && lines.bytes.len().saturating_add(more.bytes.len()) <= AT_ONCE
            && let Some(more) = state.queue.pop_front()
        {
            lines.bytes.extend_from_slice(&more.bytes);
            lines.count += more.count;
        }
        Some(lines)
    }

    /// Writes lines; gives how many were written to their end, and whether more can be.
    fn write(&self, out: &mut impl Write, lines: &Lines) -> (u64, bool) {
        let mut at = 0;
        loop {
            let rest = lines.bytes.get(at..).unwrap_or_default();
            let done = if rest.is_empty() {
                out.flush().map(|()| 0)
            } else {
                out.write(rest)
            };
            match done {
                Ok(0) if rest.is_empty() => return (lines.count, true),
                Ok(0) => break,
                Ok(length) => at += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A full disk or a full pipe may have room again: the line that was begun is
                // finished then.
                Err(error) if is_passing(error.kind()) => {
                    let state = self.lock();
                    if state.is_given_up {
                        break;
                    }
                    drop(wait(&self.changed, state, PAUSE));
                }
                Err(_) => break,
            }
        }
        (line_count(lines.bytes.get(..at).unwrap_or_default()), false)
    }
}

impl State {
    fn drop_queue(&mut self) {
        self.counts.dropped += mem::take(&mut self.counts.waiting);
        self.queue.clear();
        self.queued_bytes = 0;
    }
}

fn wait<'s>(
    changed: &Condvar,
    state: MutexGuard<'s, State>,
    longest: Duration,
) -> MutexGuard<'s, State> {
    changed
        .wait_timeout(state, longest)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

fn line_count(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

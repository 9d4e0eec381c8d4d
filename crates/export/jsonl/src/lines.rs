//! Writes lines on a thread of its own, through a sink.

use std::io::{self, ErrorKind, Write};
use std::thread;
use std::time::Duration;

use kubevitals_sink::{
    ExportError, Exporter, RetryPolicy, Sink, SinkConfig, SinkCounts, SinkItem, SinkMetrics,
};

/// Delay before a write that would block, or found no space, is retried.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Time for which lines are gathered after the first. Waking a thread for each takes longer than
/// formatting the line, above all on a single core; no reader of lines notices some
/// milliseconds.
const LINGER: Duration = Duration::from_millis(5);

/// Maximum size of one write, in bytes, unless the lines of one record are larger.
const MAX_WRITE: usize = 64 << 10;

/// Queues lines and writes them on a thread of its own. Clones share the queue; when the last is
/// dropped, the thread writes what is queued and ends.
#[derive(Debug, Clone)]
pub struct JsonLines {
    sink: Sink<Lines>,
}

/// Lines that belong together: all are queued, or none.
#[derive(Debug)]
struct Lines {
    bytes: Vec<u8>,
    count: u64,
}

/// Writes batches of lines; a line that was begun is finished before any other.
struct LineWriter<W> {
    out: W,
    /// The lines of the batch in flight.
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that are written; `None` if no batch is in flight.
    written: Option<usize>,
}

impl JsonLines {
    /// Starts a thread that writes to `out`, with a queue of up to `capacity` bytes.
    pub fn start(
        out: impl Write + Send + 'static,
        capacity: usize,
        metrics: SinkMetrics,
    ) -> io::Result<Self> {
        let config = SinkConfig {
            name: "json-lines",
            capacity,
            max_batch: MAX_WRITE,
            linger: LINGER,
            retry: RetryPolicy {
                // A full disk may have room again at any time.
                max_elapsed: None,
                ..RetryPolicy::default()
            },
        };
        let (sink, worker) = Sink::new(config, metrics);
        let writer = LineWriter {
            out,
            buffer: Vec::new(),
            written: None,
        };
        // A write may block for as long as the reader likes, which no shared runtime should.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        thread::Builder::new()
            .name("json-lines".to_owned())
            .spawn(move || runtime.block_on(worker.run(writer)))?;
        Ok(Self { sink })
    }

    /// Queues lines, each with its line break, together or not at all, and returns whether they
    /// were queued. Never waits for the output.
    pub fn push(&self, lines: Vec<u8>) -> bool {
        let count = line_count(&lines);
        self.sink.push(Lines {
            bytes: lines,
            count,
        })
    }

    /// The lines so far.
    pub fn counts(&self) -> SinkCounts {
        self.sink.counts()
    }

    /// Accepts no more lines, waits up to `grace` for the queued ones to be written, and drops the
    /// rest.
    pub async fn shutdown(&self, grace: Duration) -> SinkCounts {
        self.sink.shutdown(grace).await
    }
}

impl SinkItem for Lines {
    fn size(&self) -> usize {
        self.bytes.len()
    }

    fn records(&self) -> u64 {
        self.count
    }
}

impl<W: Write + Send> Exporter<Lines> for LineWriter<W> {
    async fn export(&mut self, batch: &[Lines]) -> Result<(), ExportError> {
        let mut written = self.written.take().unwrap_or_else(|| {
            self.buffer.clear();
            for lines in batch {
                self.buffer.extend_from_slice(&lines.bytes);
            }
            0
        });
        let error = loop {
            let rest = self.buffer.get(written..).unwrap_or_default();
            let result = if rest.is_empty() {
                self.out.flush().map(|()| 0)
            } else {
                self.out.write(rest)
            };
            match result {
                Ok(0) if rest.is_empty() => return Ok(()),
                Ok(0) => break ErrorKind::WriteZero.into(),
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
        };
        let message = error.to_string();
        if is_transient(error.kind()) {
            self.written = Some(written);
            return Err(ExportError::Retryable {
                message,
                after: Some(RETRY_DELAY),
            });
        }
        let unwritten = self.buffer.get(written..).unwrap_or_default();
        Err(ExportError::Closed {
            message,
            records: line_count(unwritten),
        })
    }
}

/// Whether a full disk or a full pipe may have room again.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

fn line_count(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

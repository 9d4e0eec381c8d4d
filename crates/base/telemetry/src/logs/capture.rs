//! The log of one thread, for tests.

use std::io;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::dispatcher::{DefaultGuard, set_default};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, callsite};

use super::{LogHandle, LogOptions, build};

/// A second dispatcher, for as long as the process runs.
///
/// With one dispatcher alone, tracing decides whether a line is enabled by the dispatcher of the
/// thread that reaches the line first, and remembers it for all threads. That thread may run
/// another test, without a log.
static SECOND_DISPATCHER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Captures what this thread logs until it is dropped, and what its tasks log if the runtime has no
/// other thread.
pub struct LogCapture {
    buffer: Buffer,
    handle: LogHandle,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl LogCapture {
    /// Starts to capture, in the format and with the filter of `options`.
    ///
    /// # Panics
    ///
    /// If the filter is invalid.
    #[expect(clippy::expect_used, reason = "this is a part of tests")]
    pub fn start(options: &LogOptions) -> Self {
        LazyLock::force(&SECOND_DISPATCHER);
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let (dispatch, handle) =
            build(options, move || writer.clone()).expect("the filter of a test is valid");
        let guard = set_default(&dispatch);
        // Lines that another thread registered before there were two dispatchers.
        callsite::rebuild_interest_cache();
        Self {
            buffer,
            handle,
            _guard: guard,
        }
    }

    /// Sets the filter at run time.
    pub const fn handle(&self) -> &LogHandle {
        &self.handle
    }

    /// Returns what was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer.0.lock()).into_owned()
    }

    /// Returns what was logged since the last call.
    pub fn take(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *self.buffer.0.lock())).into_owned()
    }

    /// Returns the lines that were logged so far.
    pub fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }
}

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of_both_threads() {
        tracing::info!("reached by both threads");
    }

    /// A line that another thread reached first, without a log, was never captured.
    #[test]
    fn a_line_that_another_thread_reached_first_is_captured() {
        let log = LogCapture::start(&LogOptions::default());
        std::thread::spawn(line_of_both_threads).join().unwrap();
        assert_eq!(log.text(), "");
        line_of_both_threads();
        assert_eq!(log.lines().len(), 1);
    }
}

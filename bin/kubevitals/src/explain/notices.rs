//! Warnings and progress on standard error. A closed standard error is no reason to stop.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use kubevitals_explain::Notices;
use kubevitals_terminal::printable;

/// Progress is shown only for what takes longer.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Writes notices to standard error; progress only if that is a terminal.
pub(super) struct StderrNotices {
    started: Instant,
    last_progress: Option<Instant>,
    is_terminal: bool,
}

impl StderrNotices {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            last_progress: None,
            is_terminal: io::stderr().is_terminal(),
        }
    }
}

impl Notices for StderrNotices {
    fn warn(&mut self, message: &str) {
        warn(message);
    }

    fn progress(&mut self, message: &dyn Fn() -> String) {
        let now = Instant::now();
        let is_due = self
            .last_progress
            .is_none_or(|last| now - last >= PROGRESS_INTERVAL);
        if self.is_terminal && now - self.started >= PROGRESS_DELAY && is_due {
            self.last_progress = Some(now);
            let _ = write!(io::stderr(), "\r\u{1b}[K{}", message());
        }
    }

    fn clear_progress(&mut self) {
        if self.last_progress.take().is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

pub(crate) fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "warning: {}", printable(message));
}

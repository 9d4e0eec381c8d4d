//! The progress of a long build: one line that is overwritten on a terminal, a line from time to
//! time in a log.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Interval of updates on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of lines in a log: keeps it short, and shows that nothing hangs.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Width limit of the line on a terminal: one that wraps cannot be overwritten.
const MAX_WIDTH: usize = 78;

/// Prints the progress of one build.
#[derive(Debug)]
pub(crate) struct Progress {
    name: String,
    terminal: bool,
    last: Duration,
}

impl Progress {
    pub(crate) fn new(name: String) -> Self {
        Self::to(name, std::io::stdout().is_terminal())
    }

    fn to(name: String, terminal: bool) -> Self {
        Self {
            name,
            terminal,
            last: Duration::ZERO,
        }
    }

    /// Prints the activity if the interval has passed.
    pub(crate) fn tick(&mut self, elapsed: Duration, activity: &str) {
        if let Some(line) = self.line(elapsed, activity) {
            print!("{line}");
            // A closed terminal must not stop the build.
            let _ = std::io::stdout().flush();
        }
    }

    /// Prints the result of the build.
    pub(crate) fn end(&self, elapsed: Duration, result: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        println!(
            "{clear}{:>6.1} s  {}: {result}",
            elapsed.as_secs_f64(),
            self.name
        );
    }

    fn line(&mut self, elapsed: Duration, activity: &str) -> Option<String> {
        let interval = if self.terminal {
            TERMINAL_INTERVAL
        } else {
            LOG_INTERVAL
        };
        if elapsed.saturating_sub(self.last) < interval {
            return None;
        }
        self.last = elapsed;
        let line = format!("{:>6} s  {}: {activity}", elapsed.as_secs(), self.name);
        Some(if self.terminal {
            let line: String = line.chars().take(MAX_WIDTH).collect();
            format!("\r\x1b[K{line}")
        } else {
            format!("{line}\n")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(terminal: bool, seconds: u64) -> Vec<String> {
        let mut progress = Progress::to("kubelet v1.37.1".to_owned(), terminal);
        (0..seconds * 4)
            .filter_map(|tick| progress.line(Duration::from_millis(250 * tick), "compiling"))
            .collect()
    }

    #[test]
    fn a_terminal_gets_one_line_that_is_updated_every_second() {
        let lines = printed(true, 10);
        assert_eq!(lines.len(), 9);
        assert_eq!(
            lines.first().unwrap(),
            "\r\x1b[K     1 s  kubelet v1.37.1: compiling"
        );
        assert!(lines.iter().all(|line| !line.contains('\n')));
    }

    #[test]
    fn a_log_gets_a_plain_line_every_half_minute() {
        let lines = printed(false, 65);
        assert_eq!(
            lines,
            [
                "    30 s  kubelet v1.37.1: compiling\n",
                "    60 s  kubelet v1.37.1: compiling\n"
            ]
        );
    }

    #[test]
    fn a_long_line_is_cut_so_that_it_does_not_wrap() {
        let mut progress = Progress::to("kubelet".to_owned(), true);
        let line = progress
            .line(Duration::from_secs(2), &"é".repeat(200))
            .unwrap();
        assert_eq!(line.chars().count(), MAX_WIDTH + "\r\x1b[K".len());
    }
}

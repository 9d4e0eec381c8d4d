//! Saying what a long build is doing: a line that is written over on a terminal, a line now and
//! then in a log.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// How often something is seen to happen.
const ON_A_TERMINAL: Duration = Duration::from_secs(1);
/// Seldom enough to keep a log short, often enough to show that nothing hangs.
const IN_A_LOG: Duration = Duration::from_secs(30);

/// Widest status line on a terminal: longer ones would wrap, and could not be written over.
const WIDTH: usize = 78;

/// The status of one build.
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

    /// Called often; speaks when it is time.
    pub(crate) fn tick(&mut self, elapsed: Duration, doing: &str) {
        if let Some(line) = self.line(elapsed, doing) {
            print!("{line}");
            // A terminal that has gone away is no reason to stop building.
            let _ = std::io::stdout().flush();
        }
    }

    /// The last word about this build.
    pub(crate) fn end(&self, elapsed: Duration, what: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        println!(
            "{clear}{:>6.1} s  {}: {what}",
            elapsed.as_secs_f64(),
            self.name
        );
    }

    fn line(&mut self, elapsed: Duration, doing: &str) -> Option<String> {
        let every = if self.terminal {
            ON_A_TERMINAL
        } else {
            IN_A_LOG
        };
        if elapsed.saturating_sub(self.last) < every {
            return None;
        }
        self.last = elapsed;
        let line = format!("{:>6} s  {}: {doing}", elapsed.as_secs(), self.name);
        Some(if self.terminal {
            let line: String = line.chars().take(WIDTH).collect();
            format!("\r\x1b[K{line}")
        } else {
            format!("{line}\n")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(terminal: bool, seconds: u64) -> Vec<String> {
        let mut progress = Progress::to("kubelet v1.37.1".to_owned(), terminal);
        (0..seconds * 4)
            .filter_map(|tick| progress.line(Duration::from_millis(250 * tick), "compiling"))
            .collect()
    }

    #[test]
    fn a_terminal_sees_something_every_second_on_one_line() {
        let lines = spoken(true, 10);
        assert_eq!(lines.len(), 9);
        assert_eq!(
            lines.first().unwrap(),
            "\r\x1b[K     1 s  kubelet v1.37.1: compiling"
        );
        assert!(lines.iter().all(|line| !line.contains('\n')));
    }

    #[test]
    fn a_log_gets_a_plain_line_now_and_then() {
        let lines = spoken(false, 65);
        assert_eq!(
            lines,
            [
                "    30 s  kubelet v1.37.1: compiling\n",
                "    60 s  kubelet v1.37.1: compiling\n"
            ]
        );
    }

    #[test]
    fn a_long_line_is_cut_so_that_it_can_be_written_over() {
        let mut progress = Progress::to("kubelet".to_owned(), true);
        let line = progress
            .line(Duration::from_secs(2), &"é".repeat(200))
            .unwrap();
        assert_eq!(line.chars().count(), WIDTH + "\r\x1b[K".len());
    }
}

//! What the API is made with.

use std::time::Duration;

use kubevitals_model::Clock;

/// Configuration of the API. The default has the system clock.
#[derive(Debug, Clone)]
pub struct Config {
    /// How much it may take.
    pub limits: Limits,
    /// The clock: when the process started is the first resource version, and ages of answers are
    /// measured by it.
    pub clock: Clock,
}

/// How much the API may take, whatever its readers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// About how many bytes of an answer are made at a time.
    pub piece_bytes: usize,
    /// How many bytes that are no longer current may be held by readers that have not finished
    /// before further ones are turned away. At most this and one whole generation are held: what a
    /// reader was let in with grows old while it reads.
    pub outdated_bytes: usize,
    /// How many watches may be open at once.
    pub watches: usize,
    /// How many deletions are remembered: a watch that is further behind must list again.
    pub deletions: usize,
    /// How long a watch gathers changes before it writes them.
    pub gather: Duration,
    /// How often a silent watch that wants bookmarks gets one.
    pub bookmarks: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            clock: Clock::system(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // With what HTTP puts around it no more than TLS takes at a time: four full records,
            // and one write.
            piece_bytes: 63 << 10,
            outdated_bytes: 64 << 20,
            watches: 256,
            deletions: 16_384,
            gather: Duration::from_millis(100),
            bookmarks: Duration::from_mins(1),
        }
    }
}

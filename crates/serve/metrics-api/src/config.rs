//! Configuration of the API.

use std::time::Duration;

use kubevitals_model::Clock;

/// Configuration of the API. The default has the system clock.
#[derive(Debug, Clone)]
pub struct Config {
    pub limits: Limits,
    /// The clock. The start of the process is the first revision, and the age of samples is
    /// measured by it.
    pub clock: Clock,
    /// The number that distinguishes the resource versions of this process from those of other
    /// replicas; `None` takes a random one.
    pub replica: Option<u16>,
}

/// Limits that hold whatever clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The approximate size of the chunks in which a response is encoded.
    pub chunk_bytes: usize,
    /// The number of outdated bytes that unfinished responses may hold before the oldest of them is
    /// aborted for a new one; at least one whole snapshot. At most this and another snapshot are
    /// held: what a response began with becomes outdated while it is read.
    pub max_outdated_bytes: usize,
    /// The number of watches that may be open at once.
    pub max_watches: usize,
    /// The number of deletions kept. A watch that is further behind must relist.
    pub max_deletions: usize,
    /// The time for which a watch collects changes before it sends them.
    pub watch_delay: Duration,
    /// The interval of bookmarks on an idle watch that allows them.
    pub bookmark_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            clock: Clock::system(),
            replica: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // With HTTP framing no more than TLS takes at a time: four full records, one write.
            chunk_bytes: 63 << 10,
            max_outdated_bytes: 64 << 20,
            max_watches: 256,
            max_deletions: 16_384,
            watch_delay: Duration::from_millis(100),
            bookmark_interval: Duration::from_mins(1),
        }
    }
}

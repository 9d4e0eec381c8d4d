//! Configuration of the store.

use std::time::Duration;

use kubevitals_model::FirstWindow;

/// cAdvisor samples containers every 10 s: a younger one has no second sample, and its first
/// seconds are its start.
const MIN_FIRST_WINDOW: Duration = Duration::from_secs(10);

/// A kubelet may find a container a whole stretched housekeeping interval (15 s) after its start,
/// and be scraped as much later.
const MIN_LONGEST_FIRST_WINDOW: Duration = Duration::from_secs(30);

/// Kubelets sample every 10 to 15 s: a lower limit would drop the newest values there are.
const MIN_STALENESS: Duration = Duration::from_secs(30);

/// A rate over a longer window does not represent current usage.
const MIN_MAX_WINDOW: Duration = Duration::from_mins(5);

/// The rules by which samples become usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageConfig {
    /// The interval between two scrapes of a node.
    pub resolution: Duration,
    /// The time for which a value is served after its receipt if no newer one follows.
    pub staleness: Duration,
    /// The age of a container at which its average since the start is served.
    pub first_window: FirstWindow,
    /// Two samples further apart make no rate: the later one is a new first sample.
    pub max_window: Duration,
    pub extra: ExtraResources,
}

/// Resources besides CPU and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtraResources {
    /// Where kubelets report it.
    pub swap: bool,
    /// Where `/stats/summary` is scraped.
    pub ephemeral_storage: bool,
}

impl UsageConfig {
    /// Returns the defaults for a resolution: values are served for three times as long (at least
    /// 30 s), and the first window of a container is between 10 s and twice as long (at least 30
    /// s).
    pub fn new(resolution: Duration) -> Self {
        let staleness = resolution.saturating_mul(3).max(MIN_STALENESS);
        Self {
            resolution,
            staleness,
            first_window: FirstWindow {
                shortest: MIN_FIRST_WINDOW,
                longest: resolution.saturating_mul(2).max(MIN_LONGEST_FIRST_WINDOW),
            },
            max_window: MIN_MAX_WINDOW.max(staleness.saturating_mul(2)),
            extra: ExtraResources::default(),
        }
    }
}

impl Default for ExtraResources {
    /// Swap, but not ephemeral storage, which costs a second request.
    fn default() -> Self {
        Self {
            swap: true,
            ephemeral_storage: false,
        }
    }
}

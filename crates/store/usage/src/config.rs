//! What the store is told once, when it is made.

use std::time::Duration;

use kubevitals_model::FirstWindow;

/// cAdvisor looks at containers every 10 s: a younger one has no second look yet, and its first
/// seconds are its start.
const YOUNGEST: Duration = Duration::from_secs(10);

/// A kubelet may find a container a whole stretched housekeeping interval (15 s) after it started,
/// and be asked as much later.
const SHORTEST_LONGEST_FIRST_WINDOW: Duration = Duration::from_secs(30);

/// Kubelets look every 10 to 15 s: a shorter bound would drop values that are as new as any can be.
const SHORTEST_STALENESS: Duration = Duration::from_secs(30);

/// Over more than this an average says nothing about now, whatever is kept to compute it from.
const MAX_WINDOW: Duration = Duration::from_mins(5);

/// How samples become usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageConfig {
    /// How often each kubelet is asked.
    pub resolution: Duration,
    /// How long a value is served after it was received, when no newer one comes.
    pub staleness: Duration,
    /// How old a container may be for its average since its start to be served.
    pub first_window: FirstWindow,
    /// Two samples further apart than this make no rate: the later one begins anew.
    pub longest_window: Duration,
    /// What is served besides CPU and memory.
    pub extra: ExtraResources,
}

/// Resources besides CPU and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtraResources {
    /// Swap, where kubelets state it.
    pub swap: bool,
    /// Ephemeral storage, where kubelets are asked for `/stats/summary`.
    pub ephemeral_storage: bool,
}

impl UsageConfig {
    /// The rules for this resolution: values are served for three times as long (30 s at least),
    /// and a container's first average spans between 10 s and twice as long (30 s at least).
    pub fn new(resolution: Duration) -> Self {
        let staleness = resolution.saturating_mul(3).max(SHORTEST_STALENESS);
        Self {
            resolution,
            staleness,
            first_window: FirstWindow {
                shortest: YOUNGEST,
                longest: resolution
                    .saturating_mul(2)
                    .max(SHORTEST_LONGEST_FIRST_WINDOW),
            },
            longest_window: MAX_WINDOW.max(staleness.saturating_mul(2)),
            extra: ExtraResources::default(),
        }
    }
}

impl Default for ExtraResources {
    /// Swap is served wherever a kubelet states it; ephemeral storage is asked for.
    fn default() -> Self {
        Self {
            swap: true,
            ephemeral_storage: false,
        }
    }
}

//! The endpoint of a kubelet that is scraped, and how long a fallback stays in force.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::ScrapeConfig;

const SUMMARY: &str = "/stats/summary";
const CPU_AND_MEMORY_SUMMARY: &str = "/stats/summary?only_cpu_and_memory=true";
/// An endpoint that a node lacks or refuses is tried again after this time: the node may have been
/// upgraded, or access granted.
const RETRY_AFTER: Duration = Duration::from_mins(10);
/// Number of first scrapes that may lack the usage that the kubelet computes, since it or the
/// scraper was too busy.
const MAX_WARM_STARTS: u8 = 3;

/// The state of the fallback from `/metrics/resource` to `/stats/summary`.
pub(crate) struct Fallback {
    /// `/stats/summary` replaces the metrics endpoint, which the node lacks, until then.
    summary_until: Option<Instant>,
    /// `/stats/summary` is not read beside the metrics endpoint, since it was refused, until then.
    refused_until: Option<Instant>,
    /// Number of scrapes that still read `/stats/summary` for a warm start.
    warm_starts: u8,
}

impl Fallback {
    pub(crate) fn new() -> Self {
        Self {
            summary_until: None,
            refused_until: None,
            warm_starts: MAX_WARM_STARTS,
        }
    }

    /// Returns whether `/stats/summary` is read instead of the metrics endpoint.
    pub(crate) fn is_active(&self) -> bool {
        is_pending(self.summary_until)
    }

    /// Records that the node has `/stats/summary` and no metrics endpoint.
    pub(crate) fn activate(&mut self) {
        self.summary_until = Some(Instant::now() + RETRY_AFTER);
    }

    /// Records that the node has another metrics endpoint now.
    pub(crate) fn reset(&mut self) {
        self.summary_until = None;
    }

    /// Returns whether a scrape of the metrics endpoint also reads `/stats/summary`: for ephemeral
    /// storage always, for a warm start at first.
    pub(crate) fn wants_extras(&mut self, config: &ScrapeConfig) -> bool {
        let is_cold = config.warm_start && self.warm_starts > 0;
        self.warm_starts = self.warm_starts.saturating_sub(1);
        (config.ephemeral_storage || is_cold)
            && !self.is_active()
            && !is_pending(self.refused_until)
    }

    /// Records that `/stats/summary` was read beside the metrics endpoint.
    pub(crate) fn extras_read(&mut self) {
        self.warm_starts = 0;
    }

    /// Records that the kubelet refused `/stats/summary`.
    pub(crate) fn extras_refused(&mut self) {
        self.warm_starts = 0;
        self.refused_until = Some(Instant::now() + RETRY_AFTER);
    }
}

/// Returns the path of the summary, with file systems only if they are needed.
pub(crate) fn summary_path(config: &ScrapeConfig) -> &'static str {
    if config.ephemeral_storage {
        SUMMARY
    } else {
        CPU_AND_MEMORY_SUMMARY
    }
}

fn is_pending(until: Option<Instant>) -> bool {
    until.is_some_and(|until| until > Instant::now())
}

//! Modules: what a probe sends and what it expects, compiled from the configuration.
//!
//! The fields and defaults are those of blackbox_exporter, so that its users find them.

use std::time::Duration;

/// A compiled module.
#[derive(Debug, Clone)]
pub struct Module {
    /// Maximum duration of one run.
    pub timeout: Duration,
    pub prober: Prober,
}

/// How a target is probed. Each kind is in a file of its own in `probers/`, with its settings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Prober {}

//! Modules: what a probe sends and what it expects, compiled from the configuration.
//!
//! The fields and defaults are those of `blackbox_exporter`, so that its users find them.

use std::time::Duration;

use crate::Prober;

/// A compiled module.
#[derive(Debug, Clone)]
pub struct Module {
    /// Maximum duration of one run.
    pub timeout: Duration,
    pub prober: Prober,
}

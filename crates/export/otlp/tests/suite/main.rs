//! Traces of recorded pods, and their delivery to a receiver on a real socket.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod delivery;
// The same records as those of the metrics.
#[path = "../../../../serve/transition-metrics/tests/suite/lifecycles.rs"]
mod lifecycles;
mod metrics;
mod security;
mod support;
mod traces;

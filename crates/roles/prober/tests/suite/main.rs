//! The role on a simulated API server, from watches to providers.
//!
//! Nothing here sleeps: ticks come in a short interval, and tests wait for what they record, with a
//! deadline that only a hang reaches.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod cluster;
mod node;
#[path = "../../examples/own_provider.rs"]
mod own_provider;
mod points;
mod probes;
mod support;

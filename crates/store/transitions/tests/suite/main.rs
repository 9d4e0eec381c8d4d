//! Lifecycles of pods, from recordings and from disturbed streams.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod blockers;
mod causes;
mod clocks;
mod kubelets;
mod preparation;
mod properties;
mod pulls;
mod reconstruct;
mod recordings;
mod scenarios;
mod standby;
mod stats;
mod support;
mod tracker;

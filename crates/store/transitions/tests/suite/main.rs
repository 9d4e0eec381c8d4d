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
mod properties;
mod reconstruct;
mod recordings;
mod scenarios;
mod standby;
mod support;
mod tracker;

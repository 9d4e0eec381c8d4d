//! Lives of pods, from recordings and from what can happen to streams.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod hindrances;
mod properties;
mod reconstruct;
mod recordings;
mod scenarios;
mod standby;
mod support;
mod tracker;

//! Tests of the public API: samples and pods in, publications and messages out.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod binding;
mod concurrency;
mod explain;
mod harness;
mod metrics;
mod nodes;
mod pods;
mod properties;
mod publishers;
mod readiness;
mod staleness;

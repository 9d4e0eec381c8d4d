//! A virtual node on the simulated cluster, over real sockets.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod inputs;
mod node;
mod pods;
mod support;

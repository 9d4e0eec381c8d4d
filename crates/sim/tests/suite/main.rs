//! Tests of kubelets and workload from outside: over real sockets, and against what was recorded from
//! a real cluster.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod driver;
mod fleet;
mod lives;
mod recording;
mod scrape;
mod node_support;

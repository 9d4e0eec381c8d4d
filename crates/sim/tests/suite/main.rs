//! The simulated cluster from outside: over its real sockets, with raw HTTP and with kube-rs, and
//! compared with recordings of a real cluster.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod access;
mod aggregation;
mod clients;
mod cluster;
mod driver;
mod faults;
mod fleet;
mod lifecycles;
mod lists;
mod node_support;
mod recording;
mod scrape;
mod support;
mod views;
mod watches;
mod writes;

//! The server on real sockets over an invented provider, and its encodings compared with a real
//! kubelet's.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: a failure is a failed test"
)]

mod access;
mod client;
mod clients_that_leave;
mod endpoints;
mod example;
mod fixtures;
mod logs;
mod properties;
mod recorded;
mod seed;
mod sessions;
mod support;

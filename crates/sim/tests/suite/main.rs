//! The simulated API server from outside: over its real socket, with raw HTTP and with kube-rs.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod access;
mod aggregation;
mod clients;
mod faults;
mod lists;
mod support;
mod views;
mod watches;
mod writes;

//! The server on real sockets, with an API of widgets.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: a failure is a failed test"
)]

mod client;
mod cluster;
mod connections;
mod discovery;
mod identity;
mod reviews;
mod serving;
mod slow_readers;
mod support;
mod widgets;

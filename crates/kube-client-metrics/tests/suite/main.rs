//! The public face of the crate: over services in memory, under stepped time, and over real sockets
//! against the simulated cluster.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod allocations;
mod bed;
mod classify;
mod concurrency;
mod families;
mod global;
#[cfg(feature = "opentelemetry")]
mod otel;
mod requests;
mod retries;
mod sim;
mod streams;

//! The public API: on in-memory services with paused time, and over real sockets on the simulated
//! cluster.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod allocations;
mod classify;
mod concurrency;
#[cfg(feature = "runtime")]
mod controllers;
#[cfg(feature = "metrics")]
mod facade;
mod families;
mod global;
mod harness;
#[cfg(feature = "opentelemetry")]
mod otel;
mod requests;
mod retries;
mod sim;
mod streams;

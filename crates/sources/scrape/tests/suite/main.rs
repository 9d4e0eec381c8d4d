//! Scraping the kubelets of a simulated cluster, over real sockets and TLS.
//!
//! Nothing here sleeps: tests wait for calls of the sink, with a deadline that only a hang
//! reaches.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper that cannot go on should fail its test on the spot"
)]

mod faults;
mod harness;
mod hostile;
mod metrics;
mod nodes;
mod trust;

//! Scraping the kubelets of a simulated cluster, over real sockets and TLS.
//!
//! Nothing here sleeps: tests wait for what receivers are told, with a deadline that only a hang
//! reaches.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper that cannot go on should fail its test on the spot"
)]

mod bed;
mod faults;
mod nodes;
mod telling;
mod trust;

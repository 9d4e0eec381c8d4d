//! The public face of the crate: over streams in memory and under stepped time, and over real
//! sockets against the simulated cluster.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod event_watchers;
mod fake;
mod kinds;
mod kube_client;
mod metrics;
mod model;
mod outage_log;
mod protobuf;
mod recordings;
mod reflectors;
mod sim;
mod subscribers;

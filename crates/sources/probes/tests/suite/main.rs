//! Probes of servers on loopback, good and bad.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper that cannot go on should fail its test on the spot"
)]

mod cancellation;
mod dns;
mod dns_lookup;
mod documents;
mod examples;
mod exec;
mod grpc;
mod http;
mod http_faults;
mod http_redirects;
mod http_tls;
mod network;
mod scheduled;
mod support;
mod tcp;
mod tls;
mod udp;

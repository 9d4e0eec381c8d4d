//! Probes of servers on loopback, good and bad.

mod cancellation;
mod dns;
mod documents;
mod exec;
mod grpc;
mod http;
mod http_faults;
mod http_tls;
mod network;
mod scheduled;
mod support;
mod tcp;
mod tls;
mod udp;

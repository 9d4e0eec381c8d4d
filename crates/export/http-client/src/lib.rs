//! The HTTP client of exporters: connections that stay open, verified peers, tunnels through a
//! proxy, and responses of a limited size.
//!
//! It knows no protocol of a backend and retries nothing: that is the business of exporters and of
//! the sink in front of them.

mod client;
mod retry_after;

pub use client::{
    AGENT, ConnectError, HttpClient, IdentityFiles, Options, RequestError, Trust, Version,
    blocking, error_chain,
};
pub use retry_after::parse_retry_after;

//! The HTTP server that the admin server and the API server share, and the parsers of `Accept`
//! headers and query strings.
//!
//! ```text
//! Server::serve ─ accept ─► Transport::handshake ─► hyper, HTTP/1.1 or 2 ─► Handler::handle
//!    │                        fair queue, timeout      │ TrackedStream
//!    └─ connection table ◄──── ConnState ◄─────────────┴─ watchdog
//! ```
//!
//! * [`Server`] accepts connections up to [`Limits::connections`], evicts one that is silent or
//!   idle when it is full, and drains on shutdown.
//! * A [`Transport`] makes a connection of a socket: [`Plain`], or TLS by the API server. This
//!   crate has no TLS dependency of its own.
//! * A [`Handler`] responds to requests. It sees the [`Connection`] that a request arrived on.
//! * [`ConnState`] records what a connection is doing; its watchdog closes connections that exceed
//!   a timeout. hyper has a single timer for reading heads and for keep-alive, and the first must
//!   be short (slow heads are an attack) while the second must be long (Prometheus returns after a
//!   minute).
//! * `FairQueue` and `WriteBudget` keep handshakes and long responses of some clients from
//!   delaying the others ([`Limits::fair_queue`]).
//!
//! * An exchange is a request and its response. Its body is dropped and its stream reset (over
//!   HTTP/1: the connection closed) at its deadline, or when what is produced is not written within
//!   [`Limits::stall_timeout`]. The clock decides, not the body: one that nobody reads is never
//!   polled.
//! * A handler may upgrade a connection of HTTP/1.1: it responds with 101 and takes the stream from
//!   `hyper::upgrade::on`. The connection still counts, is never evicted and has no timeout any
//!   more; at the end of a drain its stream is cut.

pub mod accept;
mod conn_state;
mod connection;
mod connections;
mod exchange;
mod fair_queue;
mod head_budget;
mod limits;
pub mod query;
mod server;
mod source;
mod upgrade;
mod write_budget;

pub use conn_state::ConnState;
pub use connection::{Accepted, Connection, Handler, Plain, Transport};
pub use exchange::Delivery;
pub use fair_queue::QueueMetrics;
pub use limits::{Limits, ServerMetrics};
pub use server::Server;

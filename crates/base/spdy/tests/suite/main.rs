//! Both sides of a connection over memory, and vectors that Go wrote.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers fail by panicking"
)]

mod codec;
mod connection;
mod vectors;

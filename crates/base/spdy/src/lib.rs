//! SPDY/3.1 as Kubernetes speaks it for exec, attach and port-forward.
//!
//! The peers are written in Go, over `moby/spdystream`, and this crate follows what that does:
//! nothing is negotiated, there is no flow control but that of TCP, and a header block is a piece
//! of one zlib stream in each direction. No server for it was found in Rust: `spdystream-rs` drops
//! data when a reader is slow, `spdy-mux` is a client.
//!
//! ```text
//!                ┌► Decoder ─► pipe of a stream ─► StreamReader
//! Connection ─ io┤
//!                └─ Outbox ◄─ frames ◄──────────── StreamWriter
//! ```
//!
//! * [`frame`] and [`header`] are the codec, without I/O.
//! * A [`Connection`] accepts streams; its driver reads and writes. Each stream has a bounded
//!   buffer. While one is full, nothing more is read from the connection.
//! * An [`Outbox`] holds encoded frames up to a bound; writers wait beyond it.

mod connection;
mod dictionary;
mod error;
pub mod frame;
pub mod header;
mod outbox;
mod stream;

pub use connection::{Config, Connection};
pub use error::SpdyError;
pub use header::Headers;
pub use outbox::Outbox;
pub use stream::{PendingStream, Stream, StreamReader, StreamWriter};

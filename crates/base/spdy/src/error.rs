//! What ends a connection.

use std::io;
use std::time::Duration;

/// Why a connection ended early. All but I/O errors and the idle timeout are faults of the peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpdyError {
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("connection ended within a frame")]
    Truncated,
    #[error("control frame of version {0}, expected 3")]
    Version(u16),
    #[error("control frame of unknown type {0}")]
    UnknownType(u16),
    #[error("control frame of type {kind} has {length} bytes, the limit is {limit}")]
    FrameTooLong {
        kind: u16,
        length: usize,
        limit: usize,
    },
    #[error("malformed control frame of type {0}")]
    Malformed(u16),
    #[error("header block is not valid zlib with the dictionary of SPDY/3")]
    Zlib,
    #[error("header block inflates to more than {0} bytes")]
    HeadersTooLong(usize),
    #[error("header block has {count} headers, the limit is {limit}")]
    TooManyHeaders { count: u32, limit: usize },
    #[error("malformed header block: {0}")]
    BadHeaders(&'static str),
    #[error("the peer causes replies and does not read them")]
    Flood,
    #[error("no frame for {0:?}")]
    Idle(Duration),
    #[error("the peer has not read everything for {0:?}")]
    Unread(Duration),
}

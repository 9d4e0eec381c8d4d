//! The runtime's side of the socket of a shim.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::shim::protocol::{self, Kind};
use crate::shim::record::SOCKET_FILE;

/// A connection to a shim.
#[derive(Debug)]
pub(crate) struct Link {
    pub reader: LinkReader,
    pub writer: LinkWriter,
}

/// Receives frames.
#[derive(Debug)]
pub(crate) struct LinkReader {
    half: OwnedReadHalf,
    buffer: Vec<u8>,
}

/// Sends frames.
#[derive(Debug)]
pub(crate) struct LinkWriter(OwnedWriteHalf);

impl Link {
    /// Connects to the shim of an instance.
    pub(crate) async fn connect(folder: &Path) -> io::Result<Self> {
        // Paths of sockets are limited to 107 bytes; this one always fits.
        let folder = std::fs::File::open(folder)?;
        let path = format!("/proc/self/fd/{}/{SOCKET_FILE}", folder.as_raw_fd());
        let (reader, writer) = UnixStream::connect(path).await?.into_split();
        Ok(Self {
            reader: LinkReader {
                half: reader,
                buffer: Vec::new(),
            },
            writer: LinkWriter(writer),
        })
    }
}

impl LinkReader {
    /// The next frame; `None` at the end. Safe to cancel.
    pub(crate) async fn next(&mut self) -> io::Result<Option<(Kind, Vec<u8>)>> {
        loop {
            match protocol::decode(&mut self.buffer) {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(protocol::BadFrame) => return Err(io::Error::other("bad frame of a shim")),
            }
            if self.half.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

impl LinkWriter {
    pub(crate) async fn send(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        protocol::encode(kind, payload, &mut bytes);
        self.0.write_all(&bytes).await
    }
}

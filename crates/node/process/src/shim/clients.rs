//! The connections of a shim, and the standard input of its program.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::fds::is_temporary;
use super::protocol::{self, Kind};
use super::record::{ExitRecord, ProcessRecord};

/// Output that an attached reader has not read. A slower one is disconnected: it must not stop the
/// container.
const MAX_HELD_BYTES: usize = 1 << 20;

/// The standard input of the program.
pub(super) struct Stdin {
    pub(super) file: File,
    pub(super) held: VecDeque<u8>,
    pub(super) is_ending: bool,
}

/// A connection.
#[expect(
    clippy::struct_excessive_bools,
    reason = "what a client asked for, each on its own"
)]
pub(super) struct Client {
    pub(super) stream: UnixStream,
    pub(super) input: Vec<u8>,
    pub(super) output: VecDeque<u8>,
    pub(super) watches: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) feeds: bool,
    pub(super) is_closed: bool,
}

impl Stdin {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            held: VecDeque::new(),
            is_ending: false,
        }
    }

    /// Writes what is held; returns whether the pipe stays open.
    pub(super) fn flush(&mut self) -> bool {
        while !self.held.is_empty() {
            match self.file.write(self.held.as_slices().0) {
                Ok(count) => drop(self.held.drain(..count)),
                Err(error) if is_temporary(&error) => return true,
                Err(_) => return false,
            }
        }
        !self.is_ending
    }
}

impl Client {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            output: VecDeque::new(),
            watches: false,
            stdout: false,
            stderr: false,
            feeds: false,
            is_closed: false,
        }
    }

    pub(super) fn read(&mut self) {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Err(error) if is_temporary(&error) => {}
            Ok(0) | Err(_) => self.is_closed = true,
            Ok(count) => self
                .input
                .extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
    }

    pub(super) fn send(&mut self, kind: Kind, payload: &[u8]) {
        if self.output.len() > MAX_HELD_BYTES {
            self.is_closed = true;
            return;
        }
        protocol::encode(kind, payload, &mut self.output);
    }

    pub(super) fn report(&mut self, process: Option<&ProcessRecord>, exit: Option<&ExitRecord>) {
        if let Some(Ok(text)) = process.map(serde_json::to_vec) {
            self.send(Kind::Started, &text);
        }
        if let Some(Ok(text)) = exit.map(serde_json::to_vec) {
            self.send(Kind::Exited, &text);
        }
    }

    pub(super) fn flush(&mut self) {
        while !self.output.is_empty() && !self.is_closed {
            match self.stream.write(self.output.as_slices().0) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if is_temporary(&error) => return,
                Err(_) => self.is_closed = true,
            }
        }
    }
}

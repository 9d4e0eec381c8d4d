//! The client side of TLS on buffers that the caller owns.
//!
//! rustls' buffered connection reads 4 KiB at a time, however much has arrived, and keeps a buffer
//! for as long as it is open. A client with thousands of connections that are idle nearly all the
//! time wants neither: here received bytes lie in a [`ReceiveBuffer`] that connections share one
//! after the other, and an open connection holds its keys and nothing else.
//!
//! Nothing here does I/O. The owner of the socket fills the receive buffer, calls
//! [`UnbufferedClient::process`], and sends the output.

use std::fmt;
use std::io;

use rustls::Error;
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls_pki_types::ServerName;

use crate::ClientTls;

/// A handshake message must fit into the buffer as a whole. Certificate chains are never longer
/// than this, and records are a quarter of it.
const MAX_RECEIVE_BUFFER: usize = 80 << 10;

/// Upper bound of what a record adds to a request.
const RECORD_OVERHEAD: usize = 64;

/// Received bytes that are not processed yet.
pub struct ReceiveBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// A client connection, from the first byte on. It keeps no received bytes.
pub struct UnbufferedClient {
    connection: UnbufferedClientConnection,
    is_closed: bool,
    has_failed: bool,
    /// Number of bytes left in the receive buffer: rustls keeps offsets into them and must see them
    /// again.
    unprocessed: usize,
}

/// The state of a connection after received bytes were processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The handshake is not complete.
    Handshaking,
    /// Data can be sent and received.
    Open,
    /// The peer has closed its side with `close_notify`.
    Closed,
}

impl ReceiveBuffer {
    /// Returns a buffer of `size` bytes. It grows up to 80 KiB if a handshake needs that.
    pub fn new(size: usize) -> Self {
        Self {
            bytes: vec![0; size.clamp(1, MAX_RECEIVE_BUFFER)].into(),
            start: 0,
            end: 0,
        }
    }

    /// Drops the contents, for use by another connection.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Returns whether all received bytes are processed.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the received bytes that are not processed yet.
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the free part to read into. It is never empty; a TLS message that is too long is an
    /// error.
    pub fn spare(&mut self) -> Result<&mut [u8], io::Error> {
        if self.is_empty() {
            self.clear();
        } else if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            self.grow()?;
        }
        Ok(self.bytes.get_mut(self.end..).unwrap_or_default())
    }

    /// Marks `count` bytes of [`ReceiveBuffer::spare`] as received.
    pub fn advance(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.bytes.len());
    }

    /// Removes `count` bytes from the front.
    pub fn discard(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
    }

    fn filled_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.end).unwrap_or_default()
    }

    fn grow(&mut self) -> Result<(), io::Error> {
        if self.bytes.len() >= MAX_RECEIVE_BUFFER {
            let reason = "the peer sent a TLS message that is too long";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        bytes.resize((bytes.len() * 2).min(MAX_RECEIVE_BUFFER), 0);
        self.bytes = bytes.into();
        Ok(())
    }
}

impl UnbufferedClient {
    /// Starts a connection to a peer that is dialled by this name. The first call of
    /// [`UnbufferedClient::process`] outputs the `ClientHello`.
    pub fn new(tls: &ClientTls, peer: ServerName<'static>) -> Result<Self, Error> {
        Ok(Self {
            connection: UnbufferedClientConnection::new(tls.config(), peer)?,
            is_closed: false,
            has_failed: false,
            unprocessed: 0,
        })
    }

    /// Processes all complete records in the buffer. Decrypted data goes to `on_data`; bytes that
    /// must be sent next are appended to `output`, also if this fails: the alert for the peer.
    ///
    /// The rest of the buffer belongs to this connection. A call without it fails, and so do
    /// all calls after a failure.
    pub fn process(
        &mut self,
        buffer: &mut ReceiveBuffer,
        output: &mut Vec<u8>,
        on_data: impl FnMut(&[u8]),
    ) -> Result<Progress, Error> {
        self.check(buffer.filled().len())?;
        let progress = self.process_records(buffer, output, on_data);
        if progress.is_err() {
            self.has_failed = true;
            self.encode_alert(buffer, output);
        }
        self.unprocessed = buffer.filled().len();
        progress
    }

    /// Encrypts `plain` and appends the records to `output`. Fails before the handshake is
    /// complete.
    pub fn encrypt(&mut self, plain: &[u8], output: &mut Vec<u8>) -> Result<(), Error> {
        self.check(0)?;
        loop {
            let UnbufferedStatus { state, .. } = self.connection.process_tls_records(&mut []);
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let room = plain.len() + RECORD_OVERHEAD;
                    return append(output, room, |free| {
                        traffic
                            .encrypt(plain, free)
                            .map_err(|e| WriteError::from_encrypt(&e))
                    });
                }
                // A key update, for example.
                ConnectionState::EncodeTlsData(mut data) => {
                    append(output, 0, |free| {
                        data.encode(free).map_err(|e| WriteError::from_encode(&e))
                    })?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                _ => return Err(Error::HandshakeNotComplete),
            }
        }
    }

    /// rustls panics if bytes that it has offsets into are missing.
    fn check(&self, received: usize) -> Result<(), Error> {
        if self.has_failed {
            return Err(Error::General("the connection has failed".to_owned()));
        }
        if received < self.unprocessed {
            return Err(Error::General("a part of a record was lost".to_owned()));
        }
        Ok(())
    }

    fn process_records(
        &mut self,
        buffer: &mut ReceiveBuffer,
        output: &mut Vec<u8>,
        mut on_data: impl FnMut(&[u8]),
    ) -> Result<Progress, Error> {
        loop {
            let status = self.connection.process_tls_records(buffer.filled_mut());
            let UnbufferedStatus { mut discard, state } = status;
            let mut reached = None;
            let done = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        on_data(record.payload);
                    }
                    Ok(())
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => append(output, 0, |free| {
                    data.encode(free).map_err(|e| WriteError::from_encode(&e))
                }),
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    Ok(())
                }
                Ok(ConnectionState::BlockedHandshake) => {
                    reached = Some(Progress::Handshaking);
                    Ok(())
                }
                Ok(ConnectionState::WriteTraffic(_)) if !self.is_closed => {
                    reached = Some(Progress::Open);
                    Ok(())
                }
                Ok(
                    ConnectionState::WriteTraffic(_)
                    | ConnectionState::PeerClosed
                    | ConnectionState::Closed,
                ) => {
                    self.is_closed = true;
                    reached = Some(Progress::Closed);
                    Ok(())
                }
                Ok(other) => Err(Error::General(format!("unexpected state {other:?}"))),
                Err(error) => Err(error),
            };
            buffer.discard(discard);
            done?;
            if let Some(reached) = reached {
                return Ok(reached);
            }
        }
    }

    /// Encodes the alert that rustls queued for a failure.
    fn encode_alert(&mut self, buffer: &mut ReceiveBuffer, output: &mut Vec<u8>) {
        loop {
            let status = self.connection.process_tls_records(buffer.filled_mut());
            let UnbufferedStatus { discard, state } = status;
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else {
                return;
            };
            let encoded = append(output, 0, |free| {
                data.encode(free).map_err(|e| WriteError::from_encode(&e))
            });
            buffer.discard(discard);
            if encoded.is_err() {
                return;
            }
        }
    }
}

impl fmt::Debug for ReceiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBuffer")
            .field("filled", &(self.end - self.start))
            .field("size", &self.bytes.len())
            .finish()
    }
}

impl fmt::Debug for UnbufferedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnbufferedClient")
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}

/// The reason why nothing was written.
enum WriteError {
    /// The free space is too small; this much is required.
    InsufficientSize(usize),
    Tls(Error),
}

impl WriteError {
    fn from_encode(error: &EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(size) => Self::InsufficientSize(size.required_size),
            EncodeError::AlreadyEncoded => Self::Tls(Error::General(error.to_string())),
        }
    }

    fn from_encrypt(error: &EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(size) => Self::InsufficientSize(size.required_size),
            EncryptError::EncryptExhausted => Self::Tls(Error::EncryptError),
        }
    }
}

/// Appends what `write` puts into free space, which is enlarged to the size that it requires.
fn append(
    output: &mut Vec<u8>,
    mut room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, WriteError>,
) -> Result<(), Error> {
    let start = output.len();
    loop {
        output.resize(start + room, 0);
        let free = output.get_mut(start..).unwrap_or_default();
        match write(free) {
            Ok(count) => {
                output.truncate(start + count);
                return Ok(());
            }
            Err(WriteError::InsufficientSize(required)) if required > room => room = required,
            Err(WriteError::InsufficientSize(_)) => {
                output.truncate(start);
                return Err(Error::EncryptError);
            }
            Err(WriteError::Tls(error)) => {
                output.truncate(start);
                return Err(error);
            }
        }
    }
}

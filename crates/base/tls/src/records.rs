//! The client's side of TLS over buffers that are lent.
//!
//! rustls' ordinary connection reads 4 KiB at a time, however much has arrived, and keeps a buffer
//! for as long as it is open. Who holds thousands of connections that are silent nearly always
//! wants neither: here the bytes of the peer lie in an [`Inbox`] that serves one connection after
//! the other, and an open connection holds its keys and nothing else.
//!
//! Nothing here reads or writes. Whoever has the socket fills the inbox, calls
//! [`ClientRecords::take_in`], and sends what was put in the outbox.

use std::fmt;
use std::io;

use rustls::Error;
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls_pki_types::ServerName;

use crate::ClientTls;

/// A handshake message must lie in the inbox as a whole; chains of certificates beyond this are
/// nobody's. Records are a quarter of it.
const MAX_INBOX: usize = 80 << 10;

/// A request and its record fit into this much more than the request.
const RECORD_OVERHEAD: usize = 64;

/// Bytes of a peer that were not taken in yet.
pub struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// A connection, from its first byte on. It keeps no bytes of the peer.
pub struct ClientRecords {
    connection: UnbufferedClientConnection,
    has_ended: bool,
    has_failed: bool,
    /// Bytes that were left in the inbox: rustls knows places in them, and must see them again.
    left: usize,
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The handshake goes on.
    Handshaking,
    /// Both sides may talk.
    Open,
    /// The peer said that it will say no more.
    Ended,
}

impl Inbox {
    /// One with room for so many bytes at first. It grows where a handshake needs that, up to 80
    /// KiB.
    pub fn new(size: usize) -> Self {
        Self {
            bytes: vec![0; size.clamp(1, MAX_INBOX)].into(),
            start: 0,
            end: 0,
        }
    }

    /// Forgets what is in it, for another connection.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Whether all was taken in.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// What was received and not taken in yet.
    pub fn received(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Where to put what the peer sends. It is never empty, unless the peer sends what no peer may.
    pub fn room(&mut self) -> Result<&mut [u8], io::Error> {
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

    /// So many bytes were put there.
    pub fn filled(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.bytes.len());
    }

    /// Takes away bytes from the front.
    pub fn discard(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
    }

    fn received_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.end).unwrap_or_default()
    }

    fn grow(&mut self) -> Result<(), io::Error> {
        if self.bytes.len() >= MAX_INBOX {
            let why = "the peer sends a TLS message that is too long";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        bytes.resize((bytes.len() * 2).min(MAX_INBOX), 0);
        self.bytes = bytes.into();
        Ok(())
    }
}

impl ClientRecords {
    /// Begins a connection to a peer that is dialled by this name. [`ClientRecords::take_in`] has
    /// the first thing to send.
    pub fn new(tls: &ClientTls, peer: ServerName<'static>) -> Result<Self, Error> {
        Ok(Self {
            connection: UnbufferedClientConnection::new(tls.config(), peer)?,
            has_ended: false,
            has_failed: false,
            left: 0,
        })
    }

    /// Takes in all whole records in the inbox. What the peer says goes to `said`; what is to be
    /// sent, before anything else is done, is appended to `outbox`. That is also true of an error:
    /// the peer is told why.
    ///
    /// What is left in the inbox belongs to this connection. A call without it fails, and so do all
    /// calls after a failure.
    pub fn take_in(
        &mut self,
        inbox: &mut Inbox,
        outbox: &mut Vec<u8>,
        said: impl FnMut(&[u8]),
    ) -> Result<Progress, Error> {
        self.check(inbox.received().len())?;
        let taken = self.process(inbox, outbox, said);
        if taken.is_err() {
            self.has_failed = true;
            self.alert(inbox, outbox);
        }
        self.left = inbox.received().len();
        taken
    }

    /// Appends to `outbox` what says `plain` to the peer, once the connection is open.
    pub fn say(&mut self, plain: &[u8], outbox: &mut Vec<u8>) -> Result<(), Error> {
        self.check(0)?;
        loop {
            let UnbufferedStatus { state, .. } = self.connection.process_tls_records(&mut []);
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let room = plain.len() + RECORD_OVERHEAD;
                    return append(outbox, room, |free| {
                        traffic
                            .encrypt(plain, free)
                            .map_err(|e| Short::from_encrypt(&e))
                    });
                }
                // New keys, for one.
                ConnectionState::EncodeTlsData(mut data) => {
                    append(outbox, 0, |free| {
                        data.encode(free).map_err(|e| Short::from_encode(&e))
                    })?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                _ => return Err(Error::HandshakeNotComplete),
            }
        }
    }

    /// rustls panics where bytes that it knows of are missing.
    fn check(&self, received: usize) -> Result<(), Error> {
        if self.has_failed {
            return Err(Error::General("the connection has failed".to_owned()));
        }
        if received < self.left {
            return Err(Error::General("a part of a record was lost".to_owned()));
        }
        Ok(())
    }

    fn process(
        &mut self,
        inbox: &mut Inbox,
        outbox: &mut Vec<u8>,
        mut said: impl FnMut(&[u8]),
    ) -> Result<Progress, Error> {
        loop {
            let status = self.connection.process_tls_records(inbox.received_mut());
            let UnbufferedStatus { mut discard, state } = status;
            let mut reached = None;
            let done = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        said(record.payload);
                    }
                    Ok(())
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => append(outbox, 0, |free| {
                    data.encode(free).map_err(|e| Short::from_encode(&e))
                }),
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    Ok(())
                }
                Ok(ConnectionState::BlockedHandshake) => {
                    reached = Some(Progress::Handshaking);
                    Ok(())
                }
                Ok(ConnectionState::WriteTraffic(_)) if !self.has_ended => {
                    reached = Some(Progress::Open);
                    Ok(())
                }
                Ok(
                    ConnectionState::WriteTraffic(_)
                    | ConnectionState::PeerClosed
                    | ConnectionState::Closed,
                ) => {
                    self.has_ended = true;
                    reached = Some(Progress::Ended);
                    Ok(())
                }
                Ok(other) => Err(Error::General(format!("unexpected state {other:?}"))),
                Err(error) => Err(error),
            };
            inbox.discard(discard);
            done?;
            if let Some(reached) = reached {
                return Ok(reached);
            }
        }
    }

    /// Why a connection fails was queued as an alert.
    fn alert(&mut self, inbox: &mut Inbox, outbox: &mut Vec<u8>) {
        loop {
            let status = self.connection.process_tls_records(inbox.received_mut());
            let UnbufferedStatus { discard, state } = status;
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else {
                return;
            };
            let encoded = append(outbox, 0, |free| {
                data.encode(free).map_err(|e| Short::from_encode(&e))
            });
            inbox.discard(discard);
            if encoded.is_err() {
                return;
            }
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("received", &(self.end - self.start))
            .field("size", &self.bytes.len())
            .finish()
    }
}

impl fmt::Debug for ClientRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRecords")
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

/// Why nothing was written.
enum Short {
    /// There is too little room: this much is needed.
    Needs(usize),
    Error(Error),
}

impl Short {
    fn from_encode(error: &EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(size) => Self::Needs(size.required_size),
            EncodeError::AlreadyEncoded => Self::Error(Error::General(error.to_string())),
        }
    }

    fn from_encrypt(error: &EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(size) => Self::Needs(size.required_size),
            EncryptError::EncryptExhausted => Self::Error(Error::EncryptError),
        }
    }
}

/// Appends what is written into free room, of which there must be as much as the writer says it
/// needs.
fn append(
    outbox: &mut Vec<u8>,
    mut room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Short>,
) -> Result<(), Error> {
    let start = outbox.len();
    loop {
        outbox.resize(start + room, 0);
        let free = outbox.get_mut(start..).unwrap_or_default();
        match write(free) {
            Ok(count) => {
                outbox.truncate(start + count);
                return Ok(());
            }
            // More than before, or it would not have been too little.
            Err(Short::Needs(more)) if more > room => room = more,
            Err(Short::Needs(_)) => {
                outbox.truncate(start);
                return Err(Error::EncryptError);
            }
            Err(Short::Error(error)) => {
                outbox.truncate(start);
                return Err(error);
            }
        }
    }
}

//! DNS messages: queries are encoded, answers decoded.
//!
//! Written here, because hickory-proto brings 26 crates that the tree does not have (idna and ICU
//! for names of other scripts, url), one of them in a second version, for one query and one answer.
//! The size of all that is decoded is bounded by the size of the message, which is at most 64 KiB,
//! and names do not loop.

use thiserror::Error;

use super::kinds::{DnsClass, DnsType};
use super::name::{self, NameError};
use super::record::Record;
use super::wire::Reader;

/// A query, without its identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// In the form of the wire.
    name: Vec<u8>,
    /// In the form of zone files.
    text: String,
    kind: DnsType,
    class: DnsClass,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub(crate) id: u16,
    pub(crate) is_response: bool,
    pub(crate) is_truncated: bool,
    pub(crate) rcode: u16,
    /// The name, type and class of the question.
    question: Option<(String, DnsType, DnsClass)>,
    pub(crate) answers: Vec<Record>,
    pub(crate) authority: Vec<Record>,
    pub(crate) additional: Vec<Record>,
}

/// A message that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("the message ends early")]
    Short,
    #[error("a name is too long, or its compression is invalid")]
    Name,
    #[error("the data of a record do not have its length")]
    Record,
}

const FLAG_RESPONSE: u16 = 1 << 15;
const FLAG_TRUNCATED: u16 = 1 << 9;
const FLAG_RECURSION_DESIRED: u16 = 1 << 8;

impl Question {
    pub(crate) fn new(name: &str, kind: DnsType, class: DnsClass) -> Result<Self, NameError> {
        let wire = name::encode(name)?;
        let text = name::read(&mut Reader::new(&wire)).map_err(|_| NameError::TooLong)?;
        Ok(Self {
            name: wire,
            text,
            kind,
            class,
        })
    }

    /// Encodes a query.
    pub(crate) fn encode(&self, id: u16, is_recursion_desired: bool) -> Vec<u8> {
        let flags = if is_recursion_desired {
            FLAG_RECURSION_DESIRED
        } else {
            0
        };
        let mut message = Vec::with_capacity(self.name.len().saturating_add(16));
        // One question, and no records.
        for field in [id, flags, 1, 0, 0, 0] {
            message.extend_from_slice(&field.to_be_bytes());
        }
        message.extend_from_slice(&self.name);
        message.extend_from_slice(&self.kind.0.to_be_bytes());
        message.extend_from_slice(&self.class.0.to_be_bytes());
        message
    }

    /// Returns whether a message answers this query. Servers leave the question out of some errors.
    pub(crate) fn is_answered_by(&self, message: &Message, id: u16) -> bool {
        let is_same = match &message.question {
            None => message.rcode != 0,
            Some((name, kind, class)) => {
                name.eq_ignore_ascii_case(&self.text) && (*kind, *class) == (self.kind, self.class)
            }
        };
        message.is_response && message.id == id && is_same
    }
}

impl Message {
    /// Decodes a message. What is missing at the end of one that is truncated is left out.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let id = reader.u16()?;
        let flags = reader.u16()?;
        let questions = reader.u16()?;
        let counts = [reader.u16()?, reader.u16()?, reader.u16()?];
        let mut message = Self {
            id,
            is_response: flags & FLAG_RESPONSE != 0,
            is_truncated: flags & FLAG_TRUNCATED != 0,
            rcode: flags & 0xf,
            question: None,
            answers: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
        };
        for _ in 0..questions {
            let name = name::read(&mut reader)?;
            let kind = DnsType(reader.u16()?);
            let class = DnsClass(reader.u16()?);
            message.question.get_or_insert((name, kind, class));
        }
        let read = message.read_records(&mut reader, counts);
        if message.is_truncated {
            return Ok(message);
        }
        read.map(|()| message)
    }

    /// Returns all records of a message as text, for tests.
    #[doc(hidden)]
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let sections = [&self.answers, &self.authority, &self.additional];
        let records = sections.into_iter().flatten();
        records.map(|record| record.text.as_str())
    }

    fn read_records(
        &mut self,
        reader: &mut Reader<'_>,
        counts: [u16; 3],
    ) -> Result<(), DecodeError> {
        let sections = [&mut self.answers, &mut self.authority, &mut self.additional];
        for (section, count) in sections.into_iter().zip(counts) {
            for _ in 0..count {
                section.push(Record::read(reader)?);
            }
        }
        Ok(())
    }
}

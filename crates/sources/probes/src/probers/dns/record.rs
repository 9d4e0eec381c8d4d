//! Records of DNS messages, as text.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::kinds::{DnsClass, DnsType};
use super::message::DecodeError;
use super::name;
use super::wire::Reader;
use crate::run::hex;

/// A record, as text for rules, and what the prober itself needs of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// As in zone files, with tabs.
    pub(crate) text: String,
    pub(crate) address: Option<IpAddr>,
    /// The serial number of a SOA record.
    pub(crate) serial: Option<u32>,
}

impl Record {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let owner = name::read(reader)?;
        let kind = DnsType(reader.u16()?);
        let class = DnsClass(reader.u16()?);
        let ttl = reader.u32()?;
        let length = usize::from(reader.u16()?);
        let mut data = *reader;
        // Also checks that the message is as long.
        reader.take(length)?;
        let mut record = Self {
            text: format!("{owner}\t{ttl}\t{class}\t{kind}\t"),
            address: None,
            serial: None,
        };
        record.read_data(&mut data, kind, length)?;
        if data.position() != reader.position() {
            return Err(DecodeError::Record);
        }
        Ok(record)
    }

    fn read_data(
        &mut self,
        data: &mut Reader<'_>,
        kind: DnsType,
        length: usize,
    ) -> Result<(), DecodeError> {
        let end = data.position().saturating_add(length);
        match kind {
            DnsType::A => self.set_address(Ipv4Addr::from(data.u32()?)),
            DnsType::AAAA => self.set_address(Ipv6Addr::from(data.u128()?)),
            DnsType::NS | DnsType::CNAME | DnsType::PTR | DnsType::DNAME => {
                self.text.push_str(&name::read(data)?);
            }
            DnsType::MX => {
                let preference = data.u16()?;
                self.push(format_args!("{preference} {}", name::read(data)?));
            }
            DnsType::SRV => {
                let [priority, weight, port] = [data.u16()?, data.u16()?, data.u16()?];
                let target = name::read(data)?;
                self.push(format_args!("{priority} {weight} {port} {target}"));
            }
            DnsType::SOA => {
                let server = name::read(data)?;
                let person = name::read(data)?;
                let serial = data.u32()?;
                self.serial = Some(serial);
                self.push(format_args!("{server} {person} {serial}"));
                for _ in 0..4 {
                    let seconds = data.u32()?;
                    self.push(format_args!(" {seconds}"));
                }
            }
            DnsType::TXT | DnsType::SPF | DnsType::HINFO => {
                let mut separator = "";
                while data.position() < end {
                    let length = data.byte()?;
                    self.text.push_str(separator);
                    self.push_quoted(data.take(usize::from(length))?);
                    separator = " ";
                }
            }
            DnsType::CAA => {
                let flags = data.byte()?;
                let length = data.byte()?;
                let tag = data.take(usize::from(length))?.escape_ascii();
                self.push(format_args!("{flags} {tag} "));
                let value = end.checked_sub(data.position());
                self.push_quoted(data.take(value.ok_or(DecodeError::Record)?)?);
            }
            // The form of RFC 3597 for types without one of their own.
            _ => {
                let bytes = hex(data.take(length)?);
                self.push(format_args!("\\# {length} {bytes}"));
            }
        }
        Ok(())
    }

    fn set_address(&mut self, address: impl Into<IpAddr>) {
        let address = address.into();
        self.address = Some(address);
        self.push(format_args!("{address}"));
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        let _never_fails = self.text.write_fmt(text);
    }

    fn push_quoted(&mut self, bytes: &[u8]) {
        self.text.push('"');
        for &byte in bytes {
            match byte {
                b'"' | b'\\' => {
                    self.text.push('\\');
                    self.text.push(char::from(byte));
                }
                b' '..=b'~' => self.text.push(char::from(byte)),
                _ => name::push_decimal(&mut self.text, byte),
            }
        }
        self.text.push('"');
    }
}

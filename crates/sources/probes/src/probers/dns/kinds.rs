//! Types, classes and response codes, by name and number.

use std::fmt;
use std::str::FromStr;

use crate::SettingsError;

/// A type of records, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DnsType(pub u16);

/// A class of records, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DnsClass(pub u16);

impl DnsType {
    pub const A: Self = Self(1);
    pub const NS: Self = Self(2);
    pub const CNAME: Self = Self(5);
    pub const SOA: Self = Self(6);
    pub const PTR: Self = Self(12);
    pub const HINFO: Self = Self(13);
    pub const MX: Self = Self(15);
    pub const TXT: Self = Self(16);
    pub const AAAA: Self = Self(28);
    pub const SRV: Self = Self(33);
    pub const DNAME: Self = Self(39);
    pub const SPF: Self = Self(99);
    pub const ANY: Self = Self(255);
    pub const CAA: Self = Self(257);
}

impl DnsClass {
    pub const IN: Self = Self(1);
}

/// The types of records that have a name here; others are `TYPE65280`, by RFC 3597.
const TYPES: [(&str, u16); 25] = [
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", 12),
    ("HINFO", 13),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", 28),
    ("SRV", 33),
    ("NAPTR", 35),
    ("DNAME", 39),
    ("OPT", 41),
    ("DS", 43),
    ("SSHFP", 44),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("NSEC3", 50),
    ("TLSA", 52),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("SPF", 99),
    ("ANY", 255),
    ("CAA", 257),
];

const CLASSES: [(&str, u16); 5] = [("IN", 1), ("CH", 3), ("HS", 4), ("NONE", 254), ("ANY", 255)];

impl FromStr for DnsType {
    type Err = SettingsError;

    /// Parses a name, such as `AAAA` or `TYPE28`.
    fn from_str(name: &str) -> Result<Self, SettingsError> {
        number(name, &TYPES, "TYPE", "query_type").map(Self)
    }
}

impl FromStr for DnsClass {
    type Err = SettingsError;

    /// Parses a name, such as `IN` or `CLASS1`.
    fn from_str(name: &str) -> Result<Self, SettingsError> {
        number(name, &CLASSES, "CLASS", "query_class").map(Self)
    }
}

impl fmt::Display for DnsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TYPES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

impl fmt::Display for DnsClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CLASSES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "CLASS{}", self.0),
        }
    }
}

fn number(
    name: &str,
    known: &[(&str, u16)],
    prefix: &str,
    setting: &'static str,
) -> Result<u16, SettingsError> {
    let upper = name.to_ascii_uppercase();
    let known = known.iter().find(|(own, _)| *own == upper);
    known
        .map(|(_, number)| *number)
        .or_else(|| upper.strip_prefix(prefix)?.parse().ok())
        .ok_or_else(|| SettingsError::Invalid {
            setting,
            problem: format!("{name:?} is not known"),
        })
}

const RCODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
    "NXRRSET", "NOTAUTH", "NOTZONE",
];

/// Returns a response code by its name, such as `NXDOMAIN`.
pub(crate) fn rcode(name: &str) -> Option<u16> {
    let position = RCODES.iter().position(|known| *known == name)?;
    u16::try_from(position).ok()
}

/// Returns the name of a response code.
pub(crate) fn rcode_name(rcode: u16) -> String {
    let name = RCODES.get(usize::from(rcode));
    name.map_or_else(|| format!("RCODE{rcode}"), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_registry() {
        for (name, number) in TYPES {
            assert_eq!(name.parse::<DnsType>().unwrap(), DnsType(number));
            assert_eq!(DnsType(number).to_string(), name);
        }
        assert_eq!("type28".parse::<DnsType>().unwrap(), DnsType::AAAA);
        assert_eq!(DnsType(65280).to_string(), "TYPE65280");
        assert_eq!("CLASS1".parse::<DnsClass>().unwrap(), DnsClass::IN);
        assert!("TYPE65536".parse::<DnsType>().is_err());
        assert!("HOST".parse::<DnsType>().is_err());
        assert_eq!(rcode("NXDOMAIN"), Some(3));
        assert_eq!(rcode_name(3), "NXDOMAIN");
        assert_eq!(rcode_name(23), "RCODE23");
    }
}

//! `dns`: a query, sent to the target.

use std::fmt;
use std::str::FromStr;

use regex::bytes::Regex;

use crate::{NetworkSettings, ProbeTls, SettingsError};

/// The settings of `dns`.
#[derive(Debug, Clone)]
pub struct DnsSettings {
    pub query_name: String,
    pub query_type: DnsType,
    pub query_class: DnsClass,
    pub recursion_desired: bool,
    /// `transport_protocol: tcp`. A truncated answer over UDP is asked for again over TCP.
    pub tcp: bool,
    pub dns_over_tls: bool,
    pub tls_config: ProbeTls,
    /// Valid response codes; only NOERROR if empty. [`DnsSettings::rcode`] has their names.
    pub valid_rcodes: Vec<u16>,
    pub validate_answer_rrs: RecordRules,
    pub validate_authority_rrs: RecordRules,
    pub validate_additional_rrs: RecordRules,
    pub network: NetworkSettings,
}

/// What the records of a section must be like. A record is matched in the form of zone files, with
/// tabs: `example.com.	300	IN	A	192.0.2.1`.
#[derive(Debug, Clone, Default)]
pub struct RecordRules {
    pub fail_if_matches_regexp: Vec<Regex>,
    /// Fails when every record matches one of these. (blackbox_exporter does the reverse.)
    pub fail_if_all_match_regexp: Vec<Regex>,
    /// Fails when a record matches none of these, or there is no record.
    pub fail_if_not_matches_regexp: Vec<Regex>,
    /// Fails when no record matches any of these.
    pub fail_if_none_matches_regexp: Vec<Regex>,
}

/// A type of records, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DnsType(pub u16);

/// A class of records, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DnsClass(pub u16);

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

impl DnsType {
    pub const A: Self = Self(1);
    pub const AAAA: Self = Self(28);
    pub const ANY: Self = Self(255);
}

impl DnsClass {
    pub const IN: Self = Self(1);
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            query_name: String::new(),
            query_type: DnsType::ANY,
            query_class: DnsClass::IN,
            recursion_desired: true,
            tcp: false,
            dns_over_tls: false,
            tls_config: ProbeTls::default(),
            valid_rcodes: Vec::new(),
            validate_answer_rrs: RecordRules::default(),
            validate_authority_rrs: RecordRules::default(),
            validate_additional_rrs: RecordRules::default(),
            network: NetworkSettings::default(),
        }
    }
}

impl DnsSettings {
    /// Returns a response code by its name, such as `NXDOMAIN`.
    pub fn rcode(name: &str) -> Option<u16> {
        const NAMES: [&str; 11] = [
            "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN",
            "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE",
        ];
        let position = NAMES.iter().position(|known| *known == name)?;
        u16::try_from(position).ok()
    }
}

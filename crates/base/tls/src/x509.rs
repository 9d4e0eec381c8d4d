//! Fields of certificates for status pages and error messages.
//!
//! Trust is never decided by them: webpki does that. The certificate may be malicious, so all text
//! is bounded and free of control characters.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// Maximum number of names of one certificate.
const MAX_NAMES: usize = 16;
/// Maximum number of characters of one name.
const MAX_NAME_CHARS: usize = 100;

/// Fields of a certificate, bounded in size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The subject, as in `CN=system:node:worker-1, O=system:nodes`.
    pub subject: String,
    /// The authority that signed it, in the same form.
    pub issuer: String,
    /// In hexadecimal digits.
    pub serial_number: String,
    /// The first DNS names and addresses that it is for.
    pub names: Vec<String>,
    /// Number of further names.
    pub more_names: usize,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    pub is_authority: bool,
}

impl CertificateInfo {
    /// Parses a DER certificate.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names = Vec::new();
        let mut more_names = 0;
        if let Ok(Some(extension)) = certificate.subject_alternative_name() {
            for name in extension
                .value
                .general_names
                .iter()
                .filter_map(printable_name)
            {
                if names.len() < MAX_NAMES {
                    names.push(name);
                } else {
                    more_names += 1;
                }
            }
        }
        Some(Self {
            subject: bounded(&certificate.subject().to_string()),
            issuer: bounded(&certificate.issuer().to_string()),
            serial_number: bounded(&format!("{:x}", certificate.serial)),
            names,
            more_names,
            not_before: system_time(certificate.validity().not_before)?,
            not_after: system_time(certificate.validity().not_after)?,
            is_authority: certificate.is_ca(),
        })
    }
}

/// Formats a time as RFC 3339 in UTC, to the second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
    };
    match ASN1Time::from_timestamp(seconds) {
        Ok(time) => {
            let time = time.to_datetime();
            let (hour, minute, second) = time.to_hms();
            format!(
                "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
                time.year(),
                u8::from(time.month()),
                time.day(),
            )
        }
        Err(_) => format!("{seconds} seconds after 1970"),
    }
}

/// Joins names for a message: at most eight, then a count.
pub(crate) fn listing<'a>(names: impl IntoIterator<Item = &'a str>, more: usize) -> String {
    const SHOWN: usize = 8;
    let mut names = names.into_iter();
    let text = names.by_ref().take(SHOWN).collect::<Vec<_>>().join(", ");
    let rest = names.count().saturating_add(more);
    if rest == 0 {
        text
    } else {
        format!("{text} and {rest} more")
    }
}

/// Shortens text from a certificate and replaces control characters.
pub(crate) fn bounded(text: &str) -> String {
    let mut safe: String = text
        .chars()
        .take(MAX_NAME_CHARS)
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect();
    if text.chars().nth(MAX_NAME_CHARS).is_some() {
        safe.push('…');
    }
    safe
}

fn printable_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(bounded(name)),
        GeneralName::IPAddress(octets) => {
            let address = <[u8; 4]>::try_from(*octets)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

fn system_time(time: ASN1Time) -> Option<SystemTime> {
    let seconds = Duration::from_secs(time.timestamp().unsigned_abs());
    if time.timestamp() < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(512)
        })]

        #[test]
        fn damaged_certificates_never_panic(
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            length in any::<prop::sample::Index>(),
        ) {
            let names = ["worker-1", "10.0.0.7"].map(str::to_owned);
            let mut der = rcgen::generate_simple_self_signed(names).unwrap().cert.der().to_vec();
            for (index, byte) in damage {
                let index = index.index(der.len());
                der[index] = byte;
            }
            let _ = CertificateInfo::parse(&der);
            let _ = CertificateInfo::parse(&der[..length.index(der.len())]);
        }
    }

    #[test]
    fn times_are_formatted_as_rfc3339() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(1_709_210_096), "2024-02-29T12:34:56Z");
        assert_eq!(
            rfc3339(UNIX_EPOCH - Duration::from_secs(1)),
            "1969-12-31T23:59:59Z"
        );
        assert_eq!(at(1 << 60), "1152921504606846976 seconds after 1970");
    }

    #[test]
    fn lists_and_names_are_bounded() {
        let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
        assert_eq!(
            listing(names.iter().map(String::as_str), 5),
            "n0, n1, n2, n3, n4, n5, n6, n7 and 17 more"
        );
        assert_eq!(bounded("a\nb\u{1b}[31m"), "a\u{fffd}b\u{fffd}[31m");
        assert_eq!(
            bounded(&"x".repeat(5000)).chars().count(),
            MAX_NAME_CHARS + 1
        );
    }

    #[test]
    fn garbage_is_not_parsed() {
        assert_eq!(CertificateInfo::parse(b"\x30\x03\x02\x01\x01"), None);
    }
}

//! TLS versions, cipher suites and key exchange: `--tls-min-version`, `--tls-cipher-suites` and
//! `--tls-curve-preferences`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::NamedGroup;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use crate::TlsError;
use crate::provider::{own_provider, shared_provider};

/// The minimum TLS version. 1.3 is always preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinTlsVersion {
    #[default]
    Tls12,
    Tls13,
}

/// The TLS 1.2 suites to allow, from a list of IANA or Go names.
///
/// As in Go servers, the list restricts TLS 1.2 only: the suites of TLS 1.3 are all secure and stay
/// enabled. A list without any suite of TLS 1.2 therefore disables TLS 1.2. The order of the list
/// has no meaning.
///
/// Hardening guides for Kubernetes list suites that Go supports and this program does not, because
/// they lack forward secrecy or authenticated encryption. Such names are accepted, so that existing
/// manifests work, and returned by [`CipherSuites::unsupported`] for a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CipherSuites {
    given: String,
    allowed: Vec<&'static str>,
    unsupported: Vec<&'static str>,
}

/// The key exchange groups to allow, from a list of the numbers that Go's `CurveID` and TLS use.
///
/// As in Go, the order of the list has no meaning. A group that exists and is not supported is
/// accepted and returned by [`KeyExchangeGroups::unsupported`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyExchangeGroups {
    allowed: Vec<NamedGroup>,
    unsupported: Vec<NamedGroup>,
}

/// What a configuration may negotiate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsPolicy {
    min_version: MinTlsVersion,
    is_tls12_only: bool,
    cipher_suites: Option<CipherSuites>,
    key_exchange: Option<KeyExchangeGroups>,
}

impl FromStr for MinTlsVersion {
    type Err = TlsError;

    fn from_str(value: &str) -> Result<Self, TlsError> {
        match value {
            "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            other => Err(TlsError::MinVersion {
                value: excerpt(other),
            }),
        }
    }
}

impl fmt::Display for MinTlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "VersionTLS12",
            Self::Tls13 => "VersionTLS13",
        })
    }
}

impl CipherSuites {
    /// Returns the listed suites that exist but are not supported.
    pub fn unsupported(&self) -> &[&'static str] {
        &self.unsupported
    }

    fn allows_tls12(&self) -> bool {
        self.allowed
            .iter()
            .any(|name| SUPPORTED_TLS12.contains(name))
    }
}

impl FromStr for CipherSuites {
    type Err = TlsError;

    fn from_str(list: &str) -> Result<Self, TlsError> {
        let mut suites = Self {
            given: excerpt(list),
            allowed: Vec::new(),
            unsupported: Vec::new(),
        };
        for name in list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            let canonical = match name {
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => {
                    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
                }
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => {
                    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
                }
                other => other,
            };
            let find = |names: &[&'static str]| names.iter().copied().find(|n| *n == canonical);
            if let Some(known) = find(SUPPORTED_TLS12).or_else(|| find(SUPPORTED_TLS13)) {
                suites.allowed.push(known);
            } else if let Some(known) = find(UNSUPPORTED) {
                suites.unsupported.push(known);
            } else {
                return Err(TlsError::UnknownCipherSuite {
                    name: excerpt(name),
                    example: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
                });
            }
        }
        if suites.allowed.is_empty() {
            return Err(TlsError::NoCipherSuite {
                given: suites.given,
                usable: [SUPPORTED_TLS12, SUPPORTED_TLS13].concat().join(", "),
            });
        }
        Ok(suites)
    }
}

impl fmt::Display for CipherSuites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.allowed.join(","))
    }
}

impl KeyExchangeGroups {
    /// Returns the numbers in the list that exist but are not supported.
    pub fn unsupported(&self) -> impl Iterator<Item = u16> {
        self.unsupported.iter().map(|group| u16::from(*group))
    }
}

impl FromStr for KeyExchangeGroups {
    type Err = TlsError;

    fn from_str(list: &str) -> Result<Self, TlsError> {
        let supported = || aws_lc_rs::ALL_KX_GROUPS.iter().map(|group| group.name());
        let usable = || {
            let numbers = supported().map(|group| u16::from(group).to_string());
            numbers.collect::<Vec<_>>().join(", ")
        };
        let mut groups = Self {
            allowed: Vec::new(),
            unsupported: Vec::new(),
        };
        let items = list.split(',').map(str::trim);
        for item in items.filter(|item| !item.is_empty()) {
            let group = item.parse::<u16>().map(NamedGroup::from);
            match group {
                Ok(group) if supported().any(|own| own == group) => groups.allowed.push(group),
                Ok(group) if !matches!(group, NamedGroup::Unknown(_)) => {
                    groups.unsupported.push(group);
                }
                _ => {
                    return Err(TlsError::UnknownKeyExchange {
                        item: excerpt(item),
                        usable: usable(),
                    });
                }
            }
        }
        if groups.allowed.is_empty() {
            return Err(TlsError::NoKeyExchange {
                given: excerpt(list),
                usable: usable(),
            });
        }
        Ok(groups)
    }
}

impl TlsPolicy {
    /// Creates a policy from the two flags. Without a list the recommended suites are enabled.
    pub fn new(min_version: MinTlsVersion, cipher_suites: Option<CipherSuites>) -> Self {
        Self {
            min_version,
            is_tls12_only: false,
            cipher_suites,
            key_exchange: None,
        }
    }

    /// Allows these key exchange groups only.
    #[must_use]
    pub fn with_key_exchange(mut self, groups: Option<KeyExchangeGroups>) -> Self {
        self.key_exchange = groups;
        self
    }

    /// Allows TLS 1.2 alone, whatever the minimum: for probes of what a server supports.
    #[must_use]
    pub fn with_tls12_only(mut self) -> Self {
        self.is_tls12_only = true;
        self
    }

    /// Returns what was listed and is left out, as it is not supported.
    pub fn unsupported(&self) -> Vec<String> {
        let suites = self
            .cipher_suites
            .iter()
            .flat_map(CipherSuites::unsupported);
        let groups = self
            .key_exchange
            .iter()
            .flat_map(KeyExchangeGroups::unsupported);
        let suites = suites.map(ToString::to_string);
        suites
            .chain(groups.map(|group| group.to_string()))
            .collect()
    }

    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        static NEWEST: [&SupportedProtocolVersion; 1] = [&TLS13];
        static OLDEST: [&SupportedProtocolVersion; 1] = [&TLS12];
        if self.is_tls12_only {
            return &OLDEST;
        }
        let tls12 = self.min_version == MinTlsVersion::Tls12
            && self
                .cipher_suites
                .as_ref()
                .is_none_or(CipherSuites::allows_tls12);
        if tls12 { &BOTH } else { &NEWEST }
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        if self.cipher_suites.is_none() && self.key_exchange.is_none() {
            return Arc::clone(shared_provider());
        }
        let mut provider = own_provider();
        if let Some(suites) = &self.cipher_suites {
            provider.cipher_suites.retain(|suite| match suite {
                SupportedCipherSuite::Tls13(_) => true,
                SupportedCipherSuite::Tls12(suite) => suite
                    .common
                    .suite
                    .as_str()
                    .is_some_and(|name| suites.allowed.contains(&name)),
            });
        }
        if let Some(groups) = &self.key_exchange {
            // All groups of the library: some are supported and not enabled by default.
            let all = aws_lc_rs::ALL_KX_GROUPS.iter().copied();
            provider.kx_groups = all
                .filter(|group| groups.allowed.contains(&group.name()))
                .collect();
        }
        Arc::new(provider)
    }
}

const SUPPORTED_TLS13: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

const SUPPORTED_TLS12: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Suites that only Go supports: RSA key exchange, CBC, 3DES and RC4.
const UNSUPPORTED: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Shortens a flag value for error messages.
fn excerpt(value: &str) -> String {
    value.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;

    use super::*;

    #[test]
    fn versions_are_named_as_in_kubernetes() {
        for name in ["VersionTLS12", "VersionTLS13"] {
            assert_eq!(name.parse::<MinTlsVersion>().unwrap().to_string(), name);
        }
        let error = "VersionTLS11".parse::<MinTlsVersion>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unsupported minimum TLS version \"VersionTLS11\": use VersionTLS12 or VersionTLS13"
        );
    }

    #[test]
    fn every_supported_suite_exists_in_the_crypto_library() {
        let names: Vec<_> = aws_lc_rs::default_provider()
            .cipher_suites
            .iter()
            // rustls spells the suites of TLS 1.3 with the version in the name.
            .filter_map(|suite| suite.suite().as_str())
            .map(|name| name.replacen("TLS13_", "TLS_", 1))
            .collect();
        assert_eq!(names.len(), SUPPORTED_TLS12.len() + SUPPORTED_TLS13.len());
        for supported in SUPPORTED_TLS12.iter().chain(SUPPORTED_TLS13) {
            assert!(
                names.iter().any(|name| name == supported),
                "{supported} is missing: {names:?}"
            );
        }
    }

    #[test]
    fn a_list_restricts_tls12_only() {
        let suites = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305, TLS_RSA_WITH_AES_128_GCM_SHA256";
        let suites: CipherSuites = suites.parse().unwrap();
        assert_eq!(suites.unsupported(), ["TLS_RSA_WITH_AES_128_GCM_SHA256"]);
        let policy = TlsPolicy::new(MinTlsVersion::Tls12, Some(suites));
        assert_eq!(policy.provider().cipher_suites.len(), 3 + 1);
        assert_eq!(policy.versions().len(), 2);
    }

    #[test]
    fn a_list_without_tls12_suites_disables_tls12() {
        let suites = "TLS_AES_128_GCM_SHA256".parse().unwrap();
        let policy = TlsPolicy::new(MinTlsVersion::Tls12, Some(suites));
        assert_eq!(policy.versions(), [&TLS13]);
        assert_eq!(
            TlsPolicy::new(MinTlsVersion::Tls13, None).versions(),
            [&TLS13]
        );
    }

    #[test]
    fn a_list_of_key_exchange_groups_enables_these_alone() {
        // P-256, X25519 and P-521, which the library lacks.
        let groups: KeyExchangeGroups = "23, 29,25".parse().unwrap();
        assert_eq!(groups.unsupported().collect::<Vec<_>>(), [25]);
        let policy = TlsPolicy::default().with_key_exchange(Some(groups));
        let provider = policy.provider();
        let names: Vec<_> = provider
            .kx_groups
            .iter()
            .map(|group| group.name())
            .collect();
        assert_eq!(names, [NamedGroup::X25519, NamedGroup::secp256r1]);
        for (list, message) in [
            ("x25519", "unknown key exchange group \"x25519\""),
            ("99999", "unknown key exchange group \"99999\""),
            ("25", "no usable key exchange group is left of \"25\""),
        ] {
            let error = list.parse::<KeyExchangeGroups>().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn unknown_and_unsupported_lists_are_rejected() {
        let unknown = "TLS_NULL".parse::<CipherSuites>().unwrap_err();
        assert!(
            matches!(unknown, TlsError::UnknownCipherSuite { .. }),
            "{unknown}"
        );
        for useless in ["", " , ", "TLS_RSA_WITH_RC4_128_SHA"] {
            let error = useless.parse::<CipherSuites>().unwrap_err();
            assert!(matches!(error, TlsError::NoCipherSuite { .. }), "{error}");
        }
    }
}

//! Settings that several probers share.

mod tls;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use regex::bytes::{Regex, RegexBuilder};
use secrecy::SecretString;
use thiserror::Error;

pub use tls::{ClientTlsSettings, ProbeTls, TlsVersion};

/// How a target is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkSettings {
    pub preferred_ip_protocol: IpProtocol,
    /// Whether the other protocol is used if the target has no address of the preferred one.
    pub ip_protocol_fallback: bool,
    /// The local address to connect from.
    pub source_ip_address: Option<IpAddr>,
    /// The DNS server that is asked for the target's addresses; `None` for the system's lookup.
    pub resolver: Option<SocketAddr>,
}

/// `ip4` or `ip6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IpProtocol {
    Ip4,
    #[default]
    Ip6,
}

/// A secret, or the file to read it from at each run.
#[derive(Debug, Clone)]
pub enum Secret {
    Value(SecretString),
    File(PathBuf),
}

/// A setting that cannot be used.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A setting of blackbox_exporter that this prober does not have.
    #[error("{setting} is not supported: {reason}")]
    Unsupported {
        setting: &'static str,
        reason: &'static str,
    },
    #[error("{setting}: {problem}")]
    Invalid {
        setting: &'static str,
        problem: String,
    },
    #[error("the regular expression {pattern:?} cannot be used: {problem}")]
    Regexp { pattern: String, problem: String },
    #[error(transparent)]
    Tls(#[from] kubevitals_tls::TlsError),
}

/// Maximum size of a compiled regular expression, and of the cache of its automaton.
const MAX_REGEXP_BYTES: usize = 1024 * 1024;

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            preferred_ip_protocol: IpProtocol::Ip6,
            ip_protocol_fallback: true,
            source_ip_address: None,
            resolver: None,
        }
    }
}

/// Compiles a regular expression. As in blackbox_exporter it is not anchored, and time is linear in
/// the input. `\Q…\E` is not supported.
pub fn compile_regexp(pattern: &str) -> Result<Regex, SettingsError> {
    RegexBuilder::new(pattern)
        .size_limit(MAX_REGEXP_BYTES)
        .dfa_size_limit(MAX_REGEXP_BYTES)
        .build()
        .map_err(|error| SettingsError::Regexp {
            pattern: pattern.chars().take(200).collect(),
            problem: error.to_string(),
        })
}

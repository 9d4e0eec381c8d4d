//! Settings that several probers share.

mod tls;

use std::fs;
use std::io::{self, Read as _};
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
    /// A setting of `blackbox_exporter` that this prober does not have.
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

/// Maximum size of a file with a secret.
const MAX_SECRET_BYTES: u64 = 64 * 1024;
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

impl Secret {
    /// Returns the secret. White space around it is not part of it if it is read from a file.
    pub(crate) async fn read(&self) -> Result<SecretString, String> {
        match self {
            Self::Value(secret) => Ok(secret.clone()),
            Self::File(path) => {
                let contents = read_file(path.clone(), MAX_SECRET_BYTES).await;
                let contents = contents
                    .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
                // The text itself is not shown.
                let text = String::from_utf8(contents)
                    .map_err(|_| format!("{} is not UTF-8", path.display()))?;
                Ok(SecretString::from(text.trim()))
            }
        }
    }
}

/// Reads a file that must not be larger than `limit`. Only regular files: a pipe could be read for
/// ever.
pub(crate) async fn read_file(path: PathBuf, limit: u64) -> io::Result<Vec<u8>> {
    let reading = tokio::task::spawn_blocking(move || {
        if !fs::metadata(&path)?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut contents = Vec::new();
        let file = fs::File::open(&path)?.take(limit.saturating_add(1));
        io::BufReader::new(file).read_to_end(&mut contents)?;
        if contents.len() as u64 > limit {
            return Err(io::Error::other(format!("it is larger than {limit} bytes")));
        }
        Ok(contents)
    });
    reading.await.map_err(io::Error::other)?
}

/// Compiles a regular expression. As in `blackbox_exporter` it is not anchored, and time is linear
/// in the input. `\Q…\E` is not supported.
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

//! `tls_config`: how a target is verified, and who the prober is.

use std::path::PathBuf;
use std::sync::Arc;

use crate::SettingsError;

/// The settings of `tls_config`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTlsSettings {
    pub insecure_skip_verify: bool,
    /// The authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// The name to verify, and to send, instead of the target's.
    pub server_name: Option<String>,
    pub min_version: Option<TlsVersion>,
    pub max_version: Option<TlsVersion>,
}

/// `TLS10` to `TLS13`. The first two are refused: rustls does not speak them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    Tls10,
    Tls11,
    Tls12,
    Tls13,
}

/// Compiled TLS settings. Files are read at the first handshake, and again when they change.
#[derive(Debug, Clone, Default)]
pub struct ProbeTls(Arc<ClientTlsSettings>);

impl ProbeTls {
    pub fn new(settings: ClientTlsSettings) -> Result<Self, SettingsError> {
        Ok(Self(Arc::new(settings)))
    }

    pub fn settings(&self) -> &ClientTlsSettings {
        &self.0
    }
}

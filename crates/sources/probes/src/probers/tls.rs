//! `tls`: a handshake, and how long the certificates are still valid.

use std::time::Duration;

use crate::{NetworkSettings, ProbeTls};

/// The settings of `tls`.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// The probe fails if a certificate of the chain is valid for a shorter time.
    pub minimum_validity: Duration,
    pub tls_config: ProbeTls,
    pub network: NetworkSettings,
}

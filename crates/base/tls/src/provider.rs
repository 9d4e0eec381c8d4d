//! The crypto library, and the one place where rustls builders are called.
//!
//! rustls looks for a process-wide default provider when none is passed and panics if it finds none
//! or two. Configurations made here always pass theirs; the default is installed as well because
//! other libraries of the process rely on it.

use std::sync::{Arc, LazyLock};

use rustls::client::WantsClientCert;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WantsServerCert;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ConfigBuilder, ServerConfig};

use crate::{TlsError, TlsPolicy};

/// Application protocols to negotiate, most preferred first in a list.
///
/// Offer `H2` only where both sides can speak it: a peer that picks it will not fall back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// HTTP/2.
    H2,
    /// HTTP/1.1.
    Http11,
}

impl Alpn {
    /// The name on the wire.
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::H2 => b"h2",
            Self::Http11 => b"http/1.1",
        }
    }

    pub(crate) fn wire(list: &[Self]) -> Vec<Vec<u8>> {
        list.iter().map(|alpn| alpn.as_bytes().to_vec()).collect()
    }
}

/// Makes aws-lc-rs the crypto library of the process. Call it first in `main` and in test harnesses.
///
/// Calling it again, or after somebody else installed a provider, changes nothing.
pub fn install_crypto_provider() {
    // The only error is "there is one already".
    let _already_installed = aws_lc_rs::default_provider().install_default();
}

/// The provider with all its defaults, shared so that thousands of configurations cost nothing.
pub(crate) fn shared_provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
    &PROVIDER
}

pub(crate) use builders::{client_builder, server_builder};

#[expect(
    clippy::disallowed_methods,
    reason = "this module is where the whole project's rustls configurations begin"
)]
mod builders {
    use super::{
        Arc, ClientCertVerifier, ClientConfig, ConfigBuilder, ServerCertVerifier, ServerConfig,
        TlsError, TlsPolicy, WantsClientCert, WantsServerCert,
    };

    pub(crate) fn client_builder(
        policy: &TlsPolicy,
        verifier: Arc<dyn ServerCertVerifier>,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
        Ok(ClientConfig::builder_with_provider(policy.provider())
            .with_protocol_versions(policy.versions())
            .map_err(TlsError::Configuration)?
            .dangerous()
            .with_custom_certificate_verifier(verifier))
    }

    pub(crate) fn server_builder(
        policy: &TlsPolicy,
        client_verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, TlsError> {
        let builder = ServerConfig::builder_with_provider(policy.provider())
            .with_protocol_versions(policy.versions())
            .map_err(TlsError::Configuration)?;
        Ok(match client_verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installing_twice_is_harmless() {
        install_crypto_provider();
        install_crypto_provider();
        assert!(CryptoProvider::get_default().is_some());
    }
}

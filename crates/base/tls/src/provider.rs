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
use rustls::{ClientConfig, ConfigBuilder, ServerConfig, SupportedCipherSuite};

use crate::{TlsError, TlsPolicy};

/// Application protocols to negotiate, most preferred first in a list.
///
/// Offer `H2` only if both sides support it: a peer that selects it does not fall back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    H2,
    Http11,
}

impl Alpn {
    /// Returns the protocol name on the wire.
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

/// Makes aws-lc-rs the crypto library of the process. Call it first in `main` and in test
/// harnesses.
///
/// It has no effect if a provider is already installed.
pub fn install_crypto_provider() {
    // The only error is that one is already installed.
    let _already_installed = own_provider().install_default();
}

/// Returns the provider that all configurations share.
pub(crate) fn shared_provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(own_provider()));
    &PROVIDER
}

/// Returns the library's defaults, but AES with keys of 128 bits before that with 256, as in Go.
/// Both are secure, and the longer key costs a third more CPU for each byte that kubelets send.
pub(crate) fn own_provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let is_later = |suite: &SupportedCipherSuite| {
        let name = suite.suite().as_str();
        !name.is_some_and(|name| name.contains("AES_128_GCM"))
    };
    // Stable: the others keep their order.
    provider.cipher_suites.sort_by_key(is_later);
    provider
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
    fn installing_twice_has_no_effect() {
        install_crypto_provider();
        install_crypto_provider();
        assert!(CryptoProvider::get_default().is_some());
    }

    #[test]
    fn the_cheaper_cipher_comes_first_and_none_is_lost() {
        let own = own_provider().cipher_suites;
        let names: Vec<_> = own.iter().filter_map(|s| s.suite().as_str()).collect();
        assert_eq!(names.first(), Some(&"TLS13_AES_128_GCM_SHA256"));
        assert_eq!(own.len(), aws_lc_rs::default_provider().cipher_suites.len());
        let at = |name: &str| names.iter().position(|own| own.contains(name));
        assert!(at("AES_256_GCM") < at("CHACHA20"), "{names:?}");
    }
}

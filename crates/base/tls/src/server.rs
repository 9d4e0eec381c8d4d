//! Server configurations: certificate, client certificates, negotiation.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::time_provider::TimeProvider;

use crate::provider::server_builder;
use crate::{Alpn, TlsError, TlsPolicy};

/// A server configuration.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

/// Settings of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Versions and cipher suites.
    pub policy: TlsPolicy,
    /// Application protocols to accept, most preferred first. A client that offers only others is
    /// rejected; one that offers none is accepted.
    pub alpn: Vec<Alpn>,
    /// Requests and verifies client certificates; `None` requests none.
    pub client_verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// A clock for tests instead of the system's.
    pub clock: Option<Arc<dyn TimeProvider>>,
}

impl ServerTls {
    /// Presents the certificate that `certificate` resolves to at the time of each handshake: a
    /// [`ReloadingKeyPair`](crate::ReloadingKeyPair), a [`SelfSigned`](crate::SelfSigned), or
    /// another resolver.
    pub fn new(
        certificate: Arc<dyn ResolvesServerCert>,
        options: &ServerOptions,
    ) -> Result<Self, TlsError> {
        let verifier = options.client_verifier.as_ref().map(Arc::clone);
        let mut config = server_builder(&options.policy, verifier)?.with_cert_resolver(certificate);
        config.alpn_protocols = Alpn::wire(&options.alpn);
        // A resumed session would keep the identity of a client whose authority was removed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if let Some(clock) = &options.clock {
            config.time_provider = Arc::clone(clock);
        }
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Returns the configuration for an acceptor.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

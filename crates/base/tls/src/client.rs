//! How to dial: whom to trust, how to identify oneself, what to negotiate.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::{Resumption, danger::ServerCertVerifier};
use rustls::time_provider::TimeProvider;

use crate::peer::{AcceptAnyone, PeerVerifier};
use crate::provider::{client_builder, shared_provider};
use crate::{Alpn, PeerNames, PinnedKey, ReloadingKeyPair, TlsError, TlsPolicy, TrustRoots};

/// A client configuration that knows whether it verifies its peers.
///
/// Cloning is cheap, and [`for_peer`](Self::for_peer) makes a variant for one node that shares
/// everything but the names: well under a kilobyte for each of thousands of nodes.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// `None` if nobody is verified.
    roots: Option<Arc<TrustRoots>>,
}

/// Settings that most clients leave alone.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Versions and cipher suites.
    pub policy: TlsPolicy,
    /// Application protocols to offer, most preferred first. Leave it empty where the HTTP library
    /// sets its own.
    pub alpn: Vec<Alpn>,
    /// The client certificate to show if asked.
    pub identity: Option<Arc<ReloadingKeyPair>>,
    /// Another clock than the system's, for tests.
    pub clock: Option<Arc<dyn TimeProvider>>,
}

/// Whether the peers of a configuration are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    /// They are, and here is the proof.
    Verified(Verified),
    /// Anyone may be at the other end: send nothing secret.
    Unverified,
}

/// The witness that peers are verified. Only a configuration that verifies gives it away, so that a
/// function which sends a bearer token can ask for one and cannot be called without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified(());

impl ClientTls {
    /// Trusts whom `roots` trust at the moment of each handshake.
    pub fn trusting(roots: Arc<TrustRoots>, options: &ClientOptions) -> Result<Self, TlsError> {
        let verifier = verifier(Arc::clone(&roots), None, None);
        Ok(Self {
            config: Arc::new(configure(verifier, options)?),
            roots: Some(roots),
        })
    }

    /// Trusts anyone, for `--kubelet-insecure-tls`: whoever answers can read what is sent and
    /// answer what they like. [`verification`](Self::verification) then says `Unverified`.
    pub fn dangerous_without_verification(options: &ClientOptions) -> Result<Self, TlsError> {
        let algorithms = shared_provider().signature_verification_algorithms;
        let verifier = Arc::new(AcceptAnyone::new(algorithms));
        Ok(Self {
            config: Arc::new(configure(verifier, options)?),
            roots: None,
        })
    }

    /// The same for one peer, whose certificate may be for any of `names` instead of the name that
    /// is dialled. An unverified configuration stays as it is.
    #[must_use]
    pub fn for_peer(&self, names: PeerNames) -> Self {
        self.for_one(names, None)
    }

    /// As [`for_peer`](Self::for_peer), and where no authority vouches for the peer, it must have
    /// the key that `pin` knows, or is believed at first sight. Certificates of trusted authorities
    /// are judged as ever: one that is out of date or for another peer stays refused.
    #[must_use]
    pub fn for_pinned_peer(&self, names: PeerNames, pin: PinnedKey) -> Self {
        self.for_one(names, Some(pin))
    }

    fn for_one(&self, names: PeerNames, pin: Option<PinnedKey>) -> Self {
        let Some(roots) = &self.roots else {
            return self.clone();
        };
        let mut config = ClientConfig::clone(&self.config);
        #[expect(
            clippy::disallowed_methods,
            reason = "this crate is where trust is decided"
        )]
        config
            .dangerous()
            .set_certificate_verifier(verifier(Arc::clone(roots), Some(names), pin));
        Self {
            config: Arc::new(config),
            roots: Some(Arc::clone(roots)),
        }
    }

    /// What a connector needs. Dial an address as `ServerName::IpAddress`, and no server name is
    /// sent to the peer.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Whether peers are verified.
    pub fn verification(&self) -> Verification {
        match self.roots {
            Some(_) => Verification::Verified(Verified(())),
            None => Verification::Unverified,
        }
    }

    /// The witness that peers are verified, if they are.
    pub fn verified(&self) -> Option<Verified> {
        match self.verification() {
            Verification::Verified(witness) => Some(witness),
            Verification::Unverified => None,
        }
    }
}

fn verifier(
    roots: Arc<TrustRoots>,
    names: Option<PeerNames>,
    pin: Option<PinnedKey>,
) -> Arc<dyn ServerCertVerifier> {
    let algorithms = shared_provider().signature_verification_algorithms;
    Arc::new(PeerVerifier::new(roots, algorithms, names, pin))
}

fn configure(
    verifier: Arc<dyn ServerCertVerifier>,
    options: &ClientOptions,
) -> Result<ClientConfig, TlsError> {
    let builder = client_builder(&options.policy, verifier)?;
    let mut config = match &options.identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::clone(identity) as _),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = Alpn::wire(&options.alpn);
    // A resumed session would not be judged by the current roots.
    config.resumption = Resumption::disabled();
    if let Some(clock) = &options.clock {
        config.time_provider = Arc::clone(clock);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unverified_configuration_gives_no_witness() {
        let client = ClientTls::dangerous_without_verification(&ClientOptions::default()).unwrap();
        assert_eq!(client.verification(), Verification::Unverified);
        let named = client.for_peer(PeerNames::new(["worker-1"]).unwrap());
        assert_eq!(named.verified(), None);
    }

    #[test]
    fn a_configuration_per_node_is_small() {
        assert!(
            size_of::<ClientConfig>() < 512,
            "{}",
            size_of::<ClientConfig>()
        );
        assert!(
            size_of::<PeerVerifier>() < 128,
            "{}",
            size_of::<PeerVerifier>()
        );
    }
}

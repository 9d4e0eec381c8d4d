//! Client configurations: trust, client certificate, negotiation.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::ClientConfig;
use rustls::client::{Resumption, danger::ServerCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

use crate::observe::ObservedPeer;
use crate::peer::{NoVerification, PeerVerifier};
use crate::provider::{client_builder, shared_provider};
use crate::{Alpn, PeerNames, PinnedKey, ReloadingKeyPair, TlsError, TlsPolicy, TrustRoots};

/// A client configuration, and whether it verifies peers.
///
/// Clones are cheap. [`for_peer`](Self::for_peer) returns a variant for one node that shares all
/// but the names: less than a kilobyte for each of thousands of nodes.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    trust: Arc<Trust>,
}

/// What a configuration was made of. Apart, since thousands of nodes keep a [`ClientTls`] each.
#[derive(Debug)]
struct Trust {
    verifier: Arc<dyn ServerCertVerifier>,
    /// `None` if peers are not verified.
    roots: Option<Arc<TrustRoots>>,
    has_identity: bool,
}

/// Optional settings of a client.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Versions and cipher suites.
    pub policy: TlsPolicy,
    /// Application protocols to offer, most preferred first. Leave it empty where the HTTP library
    /// sets its own.
    pub alpn: Vec<Alpn>,
    /// The client certificate to send if the server requests one.
    pub identity: Option<Arc<ReloadingKeyPair>>,
    /// A clock for tests instead of the system's.
    pub clock: Option<Arc<dyn TimeProvider>>,
}

/// The proof that peers are verified. Only a configuration that verifies returns it, so that a
/// function which sends a bearer token can require one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified(());

impl ClientTls {
    /// Trusts the authorities that `roots` hold at the time of each handshake.
    pub fn trusting(roots: Arc<TrustRoots>, options: &ClientOptions) -> Result<Self, TlsError> {
        let verifier = verifier(Arc::clone(&roots), None, None);
        Self::new(verifier, Some(roots), options)
    }

    /// Trusts any peer, for `--kubelet-insecure-tls`: an attacker can read requests and forge
    /// responses. [`verified`](Self::verified) then returns `None`.
    pub fn dangerous_without_verification(options: &ClientOptions) -> Result<Self, TlsError> {
        let algorithms = shared_provider().signature_verification_algorithms;
        let verifier: Arc<dyn ServerCertVerifier> = Arc::new(NoVerification::new(algorithms));
        Self::new(verifier, None, options)
    }

    fn new(
        verifier: Arc<dyn ServerCertVerifier>,
        roots: Option<Arc<TrustRoots>>,
        options: &ClientOptions,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::new(configure(Arc::clone(&verifier), options)?),
            trust: Arc::new(Trust {
                verifier,
                roots,
                has_identity: options.identity.is_some(),
            }),
        })
    }

    /// Returns a variant for one peer, whose certificate may be for any of `names` instead of the
    /// dialled name. An unverified configuration is returned unchanged.
    #[must_use]
    pub fn for_peer(&self, names: PeerNames) -> Self {
        self.for_one(names, None)
    }

    /// Like [`for_peer`](Self::for_peer), but a certificate of an unknown authority is accepted if
    /// its key is the one in `pin`, or the first. Certificates of trusted authorities are verified
    /// as usual: one that is expired or for another peer is rejected.
    #[must_use]
    pub fn for_pinned_peer(&self, names: PeerNames, pin: PinnedKey) -> Self {
        self.for_one(names, Some(pin))
    }

    fn for_one(&self, names: PeerNames, pin: Option<PinnedKey>) -> Self {
        let Some(roots) = &self.trust.roots else {
            return self.clone();
        };
        let verifier = verifier(Arc::clone(roots), Some(names), pin);
        let config = with_verifier(&self.config, Arc::clone(&verifier));
        Self {
            config: Arc::new(config),
            trust: Arc::new(Trust {
                verifier,
                roots: Some(Arc::clone(roots)),
                has_identity: self.trust.has_identity,
            }),
        }
    }

    /// Returns a configuration for one handshake at `now` that offers the protocols in `alpn`, and
    /// what the peer presents in it. Peers are verified as by [`config`](Self::config).
    pub fn observed(&self, alpn: &[Alpn], now: SystemTime) -> (Arc<ClientConfig>, ObservedPeer) {
        let (verifier, peer) = ObservedPeer::observing(Arc::clone(&self.trust.verifier));
        let mut config = with_verifier(&self.config, verifier);
        config.alpn_protocols = Alpn::wire(alpn);
        config.time_provider = Arc::new(FixedTime(now));
        (Arc::new(config), peer)
    }

    /// Returns the configuration for a connector. No server name is sent to a peer that is dialled
    /// as `ServerName::IpAddress`.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Returns whether it has a client certificate to send.
    pub fn has_identity(&self) -> bool {
        self.trust.has_identity
    }

    /// Returns the proof that peers are verified, if they are.
    pub fn verified(&self) -> Option<Verified> {
        self.trust.roots.as_ref().map(|_| Verified(()))
    }
}

/// The time of one handshake.
#[derive(Debug)]
struct FixedTime(SystemTime);

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(UnixTime::since_unix_epoch(since))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this crate is where trust is decided"
)]
fn with_verifier(config: &ClientConfig, verifier: Arc<dyn ServerCertVerifier>) -> ClientConfig {
    let mut config = config.clone();
    config.dangerous().set_certificate_verifier(verifier);
    config
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
    // A resumed session would not be verified against the current roots.
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
    fn an_unverified_configuration_returns_no_proof() {
        let client = ClientTls::dangerous_without_verification(&ClientOptions::default()).unwrap();
        assert_eq!(client.verified(), None);
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

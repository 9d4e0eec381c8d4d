//! TLS configurations. No other crate of the project builds rustls configurations, so that all
//! decisions about trust can be reviewed in one place:
//!
//! * [`install_crypto_provider`] and [`TlsPolicy`]: one crypto library (aws-lc-rs), TLS 1.2 or
//!   later, and the version and cipher suite flags of Kubernetes.
//! * [`ReloadingKeyPair`] and [`TrustRoots`]: certificates, keys and CA bundles from files,
//!   reloaded while the process runs. An invalid file never replaces a valid one.
//! * [`SelfSigned`]: a certificate authority of the process, with a leaf that it renews.
//! * [`ClientTls`]: client configurations. Code that sends a bearer token should require the
//!   [`Verified`] proof of one.
//! * [`PeerNames`]: dial an address, accept a certificate for any of a node's names.
//! * [`ObservedPeer`]: what a peer presents in one handshake, accepted or not, for probes.
//! * [`PinnedKey`]: trust on first use for peers whose certificate no known authority signed.
//! * [`UnbufferedClient`]: the client side of TLS on buffers of the caller, for thousands of idle
//!   connections.
//! * [`ServerTls`]: server configurations.
//! * [`RequestClientCertificate`] and [`ClientAuthority`]: client certificates that are requested,
//!   never required, and verified after the handshake.
//! * [`HandshakeFailure`]: the reason of a failed handshake, as a closed enum with metric labels.
//!
//! [`refresh_loop`] drives all reloading and renewal at the ticks of the caller, usually those of
//! [`Periodic`]. Times are arguments, and handshakes take a clock in their options, so that tests
//! can choose any time.
//!
//! # Sessions are never resumed
//!
//! A resumed session skips certificate verification. After a CA was withdrawn, or a client
//! certificate replaced, resumption would keep the old trust alive for as long as tickets last, and
//! rustls reserves a ticket cache for each configuration, of which there is one per node. The
//! relevant peers keep connections open instead, and Go clients do not resume by default.
//!
//! # Limits
//!
//! * webpki verifies names, purposes, signatures and dates of a chain, but not the dates of a trust
//!   anchor itself: an expired root stays trusted until it leaves the bundle.
//! * Certificate revocation lists are not consulted, as in Kubernetes itself.
//! * A CA certificate is rejected as a server certificate even if it is among the roots; Go accepts
//!   it. [`HandshakeFailure::AuthorityAsServer`] reports it.

mod client;
mod client_auth;
mod error;
mod handshake;
mod key_pair;
mod observe;
mod peer;
mod pem;
mod pin;
mod policy;
mod provider;
mod refresh;
mod reload;
mod roots;
mod self_signed;
mod server;
mod unbuffered;
mod x509;

pub use client::{ClientOptions, ClientTls, Verified};
pub use client_auth::{ClientAuthority, RequestClientCertificate};
pub use error::{PemProblem, TlsError};
pub use handshake::HandshakeFailure;
pub use key_pair::ReloadingKeyPair;
pub use observe::ObservedPeer;
pub use peer::{MAX_PEER_NAMES, PeerNames};
pub use pem::{MAX_PEM_BYTES, PemSource, parse_certificates, parse_private_key};
pub use pin::PinnedKey;
pub use policy::{CipherSuites, KeyExchangeGroups, MinTlsVersion, TlsPolicy};
pub use provider::{Alpn, install_crypto_provider};
pub use refresh::{Periodic, Refresh, RefreshStatus, Refreshed, Ticks, refresh_loop};
pub use roots::{TrustRoots, system_bundle};
pub use self_signed::{SelfSigned, SelfSignedFiles, SelfSignedOptions};
pub use server::{ServerOptions, ServerTls};
pub use unbuffered::{Progress, ReceiveBuffer, UnbufferedClient};
pub use x509::CertificateInfo;

//! The only place of the project that builds rustls configurations.
//!
//! Everything that decides whom a connection may trust lives here, so that it can be read and
//! reviewed in one sitting:
//!
//! * [`install_crypto_provider`] and [`TlsPolicy`]: one crypto library (aws-lc-rs), TLS 1.2 at
//!   least, and the version and cipher knobs that Kubernetes users know.
//! * [`ReloadingKeyPair`] and [`TrustRoots`]: certificates, keys and CA bundles from files, read
//!   again while the process runs. A broken file never replaces a good one.
//! * [`SelfSigned`]: an own certificate authority with a leaf that renews itself.
//! * [`ClientTls`]: how to dial. It says whether peers are verified, and its [`Verified`] witness
//!   is what code that sends a bearer token should ask for.
//! * [`PeerNames`]: dial an address, accept a certificate for any of a node's names.
//! * [`PinnedKey`]: where no authority vouches for a peer, hold it to the key that it showed first.
//! * [`ClientRecords`]: a client's side of TLS over lent buffers, for who holds thousands of idle
//!   connections.
//! * [`ServerTls`]: how to answer.
//! * [`RequestClientCertificate`] and [`ClientAuthority`]: client certificates that are requested,
//!   never required, and judged after the handshake.
//! * [`HandshakeFailure`]: why a handshake failed, in a closed enum that can become a metric label.
//!
//! [`refresh_loop`] drives all reloading and renewal from a caller's ticks, of which [`Periodic`]
//! is the ordinary kind. Times are arguments, and handshakes take a clock in their options, so that
//! tests can stand at any moment.
//!
//! # Sessions are never resumed
//!
//! A resumed session skips certificate verification. After a CA was withdrawn, or a client
//! certificate replaced, resumption would keep the old trust alive for as long as tickets last, and
//! rustls reserves a ticket cache for each configuration, of which there is one per node. The peers
//! that matter hold connections open instead, and Go clients do not resume unless told to.
//!
//! # Limits
//!
//! * webpki judges names, purposes, signatures and dates of a chain, but not the dates of a trust
//!   anchor itself: an expired root stays trusted until it leaves the bundle.
//! * Certificate revocation lists are not consulted, as in Kubernetes itself.
//! * A certificate marked as an authority is refused as a server certificate even if it is listed
//!   among the roots; Go accepts it. [`HandshakeFailure::AuthorityAsServer`] says so.

mod client;
mod client_auth;
mod error;
mod handshake;
mod key_pair;
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

pub use client::{ClientOptions, ClientTls, Verification, Verified};
pub use client_auth::{ClientAuthority, RequestClientCertificate};
pub use error::{PemProblem, TlsError};
pub use handshake::HandshakeFailure;
pub use key_pair::ReloadingKeyPair;
pub use peer::{MAX_PEER_NAMES, PeerNames};
pub use pem::{MAX_PEM_BYTES, PemSource, parse_certificates, parse_private_key};
pub use pin::PinnedKey;
pub use policy::{CipherSuites, MinTlsVersion, TlsPolicy};
pub use provider::{Alpn, install_crypto_provider};
pub use refresh::{Periodic, Refresh, RefreshStatus, Refreshed, Ticks, refresh_loop};
pub use roots::TrustRoots;
pub use self_signed::{SelfSigned, SelfSignedFiles, SelfSignedOptions};
pub use server::{ServerOptions, ServerTls};
pub use unbuffered::{Progress, ReceiveBuffer, UnbufferedClient};
pub use x509::CertificateFacts;

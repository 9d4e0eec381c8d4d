//! Why kubelets could not start.

use std::io;
use std::net::SocketAddr;

use kubevitals_tls::TlsError;

/// Why a fleet of kubelets could not start or serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// An address is taken, or too many files are open.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// More nodes than loopback addresses.
    #[error("{nodes} nodes are too many, at most {most} have a loopback address of their own")]
    TooManyNodes {
        /// How many were asked for.
        nodes: usize,
        /// How many there can be.
        most: usize,
    },
    /// A key or certificate could not be made.
    #[error("cannot make the serving certificate of a kubelet")]
    Certificate(#[source] rcgen::Error),
    /// The TLS library did not accept a key.
    #[error("cannot use the serving key of the kubelets")]
    Key(#[source] rustls::Error),
    /// The TLS library did not accept the settings.
    #[error("cannot configure TLS for a kubelet")]
    Tls(#[from] TlsError),
}

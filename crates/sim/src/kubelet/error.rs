//! Errors of starting kubelets.

use std::io;
use std::net::SocketAddr;

use kubevitals_tls::TlsError;

/// An error of starting a fleet of kubelets or of serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The address is in use, or too many files are open.
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// More nodes than loopback addresses.
    #[error("{nodes} nodes exceed the limit of {max}, the number of loopback addresses")]
    TooManyNodes { nodes: usize, max: usize },
    #[error("cannot issue the serving certificate of a kubelet")]
    Certificate(#[source] rcgen::Error),
    /// The TLS library rejected a key.
    #[error("cannot use the serving key of the kubelets")]
    Key(#[source] rustls::Error),
    /// The TLS library rejected the settings.
    #[error("cannot configure TLS for a kubelet")]
    Tls(#[from] TlsError),
}

//! Why a simulated API server could not be started or used.

use std::net::SocketAddr;

use kubevitals_tls::TlsError;
use thiserror::Error;

/// A failure of the simulated cluster itself; failures of requests are answers.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[source] rcgen::Error),
    /// A user in several groups was to get a certificate.
    #[error("a client certificate can name one group at most; give the user a token instead")]
    SeveralGroups,
    /// A TLS configuration could not be made.
    #[error("cannot configure TLS")]
    Tls(#[from] TlsError),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The cluster could not be filled with what every cluster has.
    #[error("cannot write the initial objects")]
    Bootstrap(#[from] crate::objects::WriteError),
}

//! Errors of starting and using a simulated API server.

use std::net::SocketAddr;

use kubevitals_tls::TlsError;
use thiserror::Error;

/// An error of the simulated cluster itself; errors of requests are responses.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot issue a certificate")]
    Certificate(#[source] rcgen::Error),
    /// A client certificate was requested for a user in several groups.
    #[error("a client certificate can name one group at most; give the user a token instead")]
    SeveralGroups,
    #[error("cannot configure TLS")]
    Tls(#[from] TlsError),
    #[error("no random numbers available from the system")]
    Random,
    /// The objects that every cluster has could not be written.
    #[error("cannot write the initial objects")]
    Bootstrap(#[from] crate::objects::WriteError),
}

//! What can go wrong before a server answers.

use std::io;
use std::net::SocketAddr;

use kubevitals_tls::TlsError;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A certificate, key or authority cannot be used.
    #[error("the TLS configuration cannot be used")]
    Tls(#[from] TlsError),
    /// A resource describes itself in schemas that are no JSON object, or that lack what they must
    /// hold.
    #[error("the schemas of {resource} cannot be used: {reason}")]
    Schemas {
        /// Such as `pods.metrics.k8s.io`.
        resource: String,
        /// What is wrong.
        reason: String,
    },
    /// Two groups or resources have one name, or a group has no version.
    #[error("the groups cannot be served: {reason}")]
    Groups {
        /// What is wrong.
        reason: String,
    },
    /// A name of a header cannot be one.
    #[error("{name:?} cannot be the name of a header")]
    HeaderName {
        /// What was given.
        name: String,
    },
    /// The system's random source failed.
    #[error("the system gives no random numbers")]
    Random,
    /// A path of `always_allow_paths` cannot be one.
    #[error("{path:?} is no path to always allow: {reason}")]
    AlwaysAllowPath {
        /// What was given.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

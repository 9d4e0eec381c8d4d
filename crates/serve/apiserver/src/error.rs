//! Errors of a server.

use std::io;
use std::net::SocketAddr;

use kubevitals_tls::TlsError;

/// An error of [`ApiServer::bind`](crate::ApiServer::bind) or
/// [`ApiServer::serve`](crate::ApiServer::serve).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiServerError {
    #[error("cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// A certificate, key or authority cannot be used.
    #[error("invalid TLS configuration")]
    Tls(#[from] TlsError),
    /// The schemas of a resource are not a JSON object.
    #[error("cannot parse the schemas of {resource}")]
    Schemas {
        /// Such as `pods.metrics.k8s.io`.
        resource: String,
        #[source]
        source: serde_json::Error,
    },
    /// The schemas of a resource lack one of its kinds, or have more than one.
    #[error("invalid schemas of {resource}: {reason}")]
    SchemaOfKind {
        /// Such as `pods.metrics.k8s.io`.
        resource: String,
        reason: String,
    },
    /// Two groups or resources have one name, or a group has no version.
    #[error("invalid API groups: {reason}")]
    Groups { reason: String },
    #[error("{name:?} is not a valid header name")]
    HeaderName { name: String },
    /// The ConfigMap that identifies the front proxy is malformed.
    #[error(
        "entry {key} of the ConfigMap kube-system/extension-apiserver-authentication is not a JSON \
         list of strings"
    )]
    AuthenticationEntry {
        key: &'static str,
        #[source]
        source: serde_json::Error,
    },
    /// The system's random source failed.
    #[error("failed to read random bytes")]
    Random,
    #[error("invalid path {path:?} in always_allow_paths: {reason}")]
    AlwaysAllowPath { path: String, reason: &'static str },
}

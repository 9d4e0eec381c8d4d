//! Errors of building a client. Measuring never fails.

/// An error of registering hooks or building a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Hooks are registered once per process.
    #[error("hooks are already registered: a process has one set, pass others to a client")]
    AlreadyRegistered,
    /// The hooks include those of the process, which would call themselves.
    #[error("global() hooks cannot be registered: they would call themselves")]
    RegistersItself,
    /// The URL of the server has no host, which is a label of the metrics.
    #[error("cluster_url {url} has no host")]
    NoHost {
        /// The URL as configured.
        url: http::Uri,
    },
    /// kube failed to build its part of the client.
    #[error("failed to build a client for {host}")]
    Client {
        /// The host of the server.
        host: String,
        /// The error of kube.
        #[source]
        source: Box<kube::Error>,
    },
}

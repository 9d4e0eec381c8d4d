//! What can go wrong while a client is built. Measuring itself never fails.

/// Why hooks were not registered or a client was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Hooks are registered once per process, before the first client is built.
    #[error(
        "hooks are registered already: a process has one set, pass others to the client that they are for"
    )]
    AlreadyRegistered,
    /// The configuration names a server without a host, so that no request could be told from
    /// another's.
    #[error("cluster_url {url} has no host")]
    NoHost {
        /// The URL as configured.
        url: http::Uri,
    },
    /// kube could not build its part of the client.
    #[error("cannot build a client for {host}")]
    Client {
        /// The server.
        host: String,
        /// What kube said.
        #[source]
        source: Box<kube::Error>,
    },
}
